// Times and memory of a deployment, against the cost model that they are made of.
#include "sim/serving/serving_costs.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape llama() { return find_model_shape("llama-3-8b", kCatalog); }

// Full attention, or what holds `limit` tokens of each head at most.
LengthProfile profile_of(std::uint32_t prompt, std::uint32_t output, std::uint32_t limit = UINT32_MAX) {
  const ModelShape shape = llama();
  const Residency r =
      synthetic::budgeted({prompt, output}, shape.layers, shape.kv_heads, std::min(prompt, limit), limit);
  std::vector<LayerCounts> steps;
  for (std::uint32_t step = 1; step <= output; ++step) {
    steps.push_back(sum_counts({&r.at(step, 0), shape.layers}));
  }
  return length_profile(summarise(r), steps);
}

struct Served {
  explicit Served(std::vector<LengthProfile> of_length)
      : cost(llama(), Deployment(TrafficTypes{}), find_device("h100-sxm", kCatalog),
             find_engine_profile("kvroof", kCatalog)),
        profiles(std::move(of_length)),
        costs(cost, profiles, {}) {}
  [[nodiscard]] double decode(std::vector<Decoding> sequences) const { return costs.step_seconds(sequences, {}); }
  [[nodiscard]] double prompts(std::vector<PromptPart> parts) const { return costs.step_seconds({}, parts); }

  CostModel cost;
  std::vector<LengthProfile> profiles;
  DeploymentCosts costs;
};

TEST_CASE("a step of sequences of one age is the cost model's step of that batch at that age") {
  const Served served({profile_of(1000, 100)});
  ResidencySummary at = served.profiles[0].mean;
  at.decode = served.profiles[0].steps[39];  // the fortieth decode step: 1,040 tokens a head
  at.decode_steps = 1;
  CHECK(at.attended_rows() == Approx(1040.0 * 32 * 8));
  for (const std::size_t batch : {1U, 7U, 64U}) {
    const std::vector<Decoding> sequences(batch, Decoding{1000, 40});
    CHECK(served.decode(sequences) == Approx(served.cost.predict(at, batch).step.value).epsilon(1e-6));
  }
}

TEST_CASE("sequences of several lengths take as long together as as many of their mean length") {
  const Served served({profile_of(500, 10), profile_of(1000, 10), profile_of(1500, 10)});
  CHECK(served.decode({{500, 5}, {1500, 5}}) == Approx(served.decode({{1000, 5}, {1000, 5}})).epsilon(1e-4));
  CHECK(served.decode({{500, 5}}) < served.decode({{1500, 5}}));
}

TEST_CASE("as many sequences at their largest fit the cache's memory as the cost model's largest batch") {
  for (const std::uint32_t limit : {UINT32_MAX, 512U}) {
    const Served served({profile_of(1000, 200, limit)});
    const double one = served.costs.cache_bytes({1000, 200});
    const auto fits = static_cast<std::uint64_t>(served.costs.cache_capacity() / one);
    const std::uint64_t largest = served.cost.memory().largest_batch(served.profiles[0].mean);
    CHECK(static_cast<double>(fits) == Approx(static_cast<double>(largest)).epsilon(0.02));
  }
  const Served full({profile_of(1000, 200)});
  // Rows of k and v of a token, of 32 layers and 8 heads of 128 in 2 bytes, are 128 KiB.
  CHECK(full.costs.cache_bytes({1000, 1}) == Approx(1001.0 * 131072).epsilon(0.002));
  CHECK(full.costs.cache_bytes({1000, 200}) == Approx(1200.0 * 131072).epsilon(0.002));
}

