// The engine with a random model, timed by the clock of the host: what a caller of decode_greedily() waits for.
#pragma once

#include <chrono>

#include "kernels/cuda/cuda_backend.hpp"
#include "tests/gpu/suite/random_model.hpp"

namespace kvroof::suite {

class EngineTiming {
 public:
  EngineTiming(const Model& model, const std::string& policy)
      : model_(model), backend_(model, {parse_policies(policy).at(0), 0, DType::kBF16}) {}

  // Adds sequences of `prompt` tokens, with room for `new_tokens` more, until there are `batch`; seconds of all their
  // prefills.
  double grow(std::uint32_t batch, std::uint32_t prompt, std::uint32_t new_tokens) {
    std::vector<float> last(model_.config.shape.vocab);
    std::vector<std::int64_t> ids(prompt);
    const double before = now();
    for (; batch_ < batch; ++batch_) {
      for (std::uint32_t i = 0; i < prompt; ++i) ids[i] = token(i);
      backend_.prefill(batch_, ids, new_tokens, last, {});
    }
    backend_.take_counters();
    return now() - before;
  }
  // One step of all sequences; its seconds.
  double decode() {
    std::vector<DecodeEntry> entries;
    for (std::uint32_t s = 0; s < batch_; ++s) entries.push_back({s, token(steps_)});
    ++steps_;
    choices_.resize(batch_);
    const double before = now();
    backend_.decode_greedily(entries, choices_);
    return now() - before;
  }
  void release() {
    for (std::uint32_t s = 0; s < batch_; ++s) backend_.release(s);
    batch_ = 0;
  }
  [[nodiscard]] Backend& backend() { return backend_; }
  // All bytes that the steps since the last call declared.
  double all_bytes_moved() { return static_cast<double>(backend_.take_counters().total()); }
  // Weights and rows of the cache that the steps since the last call moved, by the engine's own count.
  double bytes_moved() {
    const ByteCounters bytes = backend_.take_counters();
    return static_cast<double>(bytes.total() - bytes[Cause::kActivations]);
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // Any token serves; a few different rows of the embedding.
  [[nodiscard]] std::int64_t token(std::uint32_t i) const { return (7 * i + 13) % model_.config.shape.vocab; }

  const Model& model_;
  cuda::CudaBackend backend_;
  std::uint32_t batch_ = 0, steps_ = 0;
  std::vector<TokenChoice> choices_;
};

}  // namespace kvroof::suite
