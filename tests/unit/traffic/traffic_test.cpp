#include "sim/traffic/traffic.hpp"

#include <cmath>
#include <vector>

#include "sim/traffic/accounting.hpp"
#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

using synthetic::small_llama;

LayerCounts counts(std::uint64_t attended, std::uint64_t written) {
  LayerCounts c;
  c.attended = attended;
  c.written = written;
  return c;
}

// A decode step of equal sequences.
StepTraffic decode(const ModelShape& shape, TrafficTypes types, std::size_t batch, const LayerCounts& c) {
  const std::vector<LayerCounts> layers(shape.layers, c);
  const std::vector<std::span<const LayerCounts>> sequences(batch, layers);
  return decode_traffic(shape, types, shape.kv_heads, sequences);
}

constexpr TrafficTypes kBf16 = {DType::kBF16, DType::kBF16};
constexpr TrafficTypes kF32 = {DType::kF32, DType::kF32};

double mean_reads(const Residency& r) { return summarise(r).attended_rows(); }

}  // namespace

TEST_CASE("decode traffic of a small LLaMA equals the bytes counted by hand") {
  const StepTraffic t = decode(small_llama(), kBf16, 1, counts(5, 1));
  // q 16, k 8, v 8, o 16, gate, up and down 24 each, two norms 4 each; final norm 4, head 40, one embedding row 4.
  CHECK(t.bytes[Cause::kWeights] == 2 * (16 + 8 + 8 + 16 + 72 + 8 + 4 + 40 + 4));
  CHECK(t.bytes[Cause::kKvRead] == 5 * (2 + 2) * 2);
  CHECK(t.bytes[Cause::kKvWrite] == 1 * (2 + 2) * 2);
  // Embedding 4; norms 16; q 8, k 6, v 6, o 8, gate 10, up 10, down 10; rotary 12; attention 8; residuals 24;
  // activation 18; final norm 8; head 14.
  CHECK(t.bytes[Cause::kActivations] == 4 * (4 + 16 + 58 + 12 + 8 + 24 + 18 + 8 + 14));
  CHECK(t.bytes[Cause::kScores] == 0);
  CHECK(t.bytes[Cause::kCompaction] == 0);
}

TEST_CASE("arithmetic of a small LLaMA equals the operations counted by hand") {
  const StepTraffic t = decode(small_llama(), kBf16, 1, counts(5, 1));
  CHECK(t[KernelFamily::kLinear].value == 2 * (16 + 8 + 8 + 16 + 72 + 40));
  CHECK(t[KernelFamily::kAttention].value == 2 * 5 * 2 * (2 + 2));  // two query heads share each row
  CHECK(t[KernelFamily::kPolicy].value == 0);
}

TEST_CASE("a batch reads weights once, and everything else once a sequence") {
  const ModelShape shape = small_llama();
  const StepTraffic one = decode(shape, kBf16, 1, counts(5, 1));
  const StepTraffic three = decode(shape, kBf16, 3, counts(5, 1));
  CHECK(three.bytes[Cause::kWeights] == one.bytes[Cause::kWeights] + 2 * 2 * shape.hidden);  // two more embedding rows
  for (const Cause c : {Cause::kKvRead, Cause::kKvWrite, Cause::kActivations})
    CHECK(three.bytes[c] == 3 * one.bytes[c]);
  CHECK(three[KernelFamily::kLinear].value == 3 * one[KernelFamily::kLinear].value);
}

TEST_CASE("prefill computes logits for the last token only, unless all were asked for") {
  const ModelShape shape = small_llama();
  const std::vector<LayerCounts> layers = {counts(6, 3)};
  const StepTraffic last = prefill_traffic(shape, kF32, 1, 3, layers);
  const StepTraffic all = prefill_traffic(shape, kF32, 1, 3, layers, 3);
  CHECK(last.bytes[Cause::kWeights] == 4 * (128 + 4 + 40 + 3 * 4));
  CHECK(all.bytes[Cause::kWeights] == last.bytes[Cause::kWeights]);
  CHECK(last.bytes[Cause::kActivations] == 4 * (3 * 140 + 1 * 22));
  CHECK(all.bytes[Cause::kActivations] == 4 * (3 * 140 + 3 * 22));
  CHECK(last.bytes[Cause::kKvRead] == 6 * 16);
  CHECK(last[KernelFamily::kLinear].value == 2 * (3 * 120 + 40));
}