TEST_CASE("what drafts holds a row for each token of a sequence, of a block, and of a cache that moves") {
  Deployment drafted{TrafficTypes{}};
  drafted.speculation = Speculation{3, 0.5, model_draft(find_model_shape("llama-3.2-1b", kCatalog), "llama-3.2-1b")};
  const CostModel cost(llama(), drafted, find_device("h100-sxm", kCatalog), find_engine_profile("kvroof", kCatalog));
  // A policy that keeps 512 tokens: the draft keeps all, 32 KiB a token.
  const std::vector<LengthProfile> profiles = {profile_of(1000, 200, 512)};
  const Served plain(profiles);
  const DeploymentCosts costs(cost, profiles, {});
  const double drafted_rows = 3.0 * 131072;  // of the target
  CHECK(costs.cache_bytes({1000, 200}) - plain.costs.cache_bytes({1000, 200}) ==
        Approx(1203.0 * 32768 + drafted_rows).epsilon(1e-3));
  CHECK(costs.moved_bytes(1000) - plain.costs.moved_bytes(1000) == Approx(1000.0 * 32768 + drafted_rows).epsilon(0.02));
  CHECK(cost.memory().prompt_bytes(1000) == 1000.0 * (131072 + 32768));
  const auto fits = static_cast<double>(cost.memory().largest_batch(profiles[0].mean));
  CHECK(std::floor(costs.cache_capacity() / costs.cache_bytes({1000, 200})) == Approx(fits).epsilon(0.02));
}

TEST_CASE("sequences that draft take a step of the cost model with the ages that they have") {
  Deployment drafted{TrafficTypes{}};
  drafted.speculation = Speculation{3, 0.5, model_draft(find_model_shape("llama-3.2-1b", kCatalog), "llama-3.2-1b")};
  const CostModel cost(llama(), drafted, find_device("h100-sxm", kCatalog), find_engine_profile("kvroof", kCatalog));
  const std::vector<LengthProfile> profiles = {profile_of(1000, 100)};
  const DeploymentCosts costs(cost, profiles, {});
  // The fortieth decode step: 1,040 tokens, in the target's rows as in those of the draft.
  const ResidencySummary at = full_attention_summary(llama(), 1039, 1);
  CHECK(costs.step_seconds(std::vector<Decoding>(8, Decoding{1000, 40}), {}) ==
        Approx(cost.predict(at, 8).step.value).epsilon(1e-6));
}

TEST_CASE("a prompt's blocks take the rows of its tokens on each device, and windows hide some") {
  const Device device = find_device("h100-sxm", kCatalog);
  const EngineProfile vllm = find_engine_profile("vllm", kCatalog);
  Deployment two{TrafficTypes{}};
  two.tensor_parallel = 2;
  CHECK(CostModel(llama(), Deployment(TrafficTypes{}), device, vllm).memory().prompt_bytes(1000) == 1000.0 * 131072);
  CHECK(CostModel(llama(), two, device, vllm).memory().prompt_bytes(1000) == 1000.0 * 65536);
  ModelShape windowed = llama();
  windowed.layer_windows.assign(32, 0);
  std::fill_n(windowed.layer_windows.begin(), 16, 100);
  CHECK(CostModel(windowed, Deployment(TrafficTypes{}), device, vllm).memory().prompt_bytes(1000) == 550.0 * 131072);
  // A prompt is taken for the nearest profile.
  const Served served({profile_of(500, 10), profile_of(1000, 10)});
  CHECK(served.costs.taken_for(510) == 500);
  CHECK(served.costs.taken_for(900) == 1000);
}

TEST_CASE("a prompt alone takes the cost model's time, two in a step about twice that, in parts a little more") {
  const Served served({profile_of(16, 2), profile_of(1024, 2), profile_of(2048, 2), profile_of(4096, 2)});
  const double whole = served.prompts({{0, 4096}});
  CHECK(whole == Approx(served.cost.prefill(served.profiles[3].mean, 1).value));
  CHECK(served.prompts({{0, 16}, {0, 16}}) < 1.2 * served.prompts({{0, 16}}));
  const double two = served.prompts({{0, 4096}, {0, 4096}});
  CHECK(two == Approx(2 * whole).epsilon(0.03));  // arithmetic is most of it
  const double parts = served.prompts({{0, 2048}}) + served.prompts({{2048, 4096}});
  CHECK(parts > whole);
  CHECK(parts < 1.2 * whole);
  // The second half meets the keys of the first as well.
  CHECK(served.prompts({{2048, 4096}}) > served.prompts({{0, 2048}}));
}

