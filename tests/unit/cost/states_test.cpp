// What layers cost that hold a state in place of a cache.
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape shape(const char* model) { return find_model_shape(model, kCatalog); }

// The engine keeps states beside rows, each in memory of its own.
CostModel cost_of(const char* model, const char* device, const Deployment& deployment,
                  const char* engine = "graphs") {
  return {shape(model), deployment, find_device(device, kCatalog), find_engine_profile(engine, kCatalog)};
}

Deployment over(std::uint32_t devices, std::uint32_t stages = 1) {
  Deployment deployment(TrafficTypes{});
  deployment.tensor_parallel = devices;
  deployment.stages = stages;
  return deployment;
}

ResidencySummary work(const CostModel& cost, std::uint32_t prompt, std::uint32_t output = 8) {
  return full_attention_summary(cost.shape(), prompt, output);
}

std::uint64_t states_of(const char* model) { return state_bytes(shape(model), DType::kBF16).value; }

}  // namespace

TEST_CASE("a step reads the state of each sequence and writes it, and drafted tokens each write one") {
  const ModelShape s = shape("qwen3-next-80b-a3b");
  const ResidencySummary r = full_attention_summary(s, 100, 8);
  const auto bytes = [&](StepTokens tokens) { return mean_decode_traffic(s, {}, r, 5, tokens).state_bytes; };
  CHECK(bytes({}) == 5 * 2 * states_of("qwen3-next-80b-a3b"));
  CHECK(bytes({4, 2.5}) == 5 * (1 + 4) * states_of("qwen3-next-80b-a3b"));
  CHECK(mean_decode_traffic(shape("llama-3-8b"), {}, full_attention_summary(shape("llama-3-8b"), 100, 8), 5)
            .state_bytes == 0);
}

TEST_CASE("a step of one token reads all weights but the rows of the embedding of other tokens") {
  // Parameters as transformers counts them; LFM2's head is its embedding. Of Mamba-2 three numbers of each of 128 heads
  // are in 32 bits, in 27 layers.
  const auto weights = [](const char* model) {
    const ModelShape s = shape(model);
    return mean_decode_traffic(s, {}, full_attention_summary(s, 100, 8), 1).bytes[Cause::kWeights];
  };
  const std::uint64_t exact = 27 * 3 * 128;
  CHECK(weights("nemotron-nano-9b-v2") ==
        2 * (std::uint64_t{8888227328} - std::uint64_t{131072} * 4480 + 4480 + exact));
  CHECK(weights("lfm2-1.2b") == 2 * (std::uint64_t{1170340608} + 2048));
}

TEST_CASE("a prompt's states pass memory between pieces of 64 tokens, and are written at its end") {
  const StepWork short_one = prompt_work(1, 64, 1, {}), two = prompt_work(1, 65, 1, {});
  CHECK(short_one.recurrent_reads == 0);
  CHECK(short_one.recurrent_writes == 1);
  CHECK(two.recurrent_reads == 1);
  CHECK(two.recurrent_writes == 2);
  CHECK(prompt_work(4, 4, 1, {}).recurrent_writes == 4);
  // A thousand tokens are read by one layer's 5 · 64 · 64 · 128 operations each, in 23 layers.
  const ModelShape s = shape("nemotron-3-nano-30b-a3b");
  CHECK(step_traffic(s, {}, prompt_work(1, 1000, 2, {})).state_flops.value ==
        1000.0 * 23 * (5 * 64 * 64 * 128 + 2 * 4 * 6144));
}

TEST_CASE("sequences hold their states beside their cache, whatever their length and the policy") {
  const CostModel cost = cost_of("qwen3.5-27b", "h200", over(1));
  const std::uint64_t each = states_of("qwen3.5-27b");
  CHECK(cost.memory().ledger(work(cost, 100), 7).states.value == 7 * each);
  CHECK(cost.memory().ledger(work(cost, 100000), 7).states.value == 7 * each);
  ResidencySummary evicted = work(cost, 100000);
  evicted.evicts = true;
  evicted.peak_rows /= 10;
  CHECK(cost.memory().ledger(evicted, 7).states.value == 7 * each);
  // What a prefix cache keeps of a prompt are its rows alone.
  CHECK(cost.memory().prompt_bytes(1000) == 1000.0 * 65536);
}

