// Decode attention against the bandwidth of memory: batch, context, heads, types, ragged lengths, rows for scores.
#include "kernels/cuda/measure/attention_work.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

struct Case {
  AttentionWork work;
  const char* shape = "uniform";  // of the lengths

  [[nodiscard]] Json parameters() const {
    return {{"batch", work.lengths.size()}, {"context", work.tokens() / work.lengths.size()},
            {"heads", work.heads},          {"kv_heads", work.kv_heads},
            {"head_dim", work.dim},         {"type", name_of(work.type)},
            {"lengths", shape},             {"rows_kept", work.rows},
            {"scores", scores()}};
  }
  [[nodiscard]] std::string scores() const {
    if (!work.scores) return "none";
    return std::string(*work.scores == ScoreKind::kNoisySum ? "noisy_sums" : "sums") + (work.apart ? " apart" : "");
  }
};

void measure_case(const Options& options, Report& report, const Case& c, double limit) {
  report.guarded("decode_attention", c.parameters(), [&] {
    const auto m = time_attention(c.work, options.device, options.card, options.small ? 0.01 : 0.2);
    if (!m) return report.cut("decode_attention", c.parameters());
    report.add("decode_attention", c.parameters(), results_of(*m, static_cast<double>(c.work.bytes()), limit));
  });
}

std::vector<std::uint32_t> uniform(std::uint32_t batch, std::uint32_t context) {
  return std::vector<std::uint32_t>(batch, context);
}

// The most telling first: what is cut for time is what comes last.
std::vector<Case> attention_cases(bool small) {
  if (small) {
    return {{{2, 2, 64, Stored::kBF16, uniform(2, 40), false, {}}},
            {{4, 2, 128, Stored::kInt8, {60, 3}, true, {}}, "one long"},
            {{4, 2, 64, Stored::kBF16, {60, 3}, true, ScoreKind::kNoisySum}},
            {{4, 2, 64, Stored::kBF16, {60, 3}, true, ScoreKind::kNoisySum, true}}};
  }
  std::vector<Case> cases;
  const auto add = [&](std::uint32_t heads, std::uint32_t kv, std::uint32_t dim, Stored type,
                       std::vector<std::uint32_t> lengths, const char* shape = "uniform",
                       bool rows = false) {
    cases.push_back({{heads, kv, dim, type, std::move(lengths), rows, {}}, shape});
  };
  for (const bool rows : {false, true}) add(32, 32, 128, Stored::kBF16, uniform(8, 4096), "uniform", rows);
  // What scores add to it: of few long sequences, of many that a policy has made short, and of one by itself.
  for (const auto& [kv, lengths] : {std::pair{32U, uniform(8, 4096)}, {32U, uniform(256, 513)},
                                    {8U, uniform(1, 2048)}, {32U, uniform(1, 4096)}}) {
    if (lengths.size() != 8) add(32, kv, 128, Stored::kBF16, lengths);
    for (const ScoreKind scores : {ScoreKind::kAttentionSum, ScoreKind::kNoisySum}) {
      for (const bool apart : {false, true}) {
        cases.push_back({{32, kv, 128, Stored::kBF16, lengths, true, scores, apart}});
      }
    }
  }
  std::vector<std::uint32_t> one_long(8, 1024), zipf;
  one_long[0] = 8 * 4096 - 7 * 1024;
  for (std::uint32_t i = 1; i <= 8; ++i) zipf.push_back(static_cast<std::uint32_t>(8 * 4096 / 2.718 / i));
  add(32, 32, 128, Stored::kBF16, one_long, "one long");
  add(32, 32, 128, Stored::kBF16, zipf, "zipf");
  for (const Stored type : {Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t batch : {1U, 8U, 32U}) add(32, 32, 128, type, uniform(batch, 8192));
  }
  // What is computed of each row grows with the group.
  for (const Stored type : {Stored::kBF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t heads : {32U, 64U}) add(heads, 8, 128, type, uniform(32, 8192));
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
