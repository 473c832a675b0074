// Models whose queries read the tokens that an index chooses: sizes, traffic, projection and what they cost.
#include "sim/model/token_index.hpp"

#include <filesystem>

#include "sim/cost/cost.hpp"
#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

// One row of DeepSeek-V3.2 and GLM-5 in 16 bits, and one key of the index, which vLLM and SGLang lay out in 132 bytes.
constexpr u64 kRow = 2 * (512 + 64), kKey = 128 + 4;

ModelShape shape(const char* model) { return find_model_shape(model, kCatalog); }

CostModel cost_of(const ModelShape& model, std::uint32_t devices = 1, const char* engine = "vllm") {
  Deployment deployment(TrafficTypes{});
  deployment.tensor_parallel = devices;
  return {model, deployment, find_device("h200", kCatalog), find_engine_profile(engine, kCatalog)};
}

double attention_seconds(const CostModel& cost, std::uint32_t prompt, u64 batch) {
  return cost.predict(full_attention_summary(cost.shape(), prompt, 2), batch)
      .terms[static_cast<std::size_t>(CostTerm::kAttention)]
      .value;
}

std::string problem_with(const TokenIndex& index) {
  ModelShape s = shape("deepseek-v3.2");
  s.index = index;
  return shape_problem(s);
}

ModelConfig parsed(const std::string& text) { return parse_config_json(text).or_throw("config.json"); }

std::uint32_t choosing_layers(const std::string& keys) {
  return parsed(R"({"model_type":"glm_moe_dsa","dtype":"bfloat16","num_hidden_layers":10,)" + keys + "}")
      .shape.index.layers;
}

}  // namespace

TEST_CASE("a token of a model with an index holds a row and a key in every layer") {
  CHECK(kv_bytes_per_token(shape("deepseek-v3.2"), DType::kBF16).value == 61 * (kRow + kKey));
  CHECK(kv_bytes(shape("glm-5"), DType::kBF16, 1000).value == 1000 * 78 * (kRow + kKey));
  // Keys stay as they are where rows are in 8 bits.
  CHECK(kv_bytes_per_token(shape("glm-5"), KvType::kFp8).value == 78 * (kRow / 2 + kKey));
  ModelShape shared = shape("glm-5");
  shared.index.layers = 21;
  CHECK(kv_bytes_per_token(shared, DType::kBF16).value == 78 * kRow + 21 * kKey);
  CHECK(full_attention_summary(shared, 1000, 0).allocated_bytes(shared, DType::kBF16, false).total() ==
        1000 * (78 * kRow + 21 * kKey));
}

TEST_CASE("published configurations with an index are those of the catalog") {
  // What transformers 5.24 leaves out of the files of these classes is as in the published models.
  for (const auto& [type, name] : {std::pair{"deepseek_v32", "deepseek-v3.2"}, {"glm_moe_dsa", "glm-5"}}) {
    const ModelConfig config = parsed(std::string(R"({"dtype":"bfloat16","model_type":")") + type + "\"}");
    ModelShape expected = shape(name);
    expected.name = config.shape.name;
    CHECK(shape_to_json(config.shape) == shape_to_json(expected));
    CHECK_THAT(config.options.cannot_run, ContainsSubstring("tokens that an index chooses"));
  }
}

TEST_CASE("a file says which layers of GLM-5 choose tokens and which share the choice") {
  CHECK(choosing_layers(R"("index_topk":64)") == 10);
  // By hand of the schedule: layers 0 and 1, then each fourth: 5 and 9.
  CHECK(choosing_layers(R"("index_topk_freq":4)") == 4);
  CHECK(choosing_layers(R"("index_topk_freq":4,"index_skip_topk_offset":4)") == 5);
  CHECK(choosing_layers(R"("index_topk_pattern":"FFSSSFSSSF")") == 4);
  CHECK(choosing_layers(R"("indexer_types":["full","shared","shared","shared","shared","shared","shared","shared",)"
                        R"("shared","full"],"index_topk_freq":4)") == 2);
  const auto refusal = parse_config_json(R"({"model_type":"glm_moe_dsa","num_hidden_layers":4,)"
                                         R"("index_topk_pattern":"SFSS"})");
  REQUIRE(!refusal);
  CHECK_THAT(refusal.error(), ContainsSubstring("and the first to choose"));
}