TEST_CASE("devices share the heads of states, and stages their layers") {
  const std::uint64_t each = states_of("qwen3.5-27b");
  const auto states = [](const Deployment& deployment) {
    const CostModel cost = cost_of("qwen3.5-27b", "h200", deployment);
    return cost.memory().ledger(work(cost, 100), 3).states.value;
  };
  CHECK(states(over(4)) == 3 * each / 4);
  CHECK(states(over(1, 2)) == 3 * each / 2);
  CHECK(deployment_problem(shape("minimax-text-01"), over(64)).empty());
  ModelShape odd = shape("qwen3.5-27b");
  odd.heads = 32;
  CHECK(deployment_problem(odd, over(32)) == "48 heads of states cannot be spread over 32 devices");
  // Nemotron 3's 64 heads share 8 groups; Granite's 128 share one, which each device has.
  CHECK(deployment_problem(shape("nemotron-3-nano-30b-a3b"), over(16)) ==
        "8 heads of states cannot be spread over 16 devices");
  CHECK(deployment_problem(shape("granite-4.0-h-small"), over(16)).empty());
}

TEST_CASE("updates of states take what vLLM's kernel was measured at, within a fifth") {
  // Microseconds for 32, 128, 512 and 1,024 sequences of Qwen3-Next's 16 heads a device, vllm-project/vllm #31722.
  const CostModel cost = cost_of("qwen3-next-80b-a3b", "h200", over(2));
  const std::pair<std::uint64_t, double> measured[] = {{32, 20.29}, {128, 59.17}, {512, 212.7}, {1024, 420.22}};
  for (const auto& [sequences, us] : measured) {
    INFO(sequences);
    CHECK(1e6 * cost.state_call(Bytes(sequences * 16 * 128 * 128 * 2)).value == Approx(us).epsilon(0.2));
  }
}

TEST_CASE("with many short sequences most of a step goes to states") {
  // A server of Nemotron Nano 9B v2 on a B200 was seen to make 11,900 tokens a second at most.
  const CostModel cost = cost_of("nemotron-nano-9b-v2", "b200", over(1));
  const Prediction p = cost.predict(work(cost, 128, 256), 512);
  CHECK(p.limited_by == Limit::kStates);
  CHECK(p.tokens_per_s.value == Approx(11900).epsilon(0.25));
  CHECK(cost.predict(work(cost, 128, 256), 1).limited_by == Limit::kWeights);
  // 27 layers of 128 matrices of 80 x 128 in 32 bits and three rows of 12,288 channels, read and written at 0.6 of
  // 0.857 of 7.7 TB/s, for each of 64 sequences more.
  const auto attention = [&](std::uint64_t batch) {
    return cost.predict(work(cost, 128), batch).terms[static_cast<std::size_t>(CostTerm::kAttention)].value;
  };
  const double bytes = 64.0 * 2 * 27 * (128 * 80 * 128 * 4 + 3 * 12288 * 2);
  const double cache = 64.0 * 4 * 8 * 2 * 128 * 2 * 133;
  const double rate = find_device("b200", kCatalog).bandwidth().value * 0.857;
  CHECK(attention(192) - attention(128) == Approx(bytes / (0.6 * rate) + cache / rate).epsilon(0.03));
}

TEST_CASE("a hybrid's draft of one layer attends and holds no state") {
  const ModelShape s = shape("qwen3-next-80b-a3b");
  Deployment deployment = over(4);
  deployment.speculation = Speculation{2, 0.8, mtp_draft(s)};
  const CostModel drafting(s, deployment, find_device("h200", kCatalog), find_engine_profile("graphs", kCatalog));
  const CostModel plain = cost_of("qwen3-next-80b-a3b", "h200", over(4));
  // Any of the verified tokens may be the last that stays.
  const auto states = [&](const CostModel& cost) { return cost.memory().ledger(work(plain, 100), 5).states.value; };
  CHECK(states(drafting) == 3 * states(plain));
  const std::uint64_t row = 2 * 256 * 2 * 2;
  CHECK(drafting.memory().draft_cache_bytes(1000) == Approx(1000.0 * static_cast<double>(row) / 2));
}

