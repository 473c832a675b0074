// What calibrations of a CPU run: weights of one number, and calls of decode attention over them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/fast_ops.hpp"
#include "kernels/engine/weight.hpp"

namespace kvroof {

inline Weight constant_weight(DType type, std::size_t rows, std::size_t cols) {
  // 1.0 in bf16, and a number near 1 in the other types.
  Weight w{type, rows, cols, AlignedBytes(rows * cols * size_of(type))};
  std::fill_n(reinterpret_cast<std::uint16_t*>(w.data.data()), w.data.size() / 2, std::uint16_t{0x3f80});
  return w;
}

// A decode step's attention of one layer, 32 heads of 128, over caches of `slots` tokens, another one a run.
class AttentionWork {
 public:
  static constexpr std::uint32_t kHeads = 32;
  static constexpr std::size_t kHeadDim = 128;
  static constexpr std::size_t kSlotBytes = kHeads * kHeadDim * 2 * 2;

  AttentionWork(Ops& ops, std::uint32_t slots, std::size_t caches)
      : ops_(ops), policy_({"full", {}, false, {}}, PolicyContext{}, kHeads, kHeads), out_(q_.size()) {
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      for (std::uint32_t i = 0; i < slots; ++i) policy_.admit(HeadId(h), TokenPos(i));
    }
    for (std::size_t i = 0; i < caches; ++i) {
      keys_.push_back(constant_weight(DType::kBF16, std::size_t{kHeads} * slots, kHeadDim));
      values_.push_back(constant_weight(DType::kBF16, std::size_t{kHeads} * slots, kHeadDim));
      calls_.push_back(calls_over(keys_.back(), values_.back(), slots));
    }
  }
  void run() { ops_.attend(calls_[next_++ % calls_.size()], {}); }

 private:
  std::vector<AttendCall> calls_over(const Weight& keys, const Weight& values, std::uint32_t slots) {
    std::vector<AttendCall> calls;
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto part = [&](const Weight& w) {
        RowsView rows = w.view();
        rows.data = rows.row(std::size_t{h} * slots);
        rows.count = slots;
        return rows;
      };
      calls.push_back({std::span(q_).subspan(h * kHeadDim, kHeadDim), part(keys), part(values),
                       std::span(out_).subspan(h * kHeadDim, kHeadDim), TokenPos(slots - 1), &policy_, HeadId(h), h});
    }
    return calls;
  }

  Ops& ops_;
  LayerPolicy policy_;
  std::vector<float> q_ = std::vector<float>(kHeads * kHeadDim, 0.01F);
  std::vector<float> out_;
  std::vector<Weight> keys_, values_;
  std::vector<std::vector<AttendCall>> calls_;
  std::size_t next_ = 0;
};

// Norms, rotation, activation and residuals of one layer of 2,048.
class ElementwiseWork {
 public:
  explicit ElementwiseWork(Ops& ops) : ops_(ops) {}
  void run() {
    for (int i = 0; i < 2; ++i) {
      ops_.norm(row_, norm_, {}, other_);
      ops_.rotate(other_, {{&position_, 1}, {}}, kHidden / kHeadDim, kHeadDim, 0, rotary_);
      ops_.add_residual(row_, other_, 1);
    }
    ops_.gated(Activation::kSilu, gate_, up_, gate_);
  }

 private:
  static constexpr std::size_t kHidden = 2048, kFfn = 5632, kHeadDim = 128;

  Ops& ops_;
  Norm norm_{constant_weight(DType::kBF16, 1, kHidden), {}};
  RotaryRule rotary_ = plain_rotary(RotaryStyle::kHalfSplit, kHeadDim, 1e4);
  std::vector<float> row_ = std::vector<float>(kHidden, 0.5F), other_ = row_;
  std::vector<float> gate_ = std::vector<float>(kFfn, 0.5F), up_ = gate_;
  TokenPos position_{100};
};

}  // namespace kvroof