TEST_CASE("logits of a prompt in blocks read the head once a block, and nothing else again") {
  const std::vector<LayerCounts> layers = {counts(6, 3)};
  const StepTraffic one = prefill_traffic(small_llama(), kF32, 1, 3, layers, 3);
  StepTraffic two = prefill_traffic(small_llama(), kF32, 1, 3, layers, 2);
  CHECK(two.bytes[Cause::kWeights] == one.bytes[Cause::kWeights] + 4 * 40);
  two.bytes.bytes[static_cast<std::size_t>(Cause::kWeights)] = one.bytes[Cause::kWeights];
  CHECK(two == one);
}

TEST_CASE("a call without logits reads neither the head nor the final norm") {
  const StepTraffic t = step_traffic(small_llama(), kBf16, {2, 0, 1, {}});
  CHECK(t.bytes[Cause::kWeights] == 2 * (128 + 2 * 4));
  CHECK(t.bytes[Cause::kActivations] == 4 * 2 * 140);
}

TEST_CASE("a tied head is read once as the head, and by rows as the embedding") {
  ModelShape tied = small_llama();
  tied.tied_head = true;
  CHECK(decode(tied, kBf16, 1, counts(5, 1)) == decode(small_llama(), kBf16, 1, counts(5, 1)));
}

TEST_CASE(
    "weights read in one decode step are the parameters less the embedding and position tables but for their rows") {
  ModelShape opt = small_llama();
  opt.kv_heads = 2;
  opt.mlp = MlpKind::kPlain;
  opt.position = PositionScheme::kLearned;
  opt.position_rows = 18;
  opt.tied_head = opt.norm_bias = opt.qkv_bias = opt.out_bias = opt.mlp_bias = true;
  const StepTraffic t = decode(opt, kF32, 1, counts(5, 1));
  CHECK(t.bytes[Cause::kWeights] == 4 * (parameter_count(opt) - 18 * 4 + 4 + 4));
  opt.position = PositionScheme::kNone;
  opt.position_rows = 0;
  opt.tied_head = false;
  CHECK(decode(opt, kF32, 1, counts(5, 1)).bytes[Cause::kWeights] == 4 * (parameter_count(opt) - 10 * 4 + 4));
}

TEST_CASE("only rotary models read and write rotated heads") {
  ModelShape alibi = small_llama();
  alibi.position = PositionScheme::kAlibi;
  const auto bytes = [](const ModelShape& s) { return decode(s, kBf16, 1, counts(5, 1)).bytes[Cause::kActivations]; };
  CHECK(bytes(small_llama()) - bytes(alibi) == 4 * 12);
}

TEST_CASE("compaction reads and writes each moved row, scores are what the policy says") {
  LayerCounts c = counts(5, 1);
  c.moved = 7;
  c.state_read = 11;
  c.state_written = 13;
  c.policy_flops = {10, 5, 2};
  const StepTraffic t = decode(small_llama(), {DType::kBF16, DType::kF32}, 2, c);
  CHECK(t.bytes[Cause::kCompaction] == 2 * 7 * 2 * (2 + 2) * 4);
  CHECK(t.bytes[Cause::kScores] == 2 * (11 + 13));
  CHECK(t[KernelFamily::kPolicy].value == 34);
}

TEST_CASE("k and v of different widths count each with its own") {
  ModelShape s = small_llama();
  s.v_head_dim = 3;
  CHECK(decode(s, kBf16, 1, counts(5, 1)).bytes[Cause::kKvRead] == 5 * (2 + 3) * 2);
  CHECK(decode(s, kBf16, 1, counts(5, 1))[KernelFamily::kAttention].value == 2 * 5 * 2 * (2 + 3));
}

