// Layers with compressed rows beside a window: what is held, read and written, counted by hand, and what a policy
// changes.
#include "sim/model/compressed_rows.hpp"

#include <filesystem>

#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Five layers with a window of 8: one of it alone, two with a row for 4 tokens of which a query reads 5, two with one
// for 16.
ModelShape small_v4() {
  ModelShape s;
  s.name = "small";
  s.layers = 5;
  s.hidden = s.embedding_width = 64;
  s.heads = 4;
  s.kv_heads = 1;
  s.head_dim = s.v_head_dim = 16;
  s.ffn = s.expert_ffn = 24;
  s.vocab = 96;
  s.max_positions = 4096;
  s.attention_sinks = true;
  s.layer_windows.assign(5, 8);
  s.compressed = {{0, 4, 16, 4, 16}, 4, 2, 12};
  s.latent_q_rank = 20;
  s.index = {3, 8, 5, 2};
  s.residual_streams = 3;
  s.experts = 6;
  s.experts_per_token = 2;
  s.shared_expert_ffn = 24;
  s.router_bias = true;
  s.hashed_layers = 2;
  return s;
}

constexpr u64 kRow = 16 * 2, kKey = 8 + 4;

// One head that holds at most `most` of 16 tokens of prompt and 8 decoded ones, and reads what it holds.
Residency recording(u64 most) {
  Residency r;
  r.prompt = 16;
  r.steps = 8;
  r.layers = r.storage_heads = r.kv_heads = 1;
  r.cells.resize(9);
  for (std::uint32_t step = 0; step <= 8; ++step) {
    LayerCounts& c = r.at(step, 0);
    c.resident = std::min<u64>(most, 16 + step);
    c.written = step == 0 ? 16 : 1;
    c.attended = step == 0 ? 16 * 17 / 2 : r.at(step - 1, 0).resident + 1;
    c.allocated = step == 0 ? c.resident : c.attended;
  }
  return r;
}

ModelShape recorded_shape() {
  ModelShape s;
  s.layers = s.heads = s.kv_heads = 1;
  s.head_dim = s.v_head_dim = 16;
  return s;
}

ResidencySummary projected(u64 most, ProjectedLengths lengths, const Room& room) {
  const ModelShape s = small_v4();
  SummarySum sum;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    sum.add(summarise(project_layer(recording(most), recorded_shape(), s, lengths, room, layer)));
  }
  sum.end_sequence(lengths.prompt, lengths.output, s.layers);
  return sum.mean();
}

}  // namespace

TEST_CASE("queries of a prompt read their window and the compressed rows whose tokens have come") {
  REQUIRE(shape_problem(small_v4()).empty());
  const ResidencySummary r = full_attention_summary(small_v4(), 37, 3);
  // 1 + … + 8, then 29 times 8. Rows of 4 tokens: four times each of 1 to 4, then 18 times 5 of up to 9; rows of 16:
  // sixteen times 1, six times 2.
  const u64 window = 36 + 29 * 8, chosen = 4 * (1 + 2 + 3 + 4) + 18 * 5, all = 16 + 6 * 2;
  CHECK(r.prefill.attended == 5 * window + 2 * chosen + 2 * all);
  CHECK(r.prefill.indexed == 2 * (4 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) + 2 * 9));
  CHECK(r.prefill.written == 5 * 37 + 2 * 9 + 2 * 2);
  CHECK(r.prefill.keyed_written == 2 * 9);
  CHECK(r.prefill.resident == 5 * 8 + 2 * 9 + 2 * 2);
  CHECK_FALSE(r.evicts);
}

