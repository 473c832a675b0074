// Speculative decoding: tokens a step, what a verifying step moves and takes, what drafts cost.
#include "sim/cost/speculation.hpp"

#include <cmath>
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kBf16 = {DType::kBF16, DType::kBF16};

ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }

EngineProfile graphs() { return find_engine_profile("graphs", kCatalog); }

CostModel on_h100(const std::string& target, std::optional<Speculation> speculation,
                  const EngineProfile& engine = graphs(), std::uint32_t devices = 1) {
  Deployment deployment(kBf16);
  deployment.speculation = std::move(speculation);
  deployment.tensor_parallel = devices;
  return {model(target), deployment, find_device("h100-sxm", kCatalog), engine};
}

Speculation free_drafts(std::uint32_t tokens, double acceptance) {
  return {tokens, acceptance, free_draft("ngram")};
}

// What drafts, alone: nothing of the scheduler is in its steps.
EngineProfile without_host() {
  EngineProfile engine = graphs();
  engine.step_us = engine.request_us = 0;
  return engine;
}

double billions(const Draft& draft) { return 1e-9 * static_cast<double>(draft.parameters()); }

}  // namespace

TEST_CASE("tokens a step are those of Leviathan's table of speeds") {
  // arXiv:2211.17192, table 1: speed where drafts cost nothing.
  struct Row {
    double acceptance;
    std::uint32_t tokens;
    double speed;
  };
  for (const Row& row : {Row{0.6, 2, 1.96}, Row{0.7, 3, 2.53}, Row{0.8, 2, 2.44}, Row{0.8, 5, 3.69}, Row{0.9, 2, 2.71},
                         Row{0.9, 10, 6.86}}) {
    CHECK(free_drafts(row.tokens, row.acceptance).tokens_a_step() == Approx(row.speed).margin(0.006));
  }
  CHECK(free_drafts(4, 0).tokens_a_step() == 1);
  CHECK(free_drafts(4, 1).tokens_a_step() == 5);
}

TEST_CASE("an answer takes the steps that its last one, which is cut, adds to") {
  // Of two drafts, each accepted with a half, a step makes 1, 2 or 3 tokens with 1/2, 1/4 and 1/4.
  const Speculation two = free_drafts(2, 0.5);
  CHECK(two.steps_of(0) == 0);
  CHECK(two.steps_of(1) == 1);
  CHECK(two.steps_of(2) == 1.5);
  CHECK(two.steps_of(3) == 1 + 0.5 * 1.5 + 0.25 * 1);
  CHECK(two.steps_of(4) == 1 + 0.5 * 2 + 0.25 * 1.5 + 0.25 * 1);
  CHECK(free_drafts(4, 0).steps_of(17) == 17);
  for (const std::uint64_t n : {1U, 4U, 5U, 6U, 51U}) {
    CHECK(free_drafts(4, 1).steps_of(n) == std::ceil(static_cast<double>(n) / 5));
  }
  // Of a long answer the cut is less than a step.
  const Speculation six = free_drafts(6, 0.8);
  CHECK(six.steps_of(20000) > 20000 / six.tokens_a_step());
  CHECK(six.steps_of(20000) < 20000 / six.tokens_a_step() + 1);
}

TEST_CASE("a layer on the target has the parameters that papers and checkpoints state") {
  // arXiv:2401.15077, section 4: draft models of 0.24, 0.37 and 0.99 B for 7B, 13B and 70B.
  CHECK(billions(eagle_draft(model("llama-2-7b"))) == Approx(0.24).margin(0.005));
  CHECK(billions(eagle_draft(model("llama-2-13b"))) == Approx(0.37).margin(0.005));
  CHECK(billions(eagle_draft(model("llama-2-70b"))) == Approx(0.99).margin(0.005));
  CHECK(billions(mtp_draft(model("llama-2-7b"))) == billions(eagle_draft(model("llama-2-7b"))));
  // DeepSeek-V3's checkpoint: 11.5 B beside the shared embedding and head.
  CHECK(billions(mtp_draft(model("deepseek-v3"))) == Approx(11.5).epsilon(0.012));
  // EAGLE-3 on Llama-3.1-8B: the layer of 218 M, 25 M of twice as wide inputs of q, k and v, a head of 32,000 rows.
  CHECK(billions(eagle3_draft(model("llama-3.1-8b"))) == Approx(0.218 + 0.025 + 0.131).margin(0.002));
  CHECK(eagle_draft(model("mixtral-8x7b")).shape->experts == 0);
  CHECK(mtp_draft(model("mixtral-8x7b")).shape->experts == 8);
}