TEST_CASE("sizes of an index that no model can have are named") {
  CHECK(problem_with({}).empty());
  CHECK_THAT(problem_with({0, 128, 0, 0}), ContainsSubstring("index_heads is not"));
  CHECK_THAT(problem_with({64, 0, 2048, 61}), ContainsSubstring("index_dim"));
  CHECK_THAT(problem_with({64, 128, 0, 61}), ContainsSubstring("index_tokens is 0"));
  CHECK_THAT(problem_with({64, 128, 2048, 62}), ContainsSubstring("expected 1 to the 61 that attend"));
  ModelShape plain = shape("llama-3-8b");
  plain.index = {64, 128, 2048, 32};
  CHECK_THAT(shape_problem(plain), ContainsSubstring("latent_rank or latent_q_rank is 0"));
}

TEST_CASE("a decode step reads the keys of all tokens and the rows of those that a query may read") {
  const ModelShape s = shape("deepseek-v3.2");
  for (const u64 context : {u64{100}, u64{2048}, u64{2049}, u64{100000}}) {
    INFO(context);
    const auto prompt = static_cast<std::uint32_t>(context - 1);
    const StepTraffic t = mean_decode_traffic(s, {}, full_attention_summary(s, prompt, 1), 3);
    const u64 rows = std::min<u64>(context, 2048);
    CHECK(t.bytes[Cause::kKvRead] == 3 * 61 * (rows * kRow + context * kKey));
    CHECK(t.index_bytes == 3 * 61 * context * kKey);
    CHECK(t.bytes[Cause::kKvWrite] == 3 * 61 * (kRow + kKey));
    CHECK(t[KernelFamily::kAttention].value == 3.0 * 61 * static_cast<double>(rows) * 128 * 2 * (576 + 512));
    // 64 heads multiply each key, and their scores are weighed and summed.
    CHECK(t.index_flops.value == 3.0 * 61 * static_cast<double>(context) * 64 * 2 * (128 + 1));
  }
}

TEST_CASE("queries of a prompt read what there is, up to what an index lets them") {
  const ModelShape s = shape("deepseek-v3.2");
  const ResidencySummary r = full_attention_summary(s, 3000, 0);
  CHECK(r.prefill.indexed == u64{61} * 3000 * 3001 / 2);
  CHECK(r.prefill.attended == u64{61} * (u64{2048} * 2049 / 2 + u64{952} * 2048));
}

TEST_CASE("an index that lets queries read every token reads what attention without one does, and the keys") {
  ModelShape with = shape("deepseek-v3.2"), without = with;
  with.index.tokens = 1U << 20;
  without.index = {};
  const auto read = [](const ModelShape& s) {
    return mean_decode_traffic(s, {}, full_attention_summary(s, 5000, 7), 2).bytes[Cause::kKvRead];
  };
  const u64 contexts = 5001 + 5002 + 5003 + 5004 + 5005 + 5006 + 5007;
  CHECK(read(with) - read(without) == 2 * 61 * contexts * kKey / 7);
}

TEST_CASE("each of the tokens that a step verifies reads rows of its own, and all share the keys") {
  const ModelShape s = shape("deepseek-v3.2");
  const ResidencySummary r = full_attention_summary(s, 9999, 1);
  const StepTraffic t = mean_decode_traffic(s, {}, r, 1, {3, 2.0});
  CHECK(t.index_bytes == 61 * (10000 + 2) * kKey);
  CHECK(t.bytes[Cause::kKvRead] - t.index_bytes >= 61 * 3 * 2048 * kRow);
  CHECK(t.bytes[Cause::kKvRead] - t.index_bytes <= 61 * 3 * (2048 + 1) * kRow);
}

TEST_CASE("a recording of full attention projects on a model with an index as full attention there") {
  const ModelShape s = shape("glm-5");
  ModelShape small;
  small.layers = 2;
  small.heads = small.kv_heads = 1;
  small.head_dim = small.v_head_dim = 8;
  Residency r;
  r.prompt = 16;
  r.steps = 8;
  r.layers = 2;
  r.storage_heads = r.kv_heads = 1;
  r.cells.resize(9 * 2);
  for (std::uint32_t step = 0; step <= 8; ++step) {
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      LayerCounts& c = r.at(step, layer);
      c.resident = c.allocated = c.attended = 16 + step;
      c.written = step == 0 ? 16 : 1;
      if (step == 0) c.attended = 16 * 17 / 2;
    }
  }
  const Room all = [](std::uint32_t prompt, std::uint32_t step) { return u64{prompt} + step; };
  const ResidencySummary projected = summarise(project(r, small, s, {4000, 32}, all));
  const ResidencySummary expected = full_attention_summary(s, 4000, 32);
  CHECK(projected.decode.attended == expected.decode.attended);
  CHECK(projected.decode.indexed == expected.decode.indexed);
  CHECK(projected.prefill.attended == expected.prefill.attended);
  CHECK(projected.prefill.indexed == expected.prefill.indexed);
  CHECK(projected.peak_rows == expected.peak_rows);
  // And where nothing was decoded, in the step that would follow.
  const ResidencySummary next = summarise(project(r, small, s, {4000, 0}, all));
  CHECK(next.decode.attended == u64{78} * 2048);
  CHECK(next.decode.indexed == u64{78} * 4001);
}