TEST_CASE("parts of prompts in one step take what the tokens of all take together, whatever prompts they are of") {
  const Served served({profile_of(16, 2), profile_of(1024, 2), profile_of(2048, 2), profile_of(4096, 2)});
  const double whole = served.prompts({{0, 4096}});
  CHECK(served.prompts({{0, 2048}, {2048, 4096}}) == Approx(whole).epsilon(0.005));
  CHECK(served.prompts({{0, 1000}, {1000, 4000}, {4000, 4096}}) == Approx(whole).epsilon(0.005));
  // Attention is (n + 1) / 2 rows a token, also between the profiles: 3,000 are as a third of 1,500 and 1,500 more.
  CHECK(served.prompts({{0, 1500}, {1500, 3000}}) == Approx(served.prompts({{0, 3000}})).epsilon(0.005));
}

TEST_CASE("a part of a prompt has the draft's keys of all tokens before it, as it has the target's") {
  Deployment drafted{TrafficTypes{}};
  drafted.speculation = Speculation{3, 0.5, model_draft(find_model_shape("llama-3.2-1b", kCatalog), "llama-3.2-1b")};
  const CostModel cost(llama(), drafted, find_device("h100-sxm", kCatalog), find_engine_profile("kvroof", kCatalog));
  const std::vector<LengthProfile> profiles = {profile_of(16, 2), profile_of(16384, 2), profile_of(32768, 2)};
  const DeploymentCosts costs(cost, profiles, {});
  const auto seconds = [&](std::vector<PromptPart> parts) { return costs.step_seconds({}, parts); };
  const double whole = seconds({{0, 32768}});
  CHECK(whole == Approx(cost.prefill(profiles[2].mean, 1).value));
  CHECK(seconds({{0, 16384}, {16384, 32768}}) == Approx(whole).epsilon(0.005));
}

// SGLang's host takes longer over a short prompt than the device does: nothing that is gained there is gained twice.
TEST_CASE("a step of many short prompts computes no faster than the device can, under any engine") {
  const Device device = find_device("h100-sxm", kCatalog);
  const ModelShape shape = llama();
  const double of_token = 2 * static_cast<double>(layers_parameters(shape));
  for (const std::string engine : {"kvroof", "sglang", "tensorrt-llm", "vllm"}) {
    const CostModel cost(shape, Deployment(TrafficTypes{}), device, find_engine_profile(engine, kCatalog));
    const std::vector<LengthProfile> profiles = {profile_of(16, 2), profile_of(256, 2), profile_of(512, 2)};
    const DeploymentCosts costs(cost, profiles, {});
    for (const std::uint32_t tokens : {16U, 256U, 300U, 512U}) {
      INFO(engine << ", " << tokens);
      const std::vector<PromptPart> many(8192 / tokens, PromptPart{0, tokens});
      const double all = static_cast<double>(many.size()) * tokens * of_token;
      CHECK(all / costs.step_seconds({}, many) < device.peak(DType::kBF16).value);
    }
  }
}

TEST_CASE("a prompt beside answers does not read the weights again") {
  const Served served({profile_of(16, 100), profile_of(2048, 100)});
  const std::vector<Decoding> answers(32, Decoding{2048, 50});
  const double alone = served.decode(answers);
  const std::vector<PromptPart> little = {{0, 16}}, long_one = {{0, 2048}};
  CHECK(served.costs.step_seconds(answers, little) < alone + 0.06 * served.prompts(little));
  const double beside = served.costs.step_seconds(answers, long_one);
  CHECK(beside < alone + served.prompts({{0, 2048}}));
  CHECK(beside > alone + 0.5 * served.prompts({{0, 2048}}));
}

TEST_CASE("profiles are of each length where these are few, else of such within a ratio, with powers of two between") {
  CHECK(profiled_lengths({100, 100, 100}, 1.05, 200) == std::vector<std::uint32_t>{16, 32, 64, 100});
  CHECK(profiled_lengths({64, 65, 70}, 1.05, 200) == std::vector<std::uint32_t>{16, 32, 64, 70});
  std::vector<std::uint32_t> many;
  for (std::uint32_t i = 1; i <= 4000; ++i) many.push_back(i);
  const std::vector<std::uint32_t> lengths = profiled_lengths(many, 1.05, 200);
  CHECK(lengths.size() <= 200);
  CHECK(lengths.back() == 4000);
  CHECK(profiled_lengths(many, 1.05, 20).size() <= 20 + 8);
}