TEST_CASE("a verifying step computes and writes what as many steps do, and reads weights and rows once") {
  const ModelShape shape = model("llama-3.1-8b");
  StepTraffic steps;
  for (std::uint32_t i = 0; i < 4; ++i) {
    steps += mean_decode_traffic(shape, kBf16, full_attention_summary(shape, 1000 + i, 1), 3);
  }
  const ResidencySummary first = full_attention_summary(shape, 1000, 1), last = full_attention_summary(shape, 1003, 1);
  const StepTraffic together = mean_decode_traffic(shape, kBf16, first, 3, {4, 2.5});
  for (const KernelFamily family : {KernelFamily::kLinear, KernelFamily::kAttention}) {
    CHECK(together[family].value == Approx(steps[family].value).epsilon(1e-12));
  }
  CHECK(together.bytes[Cause::kKvWrite] == steps.bytes[Cause::kKvWrite]);
  CHECK(together.bytes[Cause::kActivations] == steps.bytes[Cause::kActivations]);
  const StepTraffic at_last = mean_decode_traffic(shape, kBf16, last, 3);
  CHECK(together.bytes[Cause::kKvRead] == at_last.bytes[Cause::kKvRead]);
  // A row of the embedding for each of nine tokens more.
  CHECK(together.bytes[Cause::kWeights] == at_last.bytes[Cause::kWeights] + 9U * 4096 * 2);
}

TEST_CASE("what a policy moves it moves for the tokens that stay, and what it computes for all") {
  const ModelShape shape = model("llama-3.1-8b");
  ResidencySummary r = full_attention_summary(shape, 1000, 1);
  r.decode.moved = 1000;
  r.decode.state_read = r.decode.state_written = 4 * r.decode.attended;
  r.decode.policy_flops.scoring = 7000;
  const StepTraffic one = mean_decode_traffic(shape, kBf16, r, 2);
  const StepTraffic four = mean_decode_traffic(shape, kBf16, r, 2, {4, 2.5});
  CHECK(2 * four.bytes[Cause::kCompaction] == 5 * one.bytes[Cause::kCompaction]);
  CHECK(four.bytes[Cause::kScores] == one.bytes[Cause::kScores]);
  CHECK(four[KernelFamily::kPolicy].value == 4 * one[KernelFamily::kPolicy].value);
}

TEST_CASE("free drafts leave the time of a step to the tokens that it verifies, and divide it by those that stay") {
  const ResidencySummary r = full_attention_summary(model("llama-2-7b"), 1000, 1);
  const Prediction plain = on_h100("llama-2-7b", {}).predict(r, 1);
  const Prediction never = on_h100("llama-2-7b", free_drafts(4, 0)).predict(r, 1);
  const Prediction often = on_h100("llama-2-7b", free_drafts(4, 0.8)).predict(r, 1);
  CHECK(plain.token().value == plain.step.value);
  CHECK(never.token().value == never.step.value);
  CHECK(often.step.value == never.step.value);
  CHECK(often.token().value == Approx(often.step.value / 3.3616));
  CHECK(often.tokens_per_s.value == Approx(3.3616 / often.step.value));
  // By hand: five rows of every product beside weights that are read once, 129 products of 3.6 us.
  const double weights = 2.0 * (6738415616.0 - 32000.0 * 4096 + 5 * 4096) / (0.85 * 3350e9);
  const double products = 5 * 2.0 * (6738415616.0 - 32000.0 * 4096) / (0.97 * 0.803 * 989e12);
  CHECK(often.terms[0].value == Approx(129 * 3.6e-6 + std::hypot(weights, products)).epsilon(1e-4));
  CHECK(never.step.value > plain.step.value);
  CHECK(never.step.value < 1.02 * plain.step.value);
}

