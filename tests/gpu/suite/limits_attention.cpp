// Decode attention against the bandwidth of memory: batch, context, heads, types, ragged lengths, rows for scores.
#include <algorithm>
#include <memory>
#include <numeric>

#include "kernels/cuda/attention_plan.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/measure.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

struct Case {
  std::uint32_t heads = 32, kv_heads = 32, dim = 128;
  Stored type = Stored::kBF16;
  std::vector<std::uint32_t> lengths;  // of each sequence
  const char* shape = "uniform";       // of the lengths
  bool rows = false;                   // logits are kept, as policies that score need them

  [[nodiscard]] std::uint32_t row_bytes() const {
    return dim * (type == Stored::kInt8 ? 8 : type == Stored::kInt4 ? 4 : 16) / 8;
  }
  [[nodiscard]] std::size_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}); }
  // Keys, values and their scales, read once.
  [[nodiscard]] std::size_t bytes() const {
    const bool scaled = type == Stored::kInt8 || type == Stored::kInt4;
    return tokens() * kv_heads * 2 * (row_bytes() + (scaled ? sizeof(float) : 0));
  }
  [[nodiscard]] Json parameters() const {
    return {{"batch", lengths.size()}, {"context", tokens() / lengths.size()},
            {"heads", heads},          {"kv_heads", kv_heads},
            {"head_dim", dim},         {"type", name_of(type)},
            {"lengths", shape},        {"rows_kept", rows}};
  }
};

// Caches of one call of attention, and the plan over them.
class Call {
 public:
  Call(Stream& stream, const Case& c, const DeviceBuffer& arena, std::size_t first, const float* q, float* out,
       unsigned blocks)
      : c_(c), blocks_(blocks), plan_(c.kv_heads, c.heads / c.kv_heads) {
    const std::size_t rows = c.tokens() * c.kv_heads;
    const std::size_t values = first + rows * c.row_bytes(), scales = first + 2 * rows * c.row_bytes();
    std::size_t row = 0;
    for (const std::uint32_t length : c.lengths) {
      std::vector<CacheSlots> heads;
      for (std::uint32_t h = 0; h < c.kv_heads; ++h, row += length) {
        heads.push_back({arena.at(first + row * c.row_bytes()), arena.at(values + row * c.row_bytes()),
                         arena.at<float>(scales + 4 * row), arena.at<float>(scales + 4 * (rows + row)),
                         arena.at<std::uint32_t>(scales + 4 * (2 * rows + row)), nullptr});
      }
      plan_.add(heads, length, std::vector(heads.size(), length));
    }
    plan_.cut(blocks);
    if (c.rows) {
      logits_ = DeviceBuffer(plan_.logit_floats() * sizeof(float));
      plan_.place_logits(logits_.at<float>());
    }
    a_ = plan_.arguments(stream, tables_, parts_, padded_width(c.dim));
    a_.key_row_bytes = a_.value_row_bytes = c.row_bytes();
    a_.q = q;
    a_.heads = c.heads;
    a_.head_dim = a_.value_dim = c.dim;
    a_.scale = 0.05F;
    a_.out = out;
  }
  // Of one call in the arena: rows, scales and positions.
  static std::size_t arena_bytes(const Case& c) {
    const std::size_t rows = c.tokens() * c.kv_heads;
    return (rows * (2 * c.row_bytes() + 12) + 255) / 256 * 256;
  }
  void launch(Stream& stream) { run_decode_attention(stream, c_.type, blocks_, plan_.kernel_group(), a_); }

 private:
  const Case& c_;
  unsigned blocks_;
  AttentionPlan plan_;
  DeviceBuffer logits_, tables_, parts_;
  AttentionArguments a_;
};

void measure_case(const Options& options, Report& report, const Case& c, double limit) {
  report.guarded("decode_attention", c.parameters(), [&] {
    OpenStream open;
    Stream& stream = open.get();
    const std::size_t call_bytes = Call::arena_bytes(c);
    const std::size_t calls = 4 * options.card.l2_bytes / call_bytes + 1;
    if (!options.small && calls * call_bytes > options.device.free_bytes / 2)
      return report.cut("decode_attention", c.parameters());
    DeviceBuffer arena(calls * call_bytes);
    const bool integers = c.type == Stored::kInt8 || c.type == Stored::kInt4;
    // Random bits are finite as integers and as bf16 below; as positions any number serves.
    run_noise(stream, integers ? Noise::kBytes : Noise::kBF16, 1, 3, arena.at(), arena.bytes() / 16 * 16);
    const std::size_t floats = c.lengths.size() * c.heads * c.dim;
    DeviceBuffer q(4 * floats), out(4 * floats);
    run_noise(stream, Noise::kF32, 1, 4, q.at(), q.bytes() / 16 * 16);
    std::vector<std::unique_ptr<Call>> sets;
    for (std::size_t i = 0; i < calls; ++i) {
      sets.push_back(std::make_unique<Call>(stream, c, arena, i * call_bytes, q.at<float>(), out.at<float>(),
                                            4 * options.device.multiprocessors));
    }
    TimedWork work(stream, std::max<unsigned>(static_cast<unsigned>(calls), repetitions_for(call_bytes, options.card)),
                   [&](unsigned i) { sets[i % calls]->launch(stream); });
    const Measured m = measure(work, options.small ? 0.01 : 0.2);
    report.add("decode_attention", c.parameters(), results_of(m, static_cast<double>(c.bytes()), limit));
  });
}

std::vector<std::uint32_t> uniform(std::uint32_t batch, std::uint32_t context) {
  return std::vector<std::uint32_t>(batch, context);
}

// The most telling first: what is cut for time is what comes last.
std::vector<Case> attention_cases(bool small) {
  if (small) {
    return {{2, 2, 64, Stored::kBF16, uniform(2, 40)}, {4, 2, 128, Stored::kInt8, {60, 3}, "one long", true}};
  }
  std::vector<Case> cases;
  const auto add = [&](std::uint32_t heads, std::uint32_t kv, std::uint32_t dim, Stored type,
                       std::vector<std::uint32_t> lengths, const char* shape = "uniform",
                       bool rows = false) { cases.push_back({heads, kv, dim, type, std::move(lengths), shape, rows}); };
  for (const bool rows : {false, true}) add(32, 32, 128, Stored::kBF16, uniform(8, 4096), "uniform", rows);
  std::vector<std::uint32_t> one_long(8, 1024), zipf;
  one_long[0] = 8 * 4096 - 7 * 1024;
  for (std::uint32_t i = 1; i <= 8; ++i) zipf.push_back(static_cast<std::uint32_t>(8 * 4096 / 2.718 / i));
  add(32, 32, 128, Stored::kBF16, one_long, "one long");
  add(32, 32, 128, Stored::kBF16, zipf, "zipf");
  for (const Stored type : {Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t batch : {1U, 8U, 32U}) add(32, 32, 128, type, uniform(batch, 8192));
  }
  for (const std::uint32_t context : {2048U, 8192U, 512U, 32768U, 131072U}) {
    for (const std::uint32_t batch : {1U, 8U, 64U}) {
      if (std::uint64_t{context} * batch > 131072) continue;
      add(32, 32, 128, Stored::kBF16, uniform(batch, context));
      add(32, 8, 128, Stored::kBF16, uniform(batch, context));
      add(16, 16, 256, Stored::kBF16, uniform(batch, context));
    }
  }
  return cases;
}

}  // namespace

void measure_attention(const Options& options, Report& report, double limit) {
  for (const Case& c : attention_cases(options.small)) measure_case(options, report, c, limit);
}

}  // namespace kvroof::suite