TEST_CASE("late steps share means, early ones are kept, whatever the longest answer is") {
  const LengthProfile profile = profile_of(10, 1000);
  REQUIRE(profile.steps.size() == 256 + 128 + 122);  // of 1, 2 and 4 steps
  const std::uint64_t heads = 32 * 8;
  CHECK(profile.steps[0].attended == heads * 11);
  CHECK(profile.steps[255].attended == heads * 266);
  CHECK(profile.steps[256].attended == heads * (267 + 268) / 2);  // steps 257 and 258
  CHECK(profile.steps[384].attended == heads * (523 + 526) / 2);  // steps 513 to 516
  CHECK(profile_of(10, 3).steps.size() == 3);
}

TEST_CASE("one long answer changes neither the memory of others nor their steps") {
  const Served few({profile_of(100, 50)}), many({profile_of(100, 20000)});
  CHECK(many.costs.cache_bytes({100, 50}) == Approx(few.costs.cache_bytes({100, 50})).epsilon(0.01));
  CHECK(many.decode({{100, 50}}) == Approx(few.decode({{100, 50}})).epsilon(0.001));
  CHECK(many.costs.cache_bytes({100, 9000}) == Approx(9100.0 * 131072).epsilon(0.01));
}

// A sequence of full attention whose steps are all as the mean one.
LengthProfile mean_profile(const ModelShape& shape, std::uint32_t prompt, std::uint32_t output) {
  ResidencySummary mean = full_attention_summary(shape, prompt, output);
  const LayerCounts step = mean.decode / std::max<std::uint64_t>(mean.decode_steps, 1);
  return {std::move(mean), {step}};
}

Deployment over(std::uint32_t tensor, std::uint32_t stages, std::uint32_t groups) {
  Deployment deployment{TrafficTypes{DType::kBF16, DType::kBF16}};
  deployment.tensor_parallel = tensor;
  deployment.stages = stages;
  deployment.data_parallel = groups;
  deployment.expert_parallel = tensor * groups;
  return deployment;
}

TEST_CASE("a batch of a group takes the cost model's step with as many sequences in every group, and so do prompts") {
  const ModelShape shape = find_model_shape("qwen3-30b-a3b", kCatalog);
  const CostModel cost(shape, over(1, 1, 4), find_device("h100-sxm", kCatalog), find_engine_profile("vllm", kCatalog));
  const std::vector<LengthProfile> profiles = {mean_profile(shape, 8000, 50)};
  const DeploymentCosts costs(cost, profiles, {});
  for (const std::size_t batch : {1U, 7U, 64U}) {
    const std::vector<Decoding> sequences(batch, Decoding{8000, 25});
    ResidencySummary at = profiles[0].mean;
    at.context = 8025;
    CHECK(costs.step_seconds(sequences, {}) == Approx(cost.predict(at, 4 * batch).step.value).epsilon(1e-3));
  }
  const std::vector<PromptPart> prompt = {{0, 8000}};
  CHECK(costs.step_seconds({}, prompt) == cost.prefill(profiles[0].mean, 4).value);
  // Each group has room for a quarter of what all have.
  const double fits = costs.cache_capacity() / costs.cache_bytes({8000, 50});
  CHECK(4 * fits == Approx(static_cast<double>(cost.memory().largest_batch(profiles[0].mean))).epsilon(0.02));
}

TEST_CASE("a prompt of one group costs beside answers what it costs alone, though other groups have none") {
  const ModelShape shape = find_model_shape("qwen3-30b-a3b", kCatalog);
  const CostModel cost(shape, over(1, 1, 8), find_device("h100-sxm", kCatalog), find_engine_profile("vllm", kCatalog));
  const std::vector<LengthProfile> profiles = {mean_profile(shape, 16, 50), mean_profile(shape, 128, 50),
                                               mean_profile(shape, 1024, 50)};
  const DeploymentCosts costs(cost, profiles, {});
  const std::vector<Decoding> answers(4, Decoding{1024, 25});
  for (const std::uint32_t tokens : {64U, 128U, 256U, 1024U}) {
    INFO(tokens);
    const std::vector<PromptPart> prompt = {{0, tokens}};
    const GroupFill lone{1, 1.0 / 8};
    const double both = costs.step_seconds(answers, prompt, lone);
    CHECK(both > costs.step_seconds(answers, {}, lone));
    CHECK(both > 0.97 * costs.step_seconds({}, prompt, lone));
  }
}