TEST_CASE("rows stored per query head are read by one query head each") {
  const ModelShape s = small_llama();
  const std::vector<LayerCounts> layers = {counts(10, 2)};
  const std::vector<std::span<const LayerCounts>> batch = {layers};
  CHECK(decode_traffic(s, kBf16, 2, batch)[KernelFamily::kAttention].value == 2 * 10 * (2 + 2));
}

TEST_CASE("imported tensors without a model have attention traffic only") {
  ModelShape s = small_llama();
  s.hidden = s.ffn = s.vocab = s.embedding_width = 0;
  const StepTraffic t = decode(s, kBf16, 1, counts(5, 1));
  CHECK(t.bytes[Cause::kWeights] == 0);
  CHECK(t.bytes[Cause::kActivations] == 4 * (4 + 4));
  CHECK(t.bytes[Cause::kKvRead] == 40);
  CHECK(t[KernelFamily::kLinear].value == 0);
}

TEST_CASE("the traffic of a residency's step is that of its cells") {
  const Residency r = synthetic::full({6, 3}, 1, 1);
  const ModelShape s = small_llama();
  CHECK(residency_traffic(s, kBf16, r, 2).bytes[Cause::kKvRead] == 8 * 8);  // 6 of the prompt, 2 decoded
  CHECK(residency_traffic(s, kBf16, r, 0).bytes[Cause::kKvRead] == 21 * 8);
  CHECK(residency_traffic(s, kBf16, r, 0).bytes[Cause::kKvWrite] == 6 * 8);
}

TEST_CASE("a prompt that is read in blocks of queries walks the rows up to each block's last query once") {
  CHECK(prefill_rows_read(10, 1) == 55);
  CHECK(prefill_rows_read(10, 4) == 4 + 8 + 10);
  CHECK(prefill_rows_read(8, 4) == 4 + 8);
  CHECK(prefill_rows_read(3, 64) == 3);
  const Residency r = synthetic::full({10, 1}, 1, 1);
  const StepTraffic blocks = residency_traffic(small_llama(), kBf16, r, 0, 4);
  CHECK(blocks.bytes[Cause::kKvRead] == 22 * 8);
  CHECK(blocks[KernelFamily::kAttention].value ==
        residency_traffic(small_llama(), kBf16, r, 0)[KernelFamily::kAttention].value);
}

TEST_CASE(
    "full attention reads 3.0 times the KV of half a prompt, and 1.67 times that of 90 percent, when as much is "
    "generated") {
  // (P + G / 2) / (r · P) with G = P: 1.5 / 0.5 and 1.5 / 0.9. Keyformer prints 2.9 for the first.
  const synthetic::Lengths lengths = {512, 512};
  const double full = mean_reads(synthetic::full(lengths));
  CHECK(full / mean_reads(synthetic::fraction(lengths, 0.5)) == Approx(3.0).epsilon(0.02));
  CHECK(full / mean_reads(synthetic::fraction(lengths, 0.9)) == Approx(1.0 / 0.6).epsilon(0.02));
}

TEST_CASE("the mean decode step is the mean of all decode steps") {
  const Residency r = synthetic::full({6, 3}, 1, 1);
  const ModelShape s = small_llama();
  StepTraffic sum;
  for (std::uint32_t step = 1; step <= 3; ++step) sum += residency_traffic(s, kBf16, r, step);
  const StepTraffic mean = mean_decode_traffic(s, kBf16, summarise(r), 1);
  CHECK(3 * mean.bytes[Cause::kKvRead] == sum.bytes[Cause::kKvRead]);
  CHECK(3 * mean.bytes.total() == sum.bytes.total());
  CHECK(3 * mean[KernelFamily::kAttention].value == Approx(sum[KernelFamily::kAttention].value));
}