TEST_CASE("decode steps write a compressed row when the last of its tokens comes") {
  const ModelShape s = small_v4();
  const ResidencySummary r = full_attention_summary(s, 37, 3);  // tokens 38, 39 and 40: the tenth row of 4
  CHECK(r.decode.attended == 3 * 5 * 8 + 3 * 2 * 5 + 3 * 2 * 2);
  CHECK(r.decode.indexed == 2 * (9 + 9 + 10));
  CHECK(r.decode.written == 3 * 5 + 2);
  CHECK(r.decode.keyed_written == 2);
  CHECK(r.decode.resident == 3 * 5 * 8 + 2 * (9 + 9 + 10) + 3 * 2 * 2);
  CHECK(r.peak_rows == 5 * 8 + 2 * 10 + 2 * 2);
  CHECK(r.allocated_bytes(s, DType::kBF16, false).total() == kv_bytes(s, DType::kBF16, 40).value);
  CHECK(r.allocated_bytes(s, DType::kBF16, true).elements >= r.allocated_bytes(s, DType::kBF16, false).elements);
  // A cache that quantises what has left a window of newest rows holds as many of each kind.
  const ModelShape wide = find_model_shape("deepseek-v4-flash", std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
  CHECK(full_attention_summary(wide, 9000, 0).allocated_bytes(wide, KvType::kKivi4, false).total() ==
        kv_bytes(wide, KvType::kKivi4, 9000).value);
  const StepTraffic t = mean_decode_traffic(s, {}, r, 3);  // of three sequences, so that nothing is rounded
  CHECK(t.bytes[Cause::kKvRead] == r.decode.attended * kRow + r.decode.indexed * kKey);
  CHECK(t.index_bytes == r.decode.indexed * kKey);
  CHECK(t.bytes[Cause::kKvWrite] == r.decode.written * kRow + 2 * kKey);
  CHECK(t[KernelFamily::kAttention].value == 4.0 * 2 * (16 + 16) * static_cast<double>(r.decode.attended));
  CHECK(t.index_flops.value == 3.0 * 2 * (8 + 1) * static_cast<double>(r.decode.indexed));
}

TEST_CASE("without decoded tokens the step that would follow the prompt stands for decoding") {
  const ResidencySummary next = full_attention_summary(small_v4(), 39, 0);
  CHECK(next.decode.attended == 5 * 8 + 2 * 5 + 2 * 2);
  CHECK(next.decode.indexed == 2 * 10);  // the step is the fortieth token
  CHECK(next.peak_rows == 5 * 8 + 2 * 9 + 2 * 2);
}

TEST_CASE("a token passes every matrix once, and what mixes its residual streams") {
  const ModelShape s = small_v4();
  StepWork work{1, 1, 1, {}};
  const StepTraffic t = step_traffic(s, {}, work);
  const u64 attention = 64 * 20 + 20 * 64 + 64 * 16 + 64 * 12 + 2 * 12 * 64;
  const u64 chosen = 2 * 64 * 32 + 2 * 64 * 16 + 20 * 24 + 64 * 3, all = 2 * 64 * 16;
  const u64 mlp = 64 * 6 + 2 * 3 * 64 * 24 + 3 * 64 * 24;
  // Five weights of three streams each; a mean of them, a part of the output to each, and three of three mixed.
  const u64 streams = 3 * 64 * 5 * 3 + 3 * 64 + 3 * 64 + 3 * 3 * 64;
  CHECK(t[KernelFamily::kLinear].value ==
        2.0 * static_cast<double>(5 * (attention + mlp + 2 * streams) + 2 * chosen + 2 * all + 64 * 96));
}

TEST_CASE("a recording of full attention projects on compressed rows as full attention to them") {
  const Room whole = [](std::uint32_t prompt, std::uint32_t step) { return u64{prompt} + step; };
  const ResidencySummary p = projected(1000, {64, 32}, whole), full = full_attention_summary(small_v4(), 64, 32);
  CHECK(p.prefill.attended == full.prefill.attended);
  CHECK(p.prefill.indexed == full.prefill.indexed);
  CHECK(p.prefill.written == full.prefill.written);
  CHECK(p.decode.attended == full.decode.attended);
  CHECK(p.decode.indexed == full.decode.indexed);
  CHECK(p.decode.written == full.decode.written);
  CHECK(p.decode.resident == full.decode.resident);
  CHECK(p.decode.keyed_resident == full.decode.keyed_resident);
  CHECK(p.peak_rows == full.peak_rows);
  CHECK(p.peak_keyed == full.peak_keyed);
  CHECK_FALSE(p.evicts);
}

TEST_CASE("a policy keeps its share of the compressed rows and leaves windows alone") {
  const Room half = [](std::uint32_t prompt, std::uint32_t) { return u64{prompt} / 2; };
  const ResidencySummary p = projected(8, {64, 16}, half);
  // Of 16 rows of 4 tokens 8 stay, of 4 rows of 16 tokens 2. A row comes in four of 16 steps, and in the last.
  CHECK(p.evicts);
  CHECK(p.prefill.resident == 5 * 8 + 2 * 8 + 2 * 2);
  CHECK(p.decode.resident == 16 * (5 * 8 + 2 * 8 + 2 * 2));
  CHECK(p.decode.written == 16 * 5 + 2 * 4 + 2 * 1);
  CHECK(p.decode.indexed == 2 * (4 * 9 + 12 * 8));
  CHECK(p.decode.attended == 16 * 5 * 8 + 16 * 2 * 5 + 2 * (15 * 2 + 3));
  CHECK(p.peak_rows == 5 * 8 + 2 * 9 + 2 * 3);
  CHECK(p.decode.keyed_resident == 16 * 2 * 8);
}

TEST_CASE("a prompt too short for a compressed row is projected as one that has it") {
  const Room whole = [](std::uint32_t prompt, std::uint32_t step) { return u64{prompt} + step; };
  const ResidencySummary p = projected(1000, {3, 2}, whole);
  CHECK(p.prefill.resident == 5 * 3 + 2 + 2);
  CHECK(p.decode.resident == 5 * (4 + 5) + 2 * 2 + 2 * 2);
}

}  // namespace kvroof
