// Prompts, and products of many rows: where arithmetic counts.
#include <cmath>
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kF16 = {DType::kF16, DType::kF16};

struct Lengths {
  std::uint32_t prompt, output;
};
Device device(const std::string& name) { return find_device(name, kCatalog); }
ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }
EngineProfile graphs() { return find_engine_profile("graphs", kCatalog); }
ResidencySummary full_on(const std::string& name, Lengths n) {
  return full_attention_summary(model(name), n.prompt, n.output);
}

}  // namespace

TEST_CASE("a long prompt takes its products, activations and attention, computed by hand") {
  const CostModel cost(model("llama-2-7b"), kF16, device("h100-sxm"), graphs());
  ResidencySummary r = full_on("llama-2-7b", {2048, 1});
  // 2 operations for each weight of the layers and token, and the head for the last one, at 97 % of the best shape's
  // 80.3 % of 989 TFLOP/s, beside reading them.
  const double matrices = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008), head = 32000.0 * 4096;
  const double reading = 2 * (matrices + head) / (0.85 * 3350e9);
  const auto products = [&](double prompts) {
    return std::hypot(reading, prompts * (2 * 2048 * matrices + 2 * head) / (0.97 * 0.803 * 989e12));
  };
  // 27 h + 6 f elements of 4 bytes a token and layer, but for what stays in half of the cache (docs/method.md); q · k
  // and p · v of 4096 elements for each pair of tokens and layer, at 60 % of the peak.
  const auto activations = [](double prompts) {
    const double cached = 0.5 * 50 * (1 << 20) / (4 * prompts * 2048 * 11008);
    return (1 - cached) * prompts * 2048 * 32 * (27.0 * 4096 + 6.0 * 11008) * 4 / (0.85 * 3350e9);
  };
  const double attention = 4.0 * 4096 * 32 * (2048.0 * 2049 / 2) / (0.6 * 989e12);
  const double launches = 129 * 3.6e-6 + 32 * (9e-6 + 8e-6) + 25e-6;
  const Estimate one = cost.prefill(r, 1);
  CHECK(one.value == Approx(products(1) + activations(1) + attention + launches).epsilon(2e-3));
  CHECK(one.low80 < one.value);
  CHECK(one.high95 > one.high80);
  CHECK(cost.prefill(r, 2).value == Approx(products(2) + activations(2) + 2 * attention + launches).epsilon(2e-3));
  // A policy that looks at their attention has half of it computed again.
  r.needs_probabilities = r.observes_steps = true;
  CHECK(cost.prefill(r, 1).value - one.value == Approx(0.5 * attention).epsilon(0.02));
}

TEST_CASE("of a prompt that a prefix cache has a part of, the other tokens are computed, and meet the keys of all") {
  const CostModel cost(model("llama-2-7b"), kF16, device("h100-sxm"), graphs());
  ResidencySummary r = full_on("llama-2-7b", {8192, 1});
  const double whole = cost.prefill(r, 1).value;
  const MemoryLedger ledger = cost.memory().ledger(r, 4);
  r.cached = 6144;
  r.cached_prefill = full_on("llama-2-7b", {6144, 1}).prefill;
  const Estimate rest = cost.prefill(r, 1);
  // As a prompt of 2,048 tokens, of which each also meets the 6,144 keys before it: 4,096 elements of q, k, p and v in
  // 32 layers, at 60 % of the peak.
  const double earlier = 4.0 * 4096 * 32 * (2048.0 * 6144) / (0.6 * 989e12);
  CHECK(rest.value == Approx(cost.prefill(full_on("llama-2-7b", {2048, 1}), 1).value + earlier).epsilon(2e-3));
  CHECK(rest.limit < rest.value);
  CHECK(rest.value < 0.5 * whole);
  // Decoding and memory are those of the whole prompt.
  CHECK(cost.step(r, 4).value == cost.step(full_on("llama-2-7b", {8192, 1}), 4).value);
  CHECK(cost.memory().ledger(r, 4).total() == ledger.total());
}