TEST_CASE("the mean decode step of a batch is its bytes in all steps, divided once") {
  // Two heads of rows of 8 bytes; 3 rows move in the second of 7 steps, and attention reads a row more each step.
  Residency r = synthetic::full({6, 7}, 1, 2);
  r.at(2, 0).moved = 3;
  r.at(4, 0).scored = 5;
  const ModelShape s = small_llama();
  StepTraffic sum;
  for (std::uint32_t step = 1; step <= 7; ++step) sum += residency_traffic(s, kBf16, r, step);
  CHECK(sum.bytes[Cause::kCompaction] == 48);
  for (const std::uint64_t batch : {1, 2, 3, 4, 1000}) {
    const StepTraffic mean = mean_decode_traffic(s, kBf16, summarise(r), batch);
    for (const Cause cause : {Cause::kKvRead, Cause::kKvWrite, Cause::kCompaction, Cause::kScores}) {
      const double exact = static_cast<double>(batch * sum.bytes[cause]) / 7;
      CHECK(std::abs(static_cast<double>(mean.bytes[cause]) - exact) <= 0.5);
    }
    CHECK(mean.kv_read.total() == mean.bytes[Cause::kKvRead]);
    CHECK(7 * mean[KernelFamily::kAttention].value ==
          Approx(static_cast<double>(batch) * sum[KernelFamily::kAttention].value));
  }
}

TEST_CASE("parts of what a quantised cache reads add up to the total, however means round") {
  const Residency r = synthetic::full({6, 7}, 1, 1);
  for (const KvType type : {KvType(KvType::kInt8), KvType(KvType::kInt4G64)}) {
    for (const std::uint64_t batch : {1, 2, 3}) {
      const StepTraffic mean = mean_decode_traffic(small_llama(), {DType::kBF16, type}, summarise(r), batch);
      CHECK(mean.kv_read.total() == mean.bytes[Cause::kKvRead]);
      CHECK(mean.kv_read.scales > 0);
    }
  }
}

TEST_CASE("a summary counts the rows that must be allocated: one more than stay resident") {
  CHECK(summarise(synthetic::full({100, 20}, 2, 4)).peak_rows == 2 * 4 * 120);
  CHECK(summarise(synthetic::fraction({100, 20}, 0.5, 2, 4)).peak_rows == 2 * 4 * 51);
  CHECK(summarise(synthetic::fraction({100, 20}, 0.5, 2, 4)).layer_prompt_rows == 4 * 100);
  CHECK(summarise(synthetic::fraction({100, 20}, 0.5)).evicts);
  CHECK_FALSE(summarise(synthetic::full({100, 20})).evicts);
}

TEST_CASE("where a window is full in one head alone, the other's new token needs room and its own does not") {
  Residency r = synthetic::empty({10, 2}, 1, 2);
  r.layer_windows = {8};
  r.at(0, 0).written = 2 * 10;
  for (std::uint32_t step = 0; step <= 2; ++step) r.at(step, 0).resident = 8 + 3;
  for (std::uint32_t step = 1; step <= 2; ++step) {
    r.at(step, 0).written = 2;
    r.at(step, 0).allocated = 8 + 4;
  }
  CHECK(summarise(r).peak_rows == 8 + 4);
}

TEST_CASE("full attention is summed over layers, each with its own window, and a window is no eviction") {
  ModelShape s = small_llama();
  s.layers = 5;
  s.kv_heads = 2;
  s.layer_windows = {0, 8, 0, 4, 8};
  // 10 tokens of prompt and 2 more. A head reads 11 and 12 rows, or what the window shows; pages hold 16 rows.
  const ResidencySummary sum = full_attention_summary(s, 10, 2);
  CHECK(sum.decode.attended == 2 * (2 * (11 + 12) + 2 * (8 + 8) + (4 + 4)));
  CHECK(sum.decode.written == 2 * 5 * 2);
  CHECK(sum.prefill.written == 2 * 5 * 10);
  // In the prompt: 1 + 2 + … + 10 rows, of which no query sees more than its window.
  CHECK(sum.prefill.attended == 2 * (2 * 55 + 2 * (36 + 2 * 8) + (10 + 6 * 4)));
  CHECK(sum.peak_rows == 2 * (2 * 12 + 2 * 8 + 4));
  CHECK(sum.peak_paged_rows == 2 * 5 * 16);
  CHECK(sum.layer_prompt_rows == 2 * 10);
  CHECK(sum.decode_steps == 2);
  CHECK_FALSE(sum.evicts);
}