TEST_CASE("a draft model's tokens take as many of its own steps, and its prompt one of its own") {
  const ResidencySummary r = full_attention_summary(model("llama-3.1-8b"), 2000, 100);
  const ResidencySummary of_draft = full_attention_summary(model("llama-3.2-1b"), 2000, 100);
  const Speculation drafted{4, 0.7, model_draft(model("llama-3.2-1b"), "llama-3.2-1b")};
  const CostModel with = on_h100("llama-3.1-8b", drafted), free = on_h100("llama-3.1-8b", free_drafts(4, 0.7));
  const CostModel draft = on_h100("llama-3.2-1b", {}, without_host());
  for (const std::uint64_t batch : {1U, 16U}) {
    const double alone = draft.step(of_draft, batch).value;
    CHECK(with.drafting(r, batch).value == Approx(4 * alone).epsilon(1e-6));
    CHECK(with.step(r, batch).value == Approx(free.step(r, batch).value + 4 * alone).epsilon(1e-6));
    CHECK(with.prefill(r, batch).value ==
          Approx(free.prefill(r, batch).value + draft.prefill(of_draft, batch).value).epsilon(1e-6));
  }
  // Of what a prefix cache has, it has the draft's rows as well.
  const auto cached = [](ResidencySummary whole, const ResidencySummary& first) {
    whole.cached = first.prompt;
    whole.cached_prefill = first.prefill;
    return whole;
  };
  const ResidencySummary rest = cached(r, full_attention_summary(model("llama-3.1-8b"), 1500, 100));
  const ResidencySummary rest_of_draft = cached(of_draft, full_attention_summary(model("llama-3.2-1b"), 1500, 100));
  CHECK(with.prefill(rest, 2).value ==
        Approx(free.prefill(rest, 2).value + draft.prefill(rest_of_draft, 2).value).epsilon(1e-6));
  // Both times come from the same constants: the sum is no surer than its parts.
  const Estimate e = with.step(r, 1), a = free.step(r, 1), b = with.drafting(r, 1);
  CHECK(e.high80 / e.value > 0.999 * std::min(a.high80 / a.value, b.high80 / b.value));
}

TEST_CASE("a layer on the target is as long as its weights and the head take, and first passes what was verified") {
  const ModelShape target = model("llama-3.1-8b");
  const ResidencySummary r = full_attention_summary(target, 2000, 1);
  const auto drafting = [&](std::uint32_t tokens) {
    return on_h100("llama-3.1-8b", Speculation{tokens, 0.7, eagle_draft(target)}).drafting(r, 1).value;
  };
  // 252 M of the layer with what joins its inputs, and the head of 128,256 rows, in 2 bytes.
  const double weights = 2 * (218.1e6 + 33.6e6 + 128256.0 * 4096) / (0.85 * 3350e9);
  const double one = drafting(2) - drafting(1);
  CHECK(one > weights);
  CHECK(one < weights + 60e-6);  // five products and 9 and 8 us of a layer's other kernels, a page of cache
  CHECK(drafting(5) == Approx(drafting(4) + one).epsilon(0.01));
  // Of many sequences its first pass takes longer: as it alone would for the tokens that were verified.
  const Draft eagle = eagle_draft(target);
  const CostModel many = on_h100("llama-3.1-8b", Speculation{4, 0.7, eagle});
  const auto alone = [&](std::optional<Speculation> passed) {
    Deployment deployment(kBf16);
    deployment.speculation = std::move(passed);
    const CostModel layer(*eagle.shape, deployment, find_device("h100-sxm", kCatalog), without_host());
    return layer.step(full_attention_summary(*eagle.shape, 2000, 1), 512).value;
  };
  CHECK(alone(free_drafts(4, 0)) > 1.5 * alone({}));
  CHECK(many.drafting(r, 512).value == Approx(alone(free_drafts(4, 0)) + 3 * alone({})).epsilon(1e-3));
}

TEST_CASE("the ledger holds the draft's weights, its whole cache, and drafted rows until they are verified") {
  const ModelShape target = model("llama-3.1-8b");
  ResidencySummary r = full_attention_summary(target, 2000, 100);
  const Speculation drafted{4, 0.7, model_draft(model("llama-3.2-1b"), "llama-3.2-1b")};
  const MemoryLedger with = on_h100("llama-3.1-8b", drafted).memory().ledger(r, 3);
  const MemoryLedger plain = on_h100("llama-3.1-8b", {}).memory().ledger(r, 3);
  CHECK(with.draft_weights.value == 2 * 1235814400ULL);
  // 16 layers of 8 heads with k and v of 64 in 2 bytes; 32 layers of 8 heads with k and v of 128.
  CHECK(with.draft_cache.value == 3U * 2104 * 16 * 8 * 2 * 64 * 2);
  CHECK(with.kv_allocated.value == plain.kv_allocated.value + 3U * 4 * 32 * 8 * 2 * 128 * 2);
  CHECK(plain.draft_weights.value == 0);
  CHECK(plain.draft_cache.value == 0);
  // A policy that keeps a quarter leaves the draft's cache as it is.
  r.peak_rows /= 4;
  r.peak_paged_rows /= 4;
  CHECK(on_h100("llama-3.1-8b", drafted).memory().ledger(r, 3).draft_cache == with.draft_cache);
  // A layer of the target shares the embedding and the head.
  const MemoryLedger eagle = on_h100("llama-3.1-8b", Speculation{4, 0.7, eagle_draft(target)}).memory().ledger(r, 3);
  CHECK(static_cast<double>(eagle.draft_weights.value) == Approx(2 * (218.1e6 + 33.6e6)).epsilon(0.002));
  CHECK(eagle.draft_cache.value == 3U * 2104 * 8 * 2 * 128 * 2);
}