TEST_CASE("a hybrid that drafts for another holds states of its own") {
  Deployment deployment = over(1);
  deployment.speculation = Speculation{1, 0.8, model_draft(shape("qwen3.5-9b"), "qwen3.5-9b")};
  const CostModel drafting(shape("qwen3.5-27b"), deployment, find_device("h200", kCatalog),
                           find_engine_profile("graphs", kCatalog));
  const std::uint64_t both = states_of("qwen3.5-27b") + states_of("qwen3.5-9b");
  CHECK(drafting.memory().ledger(work(drafting, 100), 3).states.value == 3 * 2 * both);
}

TEST_CASE("an engine that keeps states in 32 bits does so whatever the checkpoint names") {
  const auto states = [](const char* engine) {
    const CostModel cost = cost_of("qwen3-next-80b-a3b", "h200", over(4), engine);
    return cost.memory().ledger(work(cost, 100), 4).states.value;
  };
  CHECK(states("graphs") == 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 2));
  CHECK(states("sglang") == 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 4));
}

TEST_CASE("vLLM keeps rows and states in pages of one size, and groups of layers take theirs together") {
  // Nemotron 3 Nano: a state has 2,134,016 bytes, the rows of a token in one layer 1,024: pages of 2,096 tokens. Six
  // layers attend and 23 hold states, which are four groups of six.
  const CostModel cost = cost_of("nemotron-3-nano-30b-a3b", "h200", over(1), "vllm");
  const auto ledger = [&](std::uint32_t prompt) { return cost.memory().ledger(work(cost, prompt, 8), 1); };
  const std::uint64_t page = 2096 * 1024;
  CHECK(states_of("nemotron-3-nano-30b-a3b") == 23 * 2134016);
  CHECK(ledger(100).states.value == 24 * page);
  CHECK(ledger(100).kv_allocated.value == 6 * page);
  CHECK(ledger(2096).kv_allocated.value == 2 * 6 * page);
  const CostModel llama = cost_of("llama-3-8b", "h200", over(1), "vllm");
  CHECK(llama.memory().ledger(work(llama, 100), 1).states.value == 0);
}

TEST_CASE("a page of a device holds the rows of as many tokens as the device's part of a state has bytes") {
  // Nemotron 3 Super over eight devices: each has one of the two KV heads, whose rows take 512 bytes a token, and an
  // eighth of a state, 531,968 bytes: pages of 1,040 tokens. Eight layers attend.
  const CostModel cost = cost_of("nemotron-3-super-120b", "h100-sxm", over(8), "vllm");
  CHECK(state_bytes(shape("nemotron-3-super-120b").state, 4096, DType::kBF16) == 8 * 531968);
  CHECK(cost.memory().ledger(work(cost, 1000, 200), 1).kv_allocated.value == 8 * 2 * 1040 * 512);
  CHECK(cost.memory().ledger(work(cost, 1000, 30), 1).kv_allocated.value == 8 * 1 * 1040 * 512);
}

TEST_CASE("sums over devices come after each mixer and each MLP, also where these are layers by themselves") {
  // 29 mixers and 23 MLPs of Nemotron 3 Nano; tokens go to narrower experts of Nemotron 3 Super.
  const auto links = [](const char* model, const Deployment& deployment, std::uint64_t batch) {
    const CostModel cost = cost_of(model, "h100-sxm", deployment);
    return cost.predict(work(cost, 64), batch).terms[static_cast<std::size_t>(CostTerm::kLinks)].value;
  };
  const double nano = links("nemotron-3-nano-30b-a3b", over(2), 1), llama = links("llama-3-8b", over(2), 1);
  CHECK(nano / llama == Approx((29.0 + 23) / (2 * 32)).epsilon(0.02));
}

}  // namespace kvroof