TEST_CASE("a prompt that the model repeats takes a pass for each part behind all of it, and once more q and k") {
  const ModelShape shape = model("llama-2-7b");
  const CostModel cost(shape, kF16, device("h100-sxm"), graphs());
  ResidencySummary r = full_on("llama-2-7b", {5000, 1});
  const double once = cost.prefill(r, 1).value;
  r.repeats = 2048;
  CHECK(cost.prefill(r, 1).value == once);  // where nothing is evicted nothing is asked
  r.evicts = true;
  // Two parts of 2,048 tokens and one of 904, with 24 that ask for each, as prompts behind 5,000 tokens that are there.
  const auto pass = [&](std::uint32_t tokens) {
    ResidencySummary behind = full_on("llama-2-7b", {5000 + tokens, 1});
    behind.cached = 5000;
    behind.cached_prefill = full_on("llama-2-7b", {5000, 1}).prefill;
    return cost.prefill(behind, 1).value;
  };
  const double passes = 2 * pass(2048 + 24) + pass(904 + 24);
  // A row meets the part and what is repeated so far: 2 operations for each of 4,096 elements in 32 layers, at FP32.
  const auto pairs = [](double tokens) { return (tokens + 24) * tokens + (tokens + 24) * (tokens + 25) / 2; };
  const double scored = 2.0 * 4096 * 32 * (2 * pairs(2048) + pairs(904));
  const double added = cost.prefill(r, 1).value - once;
  CHECK(added > passes);
  CHECK(added == Approx(passes + scored / (0.97 * 0.803 * 66.9e12)).epsilon(0.01));
  CHECK(added / once > 1);  // kvpress says 2 to 3 times the prompt in all
  CHECK(added / once < 2);
}

TEST_CASE("parts of a prompt that is repeated add up to about the whole") {
  const ModelShape shape = model("llama-2-7b");
  const CostModel cost(shape, kF16, device("h100-sxm"), graphs());
  ResidencySummary whole = full_on("llama-2-7b", {8192, 1});
  whole.repeats = 2048;
  whole.evicts = true;
  double parts = 0;
  for (std::uint32_t from = 0; from < 8192; from += 2048) {
    ResidencySummary part = full_on("llama-2-7b", {from + 2048, 1});
    part.repeats = 2048;
    part.evicts = true;
    part.cached = from;
    if (from > 0) part.cached_prefill = full_on("llama-2-7b", {from, 1}).prefill;
    parts += cost.prefill(part, 1).value;
  }
  CHECK(parts == Approx(cost.prefill(whole, 1).value).epsilon(0.03));
}

TEST_CASE("before a prompt is repeated no layer evicts: all of it is there, and the part behind it") {
  const ModelShape shape = model("llama-2-7b");
  const CostModel cost(shape, kF16, device("h100-sxm"), graphs());
  ResidencySummary r = full_on("llama-2-7b", {5000, 1});
  r.evicts = true;
  const double token = 2.0 * 32 * 4096 * 2;  // bytes of k and v in all layers
  const auto transient = [&] { return static_cast<double>(cost.memory().ledger(r, 1).prefill_transient.value); };
  CHECK(transient() == Approx(5000 * token / 32));
  r.repeats = 2048;
  r.prefill.resident = 0;
  CHECK(transient() == Approx((5000 + 2048) * token));
}