TEST_CASE("devices that share the target share its draft") {
  const ModelShape target = model("llama-3-70b");
  const ResidencySummary r = full_attention_summary(target, 2000, 100);
  const Speculation drafted{4, 0.7, eagle_draft(target)};
  const CostModel two = on_h100("llama-3-70b", drafted, graphs(), 2);
  const CostModel four = on_h100("llama-3-70b", drafted, graphs(), 4);
  CHECK(static_cast<double>(two.memory().ledger(r, 1).draft_weights.value) ==
        Approx(2.0 * static_cast<double>(four.memory().ledger(r, 1).draft_weights.value)));
  CHECK(two.memory().ledger(r, 8).draft_cache.value == 2 * four.memory().ledger(r, 8).draft_cache.value);
  Deployment seven(kBf16);
  seven.tensor_parallel = 16;
  seven.speculation = Speculation{4, 0.7, model_draft(model("qwen2.5-0.5b"), "qwen2.5-0.5b")};
  CHECK(deployment_problem(target, seven) ==
        "14 query heads of the draft qwen2.5-0.5b cannot be spread over 16 devices");
}

TEST_CASE("a model that repeats a prompt repeats it alone: what drafts has no part in that") {
  ResidencySummary r = full_attention_summary(model("llama-3.1-8b"), 8000, 1);
  r.evicts = true;
  const auto added = [&](std::optional<Speculation> speculation) {
    const CostModel cost = on_h100("llama-3.1-8b", std::move(speculation));
    r.repeats = 0;
    const double once = cost.prefill(r, 1).value;
    r.repeats = 2048;
    return cost.prefill(r, 1).value - once;
  };
  CHECK(added(Speculation{4, 0.7, model_draft(model("llama-3.2-1b"), "llama-3.2-1b")}) == Approx(added({})));
}

TEST_CASE("a policy that reads the probabilities of every query gains less from drafts than one that reads none") {
  const ModelShape shape = model("llama-3.1-8b");
  const ResidencySummary plain = full_attention_summary(shape, 8000, 1);
  ResidencySummary scoring = plain;
  scoring.needs_probabilities = scoring.observes_steps = true;
  const auto gain = [&](const ResidencySummary& r) {
    const CostModel with = on_h100("llama-3.1-8b", free_drafts(4, 0.7)), without = on_h100("llama-3.1-8b", {});
    return without.predict(r, 16).token().value / with.predict(r, 16).token().value;
  };
  CHECK(gain(scoring) < 0.95 * gain(plain));
  // By hand: 4 bytes, written and read, for each of 5 queries, 4 heads of a group and each row of 512 bytes.
  const Prediction p = on_h100("llama-3.1-8b", free_drafts(4, 0.7)).predict(scoring, 16);
  const double rows = 8001.0 * 32 * 8 * 16;
  CHECK(p.terms[3].value == Approx(32 * 2 * 3.6e-6 + rows * 2 * 4 * 5 * 4 / (0.90 * 3350e9)).epsilon(0.01));
}

TEST_CASE("speculation of a mixture of experts reads the experts that all its tokens choose") {
  const ModelShape shape = model("mixtral-8x7b");
  const ResidencySummary r = full_attention_summary(shape, 1000, 1);
  const StepTraffic four = mean_decode_traffic(shape, kBf16, r, 1, {4, 1});
  const StepTraffic batch = mean_decode_traffic(shape, kBf16, r, 4);
  CHECK(four.bytes[Cause::kWeights] == batch.bytes[Cause::kWeights]);
  CHECK(four.bytes[Cause::kWeights] > mean_decode_traffic(shape, kBf16, r, 1).bytes[Cause::kWeights]);
}

}  // namespace kvroof