TEST_CASE("batches of stages that are always full make the tokens that the cost model predicts of stages") {
  const ModelShape shape = find_model_shape("llama-3.1-70b", kCatalog);
  Deployment deployment = over(4, 2, 1);
  deployment.expert_parallel = 1;
  const CostModel cost(shape, deployment, find_device("h100-sxm", kCatalog), find_engine_profile("vllm", kCatalog));
  REQUIRE(cost.engine().overlaps_stages);
  const std::vector<LengthProfile> profiles = {mean_profile(shape, 16, 2000)};
  const DeploymentCosts costs(cost, profiles, {});
  SchedulerLimits limits;
  limits.sequences = 256;
  limits.step_tokens = 8192;
  limits.batches = 2;
  const ServingOutcome o = simulate_serving(costs, {limits}, std::vector<Request>(64, Request{0, 16, 2000}));
  const Prediction p = cost.predict(profiles[0].mean, 64);
  const ServingSummary s = summarise_serving(o);
  CHECK(s.tokens_per_s == Approx(p.tokens_per_s.value).epsilon(0.01));
  CHECK(s.token.mean == Approx(p.step.value).epsilon(0.01));
  CHECK(o.totals.busy_seconds / o.seconds == Approx(1).epsilon(0.01));
  // One batch of all of them at a time reads weights half as often, and leaves a stage idle: fewer still.
  limits.batches = 1;
  const ServingOutcome one = simulate_serving(costs, {limits}, std::vector<Request>(64, Request{0, 16, 2000}));
  CHECK(summarise_serving(one).tokens_per_s < s.tokens_per_s);
}

}  // namespace

TEST_CASE("a sequence of a hybrid takes whole pages from its first token on, and moves no more than its rows") {
  // Nemotron 3 Nano in vLLM: pages of 2,096 tokens, whose rows take 6,144 bytes in the six layers that attend.
  const ModelShape shape = find_model_shape("nemotron-3-nano-30b-a3b", kCatalog);
  const CostModel cost(shape, Deployment(TrafficTypes{}), find_device("h200", kCatalog),
                       find_engine_profile("vllm", kCatalog));
  std::vector<LengthProfile> profiles;
  for (const std::uint32_t prompt : {500U, 3000U}) {
    Residency r = synthetic::budgeted({prompt, 1500}, shape.layers, shape.kv_heads, prompt, UINT32_MAX);
    for (std::uint32_t step = 0; step <= 1500; ++step) {
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        r.at(step, layer).allocated_paged = shape.kv_heads * ((prompt + step + 15) / 16 * 16);
      }
    }
    std::vector<LayerCounts> steps;
    for (std::uint32_t step = 1; step <= 1500; ++step) steps.push_back(sum_counts({&r.at(step, 0), shape.layers}));
    profiles.push_back(length_profile(summarise(r), steps));
  }
  const DeploymentCosts costs(cost, profiles, {});
  const double page = 2096.0 * 6144, states = 24 * 2096.0 * 1024;
  CHECK(costs.cache_bytes({500, 1}) == Approx(page + states));
  CHECK(costs.cache_bytes({500, 1500}) == Approx(page + states));
  CHECK(costs.cache_bytes({3000, 1}) == Approx(2 * page + states));
  CHECK(costs.cache_bytes({3000, 1500}) == Approx(3 * page + states));
  CHECK(costs.moved_bytes(500) == Approx(500.0 * 6144 + 23 * 2134016.0));
  CHECK(costs.moved_bytes(3000) == Approx(3000.0 * 6144 + 23 * 2134016.0));
}

}  // namespace kvroof