TEST_CASE("memory of a batch holds rows and keys, and so does what drafts beside it") {
  const ModelShape s = shape("deepseek-v3.2");
  const CostModel cost = cost_of(s, 8);
  const ResidencySummary r = full_attention_summary(s, 4096, 0);
  CHECK(cost.memory().ledger(r, 5).kv_allocated.value == 5 * 61 * 4096 * (kRow + kKey));
  Deployment drafting(TrafficTypes{});
  drafting.tensor_parallel = 8;
  drafting.speculation = Speculation{1, 0.8, mtp_draft(s)};
  const CostModel with_draft(s, drafting, find_device("h200", kCatalog), find_engine_profile("vllm", kCatalog));
  CHECK(with_draft.memory().draft_cache_bytes(1000) == Approx(1000.0 * (kRow + kKey)));
  // One layer more that chooses takes about a 61st of what all of them do, and not a layer that reads everything.
  const ResidencySummary deep = full_attention_summary(s, 100000, 1);
  const double all = cost.prefill(deep, 1).value;
  CHECK(with_draft.prefill(deep, 1).value < all * (1 + 2.0 / 61));
}

TEST_CASE("a cache that is not quantised is told as one, although the keys of an index beside it have scales") {
  const ModelShape model = shape("deepseek-v3.2");
  const MemoryLedger ledger = cost_of(model, 8).memory().ledger(full_attention_summary(model, 4096, 2), 4);
  CHECK(ledger.kv_allocated.value > 0);
  CHECK(ledger.kv_scales.value == 0);
  Deployment coded(TrafficTypes{});
  coded.types.kv = KvType::kInt8;
  coded.tensor_parallel = 8;
  const CostModel eight(model, coded, find_device("h200", kCatalog), find_engine_profile("vllm", kCatalog));
  CHECK(eight.memory().ledger(full_attention_summary(model, 4096, 2), 4).kv_scales.value > 0);
}

TEST_CASE("attention to chosen tokens takes as long for any context that is longer, but for their keys") {
  const CostModel cost = cost_of(shape("deepseek-v3.2"), 8);
  ModelShape whole = shape("deepseek-v3.2");
  whole.index = {};
  const double more = attention_seconds(cost, 100000, 32) - attention_seconds(cost, 50000, 32);
  // H200 moves 4.8 TB/s at most.
  CHECK(more > 50000.0 * 32 * 61 * kKey / 4.8e12);
  const CostModel dense = cost_of(whole, 8);
  CHECK(more < 0.3 * (attention_seconds(dense, 100000, 32) - attention_seconds(dense, 50000, 32)));
}

TEST_CASE("kernels of chosen tokens compute 64 heads where devices have fewer") {
  const ModelShape s = shape("deepseek-v3.2");
  const auto seconds = [&](std::uint32_t devices) { return attention_seconds(cost_of(s, devices), 4096, 256); };
  CHECK(seconds(1) > 1.2 * seconds(2));
  CHECK(seconds(4) == Approx(seconds(2)));
  CHECK(seconds(8) == Approx(seconds(2)));
}

TEST_CASE("a prompt within what queries may read is attended to whole where an engine says so") {
  const auto seconds = [&](std::uint32_t prompt, bool whole) {
    EngineProfile engine = find_engine_profile("vllm", kCatalog);
    engine.short_prompts_whole = whole;
    Deployment deployment(TrafficTypes{});
    deployment.tensor_parallel = 8;
    const CostModel cost(shape("deepseek-v3.2"), deployment, find_device("h200", kCatalog), engine);
    return cost.prefill(full_attention_summary(cost.shape(), prompt, 1), 16).value;
  };
  CHECK(seconds(2048, true) < seconds(2048, false));
  CHECK(seconds(2049, true) == seconds(2049, false));
}

}  // namespace kvroof