TEST_CASE("a residency whose layers hold all that their windows show has evicted nothing, with one row less it has") {
  Residency r = synthetic::budgeted({20, 3}, 2, 4, 8, 8);
  CHECK(summarise(r).evicts);
  r.layer_windows = {8, 8};
  CHECK_FALSE(summarise(r).evicts);
  r.layer_windows = {8, 9};
  CHECK(summarise(r).evicts);
  r.layer_windows = {8, 0};
  CHECK(summarise(r).evicts);
}

TEST_CASE("a prompt without decoded tokens is summarised by the step that would follow it") {
  const ResidencySummary s = summarise(synthetic::fraction({100, 0}, 0.5, 1, 2));
  CHECK(s.attended_rows() == 2 * 51);
  CHECK(s.resident_rows() == 2 * 50);
}

TEST_CASE("a summary of several sequences is their mean") {
  SummarySum both;
  for (const std::uint32_t prompt : {100U, 200U}) {
    both.add(summarise(synthetic::full({prompt, 10}, 1, 1)));
    both.end_sequence(prompt, 10, 1);
  }
  const ResidencySummary s = both.mean();
  CHECK(s.prompt == 150);
  CHECK(s.peak_rows == 160);
  CHECK(s.attended_rows() == Approx(155.5));
}

namespace {

// Of sequences under full attention, each its tokens of prompt and decoded ones.
ResidencySummary mean_of(const std::vector<synthetic::Lengths>& sequences) {
  const ModelShape shape = small_llama();
  SummarySum sum;
  for (const auto& [prompt, steps] : sequences) {
    sum.add(full_attention_summary(shape, prompt, steps));
    sum.end_sequence(prompt, steps, shape.layers);
  }
  return sum.mean();
}

}  // namespace

TEST_CASE("a sequence that decoded nothing counts in no mean of decode steps, wherever it stands among the others") {
  const ResidencySummary one = mean_of({{100, 10}});
  const std::vector<std::vector<synthetic::Lengths>> orders = {{{100, 10}, {50, 0}}, {{50, 0}, {100, 10}}};
  for (const auto& sequences : orders) {
    const ResidencySummary both = mean_of(sequences);
    CHECK(both.attended_rows() == one.attended_rows());
    CHECK(both.resident_rows() == one.resident_rows());
    CHECK(both.decode_steps == 10);
    CHECK(both.peak_rows == one.peak_rows);
    CHECK(both.peak_paged_rows == one.peak_paged_rows);
    CHECK(both.prompt == 75);  // which is a mean of prompts
  }
}

TEST_CASE("where no sequence decoded, the steps that would follow the prompts stand for decoding") {
  CHECK(mean_of({{100, 0}, {50, 0}}).attended_rows() == (101 + 51) / 2.0);
  CHECK(mean_of({{100, 0}, {50, 0}}).peak_rows == (100 + 50) / 2);
}

TEST_CASE("a sequence of a running batch has room for what the mean decode step's sequence has at its fullest") {
  // 60 steps of one that grows to 220 rows, 3 of one that grows to 8.
  const ResidencySummary mean = mean_of({{160, 60}, {5, 3}});
  CHECK(mean.resident_rows() == Approx((60 * 190.5 + 3 * 7) / 63));
  CHECK(mean.peak_rows == 210);  // 209.9
}

TEST_CASE("what is allocated has room for what is held, in whole pages too, of sequences of any lengths") {
  const std::vector<std::vector<synthetic::Lengths>> batches = {
      {{160, 60}, {5, 3}}, {{10, 1}, {10, 1}, {11, 1}}, {{7, 200}, {900, 1}}, {{300, 40}, {20, 0}}, {{9, 0}, {8, 0}}};
  for (const auto& sequences : batches) {
    const ResidencySummary mean = mean_of(sequences);
    for (const KvType type : {KvType(DType::kBF16), KvType(KvType::kInt8), KvType(KvType::kKivi2)}) {
      INFO(sequences.front().prompt << " tokens, " << name_of(type));
      const Accounting a = account(small_llama(), {DType::kBF16, type}, mean, 3);
      CHECK(a.kv_allocated >= a.kv_resident);
      if (!type.by_age()) CHECK(a.kv_allocated_paged >= a.kv_allocated);
    }
  }
}

}  // namespace kvroof