TEST_CASE("the only token of a prompt that no cache has reads the rows of all others, as a decode step does") {
  const CostModel cost(model("llama-2-7b"), kF16, device("h100-sxm"), graphs());
  ResidencySummary r = full_on("llama-2-7b", {16384, 1});
  r.cached = 16383;
  r.cached_prefill = full_on("llama-2-7b", {16383, 1}).prefill;
  const double rows = cost.prefill(r, 1).value - cost.prefill(full_on("llama-2-7b", {1, 1}), 1).value;
  const double of_step =
      cost.step(full_on("llama-2-7b", {16383, 1}), 1).value - cost.step(full_on("llama-2-7b", {1, 1}), 1).value;
  CHECK(rows == Approx(of_step).epsilon(0.05));
  // 8.6 GB, which even the datasheet's bandwidth takes 2.5 ms for.
  CHECK(rows > 16383 * 524288.0 / 3350e9);
  CHECK(cost.prefill(r, 1).limit > 16383 * 524288.0 / 3350e9);
}

TEST_CASE("where reading and arithmetic take as long neither hides the other, and far from there the larger counts") {
  const CostModel cost(model("llama-2-7b"), kF16, device("h100-sxm"), graphs());
  const double start = 3.6e-6, n = 8192, reading = 2 * n * n / (0.85 * 3350e9);
  const auto computing = [&](double m) { return 2 * m * n * n / (0.97 * 0.803 * 989e12); };
  const auto time = [&](double m) { return cost.product(static_cast<std::uint64_t>(m), 8192, 8192).value - start; };
  const double ridge = reading / computing(1);
  CHECK(time(std::round(ridge)) == Approx(std::sqrt(2.0) * reading).epsilon(0.01));
  CHECK(time(1) == Approx(reading).epsilon(1e-4));
  CHECK(time(8192) == Approx(computing(8192)).epsilon(1e-3));
}

TEST_CASE("a prompt under unfused attention pays for its probabilities as well") {
  EngineProfile fused = graphs(), unfused = graphs();
  unfused.fused_attention = false;
  const auto prompt = [](const EngineProfile& e) {
    return CostModel(model("opt-13b"), kF16, device("a100-80g"), e).prefill(full_on("opt-13b", {2048, 1}), 4).value;
  };
  // 40 layers and heads; four passes over 16-bit matrices of 2048 · 2048, which hide some of the arithmetic.
  const double passes = 4.0 * 2 * 4 * 40 * 40 * 2048 * 2048 / (0.8 * 2039e9);
  CHECK(prompt(unfused) > prompt(fused) + 0.5 * passes);
  CHECK(prompt(unfused) < prompt(fused) + passes);
}

TEST_CASE("a prompt of one token takes the time in which the weights are read") {
  const CostModel cost(model("llama-2-7b"), kF16, device("h100-sxm"), graphs());
  const double weights = 2.0 * (6738415616.0 - 32000.0 * 4096 + 4096);
  CHECK(cost.prefill(full_on("llama-2-7b", {1, 1}), 1).value ==
        Approx(129 * 3.6e-6 + weights / (0.85 * 3350e9) + 32 * (8e-6 + 9e-6) + 25e-6).epsilon(1e-3));
}

TEST_CASE("a prompt of several sequences under kivi converts as many rows as they have together") {
  const TrafficTypes kivi = {DType::kF16, KvType::kKivi2};
  const CostModel cost(model("llama-2-7b"), kivi, device("h100-sxm"), graphs());
  const ResidencySummary r = full_on("llama-2-7b", {2048, 1});
  ResidencySummary kept_plain = r;
  kept_plain.prefill.converted = {};
  const auto converting = [&](std::uint64_t batch) {
    return cost.prefill(r, batch).value - cost.prefill(kept_plain, batch).value;
  };
  // In 32 layers of 32 heads k of all 2048 tokens, which are whole groups, and v of all but the last 128: 128 elements
  // that are read as 2 bytes and written as 2 bits, beside 4 bytes for each 32 of them; one kernel start a layer.
  const double bytes = 32.0 * 32 * (2048 + 1920) * 128 * (2 + 0.375);
  CHECK(converting(1) == Approx(32 * 2 * 3.6e-6 + bytes / (0.9 * 3350e9)));
  CHECK(converting(3) - converting(1) == Approx(2 * bytes / (0.9 * 3350e9)));
}

}  // namespace kvroof
