#include "sim/cost/cost.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace {
std::size_t allocations = 0;
}  // namespace

// Counts what the hot path must not do.
void* operator new(std::size_t size) {
  ++allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace kvroof {
namespace {

using F = DeviceField;
using synthetic::Lengths;
const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kF16 = {DType::kF16, DType::kF16};

Device device(const std::string& name) { return find_device(name, kCatalog); }
ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }
EngineProfile engine(const char* name) { return find_engine_profile(name, kCatalog); }
EngineProfile graphs() { return engine("graphs"); }

CostModel on(const std::string& device_name, const std::string& model_name, const EngineProfile& profile = graphs()) {
  return CostModel(model(model_name), kF16, device(device_name), profile);
}

ResidencySummary full_on(const std::string& name, Lengths n) {
  const ModelShape s = model(name);
  return summarise(synthetic::full(n, s.layers, s.kv_heads));
}

ResidencySummary fraction_on(const std::string& name, Lengths n, double share) {
  const ModelShape s = model(name);
  return summarise(synthetic::fraction(n, share, s.layers, s.kv_heads));
}

// The traffic that a scoring policy adds.
ResidencySummary with_scores(ResidencySummary r) {
  r.state_bytes_per_row = 4;
  r.needs_probabilities = r.observes_steps = true;
  r.decode.state_read = r.decode.state_written = 4 * r.decode.attended;
  r.decode.policy_flops.scoring = 3.0 * static_cast<double>(r.decode.attended);
  return r;
}

}  // namespace

TEST_CASE("a small step equals the roofline computed by hand") {
  const Device h100 = device("h100-sxm");
  const CostModel cost(model("llama-2-7b"), kF16, h100, graphs());
  const ResidencySummary r = full_on("llama-2-7b", {1000, 1});
  const Prediction p = cost.predict(r, 1);
  // 4 products a layer and the head, 3.6 us each; all weights but the embedding table, one row of which is read.
  const double weights = 2.0 * (6738415616.0 - 32000.0 * 4096 + 4096);
  CHECK(p.terms[0].value == Approx(129 * 3.6e-6 + weights / (0.85 * 3350e9)));
  // 32 layers of 8 us; 1001 rows read and one written of 32 layers, 32 heads, 512 B: 174 us, beside which 1.4 us of one
  // of 132 multiprocessors for each head, and two products of 128 numbers for each row, take 12.
  const double rows = 1002.0 * 32 * 32 * 512 / (0.90 * 3350e9);
  const double heads = 32 * 32 * 1.4e-6 / 132 + 1001.0 * 32 * 32 * 4 * 128 / (0.803 * 989e12);
  CHECK(p.terms[1].value == Approx(32 * 8e-6 + std::hypot(rows, heads)).epsilon(1e-5));
  CHECK(p.terms[2].value == Approx(32 * 9e-6));
  CHECK(p.terms[3].value == 0);
  CHECK(p.terms[4].value == Approx(25e-6));
  CHECK(p.step.value == Approx(p.terms[0].value + p.terms[1].value + p.terms[2].value + p.terms[4].value));
  CHECK(p.tokens_per_s.value == Approx(1 / p.step.value));
}

TEST_CASE("decode speeds published for single streams lie within the 95 percent interval") {
  struct Row {
    const char *device, *model;
    std::uint32_t context;
    double tokens_per_s;
  };
  double error = 0;
  int rows = 0;
  // calm and yalm READMEs (rounded to integers), gpt-fast README (board limited to 330 W), a vLLM sweep.
  for (const Row& row : {Row{"rtx-4090", "llama-3-8b", 16, 61}, Row{"rtx-4090", "llama-3-8b", 4080, 59},
                         Row{"rtx-4090", "llama-2-7b", 16, 69}, Row{"rtx-4090", "llama-2-7b", 4080, 60},
                         Row{"rtx-4090", "mistral-7b", 16, 65}, Row{"rtx-4090", "mistral-7b", 4080, 62},
                         Row{"rtx-4090", "mistral-7b", 120, 66}, Row{"a100-80g", "llama-2-7b", 105, 104.9},
                         Row{"a100-80g", "llama-3-8b", 105, 93.89}, Row{"a100-40g", "llama-3-8b", 1088, 75}}) {
    INFO(row.device << " " << row.model << " " << row.context);
    const Prediction p = on(row.device, row.model).predict(full_on(row.model, {row.context, 1}), 1);
    CHECK(row.tokens_per_s > p.tokens_per_s.low95);
    CHECK(row.tokens_per_s < p.tokens_per_s.high95);
    error += std::abs(p.tokens_per_s.value - row.tokens_per_s) / row.tokens_per_s;
    ++rows;
  }
  INFO("mean absolute error " << error / rows);
  CHECK(error / rows < 0.05);
}

TEST_CASE("the peak memory of the seven H2O runs on an A100 follows from the ledger") {
  struct Row {
    const char* model;
    std::uint32_t batch, prompt, output;
    double kept;  // of the prompt; 0 keeps all
    double gib;   // as logged
  };
  // "20 %" is 20 % of prompt and output together. FlexGen's weights leave the position table out.
  for (const Row& row : {Row{"opt-6.7b", 24, 2048, 2048, 0, 74.764}, Row{"opt-6.7b", 24, 2048, 2048, 0.4, 36.392},
                         Row{"opt-6.7b", 64, 2048, 2048, 0.4, 75.673}, Row{"opt-13b", 4, 5000, 5000, 0, 70.919},
                         Row{"opt-13b", 4, 5000, 5000, 0.4, 46.511}, Row{"opt-30b", 1, 7000, 1024, 0, 77.579},
                         Row{"opt-30b", 1, 7000, 1024, 0.22, 69.170}}) {
    INFO(row.model << " batch " << row.batch << " kept " << row.kept);
    const CostModel cost = on("a100-80g", row.model, engine("unfused"));
    const Lengths n = {row.prompt, row.output};
    const ResidencySummary r = row.kept > 0 ? fraction_on(row.model, n, row.kept) : full_on(row.model, n);
    CHECK(gib(cost.memory().ledger(r, row.batch).total()) == Approx(row.gib).epsilon(0.03));
  }
  // The same logs: full attention at batch 64 ran out of memory.
  CHECK_FALSE(
      on("a100-80g", "opt-6.7b", engine("unfused")).memory().ledger(full_on("opt-6.7b", {2048, 2048}), 64).fits());
}

TEST_CASE("the largest batch fits, and one more does not") {
  for (const char* name : {"h200", "a100-80g", "l40s", "rtx-4090", "b200"}) {
    for (const char* shape : {"llama-2-7b", "opt-13b", "llama-3-8b", "gpt-j-6b"}) {
      for (const double kept : {0.0, 0.2, 0.9}) {
        INFO(name << " " << shape << " " << kept);
        const CostModel cost = on(name, shape);
        const Lengths n = {1024, 64};
        const ResidencySummary r = kept > 0 ? with_scores(fraction_on(shape, n, kept)) : full_on(shape, n);
        const std::uint64_t batch = cost.memory().largest_batch(r);
        if (batch > 0) CHECK(cost.memory().ledger(r, batch).fits());
        CHECK_FALSE(cost.memory().ledger(r, batch + 1).fits());
      }
    }
  }
}

TEST_CASE("a model larger than the memory has no batch, and says that capacity limits it") {
  const CostModel cost = on("rtx-4090", "opt-30b");
  const ResidencySummary r = full_on("opt-30b", {128, 8});
  CHECK(cost.memory().largest_batch(r) == 0);
  CHECK_FALSE(cost.predict(r, 1).fits);
  CHECK(cost.predict(r, 1).limited_by == Limit::kCapacity);
}

TEST_CASE("the ledger counts the whole prompt of one layer while it is compacted") {
  const CostModel cost = on("h200", "llama-2-7b");
  const ResidencySummary r = fraction_on("llama-2-7b", {4096, 64}, 0.5);
  // 4096 rows of 32 heads, 512 B: one layer of one sequence.
  CHECK(cost.memory().ledger(r, 8).prefill_transient.value == std::uint64_t{4096} * 32 * 512);
  CHECK(cost.memory().ledger(full_on("llama-2-7b", {4096, 64}), 8).prefill_transient.value == 0);
  CHECK(cost.memory().ledger(r, 8).kv_allocated.value == std::uint64_t{8} * 2049 * 32 * 32 * 512);
  CHECK(cost.memory().ledger(with_scores(r), 8).policy_state.value == std::uint64_t{8} * 2049 * 32 * 32 * 4);
}

TEST_CASE("an engine that evicts after the prompt holds the prompts of all layers until then") {
  const CostModel cost = on("h200", "llama-2-7b", engine("vllm"));
  const ResidencySummary r = fraction_on("llama-2-7b", {4096, 64}, 0.5);
  CHECK(cost.memory().ledger(r, 8).prefill_transient.value == std::uint64_t{32} * 2048 * 32 * 512);  // and half stays
  const CostModel together = on("h200", "llama-2-7b", engine("huggingface"));
  ResidencySummary without = r;
  without.evicts = false;
  const auto transient = [&](const ResidencySummary& of) {
    return together.memory().ledger(of, 8).prefill_transient.value;
  };
  CHECK(transient(r) - transient(without) == std::uint64_t{8} * 4096 * 32 * 512);  // of one layer, of all sequences
}

TEST_CASE("an engine that puts beams into order by copying holds a second cache meanwhile") {
  ResidencySummary r = full_on("llama-2-7b", {512, 64});
  for (const char* name : {"huggingface", "kvroof"}) {
    const CostModel cost = on("h200", "llama-2-7b", engine(name));
    r.beams = 1;
    CHECK(cost.memory().ledger(r, 4).beam_copies.value == 0);
    const Bytes alone = cost.memory().ledger(r, 4).total();
    r.beams = 4;
    const bool copied = cost.engine().name == "huggingface";
    const std::uint64_t copies = copied ? cost.memory().ledger(r, 4).kv_allocated.value : 0;
    CHECK(cost.memory().ledger(r, 4).total() == alone + Bytes(copies));
  }
}

TEST_CASE("products of few rows take a tile's arithmetic where reading is faster, of unpacked weights half") {
  Device tiled = device("h20");
  Device plain = tiled;
  plain.fact(F::kTileRows) = std::nullopt;
  const ModelShape shape = model("llama-3-8b");
  const ResidencySummary r = full_on("llama-3-8b", {64, 1});
  const auto linear = [&](const Device& d, const Deployment& deployment, std::uint64_t batch, const char* profile) {
    return CostModel(shape, deployment, d, engine(profile)).predict(r, batch).terms[0].value;
  };
  const auto deployed = [](const char* format) { return Deployment(kF16, *parse_weight_format(format)); };
  // 32 layers of 4096 · (4096 + 2 · 1024 + 4096 + 3 · 14336), a head of 4096 · 128256; 64 rows at 0.62 of 148 TFLOP/s.
  const double elements = 32.0 * 4096 * (4096 + 2048 + 4096 + 3 * 14336) + 4096.0 * 128256;
  const double tile = 64 * 2 * elements / (0.62 * 148e12);
  const double starts = 3.6e-6 * (32 * 4 + 1);
  CHECK(linear(tiled, deployed("bf16"), 1, "graphs") == Approx(tile + starts).epsilon(1e-3));
  CHECK(linear(tiled, deployed("bf16"), 32, "graphs") == Approx(tile + starts).epsilon(1e-3));
  CHECK(linear(tiled, deployed("bf16"), 512, "graphs") == linear(plain, deployed("bf16"), 512, "graphs"));
  CHECK(linear(tiled, deployed("int4"), 1, "graphs") == Approx(tile / 2 + starts).epsilon(1e-3));
  // Vector products have no tiles.
  CHECK(linear(tiled, deployed("bf16"), 1, "llama-cpp") == linear(plain, deployed("bf16"), 1, "llama-cpp"));
}

TEST_CASE("a bigger and faster device is never worse") {
  const Device base = device("a100-80g");
  for (const F field : {F::kUsableMib, F::kBandwidthGbPerS, F::kPeakFp32Tflops, F::kPeakBf16Tflops, F::kPeakFp16Tflops,
                        F::kL2Mib, F::kLinearFraction, F::kAttentionFraction, F::kMatmulFraction}) {
    Device better = base;
    better.fact(field)->value *= 1.1;
    INFO(device_fields()[static_cast<std::size_t>(field)].key);
    for (const char* shape : {"llama-2-7b", "llama-3-8b"}) {
      const CostModel before(model(shape), kF16, base, graphs());
      const CostModel after(model(shape), kF16, better, graphs());
      for (const double kept : {0.1, 0.5, 1.0}) {
        const ResidencySummary r = with_scores(fraction_on(shape, {2048, 256}, kept));
        CHECK(after.memory().largest_batch(r) >= before.memory().largest_batch(r));
        for (const std::uint32_t batch : {1U, 16U, 256U, 4096U}) {
          CHECK(after.predict(r, batch).step.value <= before.predict(r, batch).step.value);
        }
      }
    }
  }
}

TEST_CASE("a larger batch takes longer a step and never makes fewer tokens a second") {
  const CostModel cost = on("h200", "llama-3-8b");
  const ResidencySummary r = full_on("llama-3-8b", {2048, 256});
  Prediction last = cost.predict(r, 1);
  for (std::uint32_t batch = 2; batch <= 512; ++batch) {
    const Prediction p = cost.predict(r, batch);
    CHECK(p.step.value > last.step.value);
    CHECK(p.tokens_per_s.value > last.tokens_per_s.value * 0.999);
    last = p;
  }
}

TEST_CASE("fewer kept rows are never slower without a score, and allow a larger batch") {
  const CostModel cost = on("l40s", "llama-2-7b");
  double last_time = INFINITY;
  std::uint64_t last_batch = 0;
  for (const double kept : {1.0, 0.9, 0.5, 0.2, 0.1}) {
    const ResidencySummary r = fraction_on("llama-2-7b", {2048, 512}, kept);
    CHECK(cost.predict(r, 16).step.value <= last_time);
    CHECK(cost.memory().largest_batch(r) >= last_batch);
    last_time = cost.predict(r, 16).step.value;
    last_batch = cost.memory().largest_batch(r);
  }
}

TEST_CASE("a score costs time and memory") {
  const CostModel cost = on("h100-sxm", "llama-2-7b");
  const ResidencySummary plain = fraction_on("llama-2-7b", {2048, 512}, 0.5);
  CHECK(cost.predict(with_scores(plain), 8).step.value > cost.predict(plain, 8).step.value);
  CHECK(cost.memory().ledger(with_scores(plain), 8).total() > cost.memory().ledger(plain, 8).total());
}

TEST_CASE(
    "what limits a step: weights at batch 1, KV at long contexts, arithmetic at large batches, launches for small "
    "models") {
  CHECK(on("h200", "llama-2-7b").predict(full_on("llama-2-7b", {128, 8}), 1).limited_by == Limit::kWeights);
  CHECK(on("h200", "llama-2-7b").predict(full_on("llama-2-7b", {4096, 8}), 32).limited_by == Limit::kKv);
  CHECK(on("h200", "llama-3-8b").predict(full_on("llama-3-8b", {16, 8}), 1024).limited_by == Limit::kCompute);
  ModelShape small = model("llama-2-7b");
  small.hidden = small.embedding_width = 256;
  small.ffn = 704;
  small.heads = small.kv_heads = 4;
  const CostModel cost(small, kF16, device("h200"), graphs());
  CHECK(cost.predict(summarise(synthetic::full({128, 8}, 32, 4)), 1).limited_by == Limit::kLaunches);
}

TEST_CASE("an engine without graphs is never faster, and pays for launches when the model is small") {
  const ResidencySummary r = full_on("llama-2-7b", {512, 8});
  const auto host = [&](const char* name) {
    return on("h200", "llama-2-7b", engine(name)).predict(r, 1).terms[4].value;
  };
  CHECK(host("eager") > host("graphs"));
  ModelShape small = model("llama-2-7b");
  small.hidden = small.embedding_width = 256;
  small.ffn = 704;
  small.heads = small.kv_heads = 4;
  EngineProfile slow = engine("eager");
  slow.launch_us = 20;
  const CostModel cost(small, kF16, device("h200"), slow);
  const Prediction p = cost.predict(summarise(synthetic::full({128, 8}, 32, 4)), 1);
  // 32 layers of 10 launches, 20 us each, hide what the device does; then 151 us a step and 4 us a request.
  CHECK(p.step.value == Approx(32 * 10 * 20e-6 + 155e-6));
}

TEST_CASE("intervals hold the value, and the wider one holds the narrower") {
  for (const char* name : {"h200", "a100-40g", "rtx-3090"}) {
    const Prediction p = on(name, "llama-2-7b").predict(full_on("llama-2-7b", {512, 8}), 4);
    for (const Estimate& e : {p.step, p.tokens_per_s}) {
      CHECK(0 < e.low95);
      CHECK(e.low95 < e.low80);
      CHECK(e.low80 < e.value);
      CHECK(e.value < e.high80);
      CHECK(e.high80 < e.high95);
    }
  }
}

TEST_CASE("a device that no one has measured has a wider interval than one with kernel tables") {
  const auto width = [](const char* name) {
    const Prediction p = on(name, "llama-2-7b").predict(full_on("llama-2-7b", {512, 8}), 1);
    return p.step.high80 / p.step.value;
  };
  CHECK(width("a100-40g") > width("a100-80g"));
  CHECK(width("rtx-3090") > width("rtx-4090"));
}

TEST_CASE("imported tensors without a model cost attention only") {
  ModelShape s;
  s.layers = 2;
  s.heads = s.kv_heads = 4;
  s.head_dim = s.v_head_dim = 64;
  const CostModel cost(s, kF16, device("h200"), graphs());
  const Prediction p = cost.predict(summarise(synthetic::full({64, 8}, 2, 4)), 2);
  CHECK(p.terms[0].value == 0);
  CHECK(p.terms[2].value == 0);
  CHECK(p.terms[4].value == 0);
  CHECK(p.terms[1].value > 2 * 8e-6);
  CHECK(cost.memory().ledger(summarise(synthetic::full({64, 8}, 2, 4)), 2).weights.value == 0);
}

TEST_CASE("the largest batch has no cap: tiny caches on a large device hold millions, and one more does not fit") {
  ModelShape s;
  s.layers = s.heads = s.kv_heads = 1;
  s.head_dim = s.v_head_dim = 16;
  const CostModel cost(s, kF16, device("h200"), graphs());
  const ResidencySummary r = summarise(synthetic::full({64, 8}, 1, 1));
  // 72 rows of 64 bytes and 64 live floats are 4,864 bytes a sequence; the device holds about 139 GiB.
  const std::uint64_t batch = cost.memory().largest_batch(r);
  CHECK(batch > 20U << 20);
  CHECK(batch < 139 * (std::uint64_t{1} << 30) / 4864);
  CHECK(cost.memory().ledger(r, batch).fits());
  CHECK_FALSE(cost.memory().ledger(r, batch + 1).fits());
}

TEST_CASE("with a window the largest batch follows from what each layer can hold, not from the context") {
  // LLaMA-3-8B's caches as if every second layer saw 1,024 tokens.
  ModelShape s = model("llama-3-8b");
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) s.layer_windows.push_back(layer % 2 == 0 ? 1024 : 0);
  const CostModel cost(s, kF16, device("h100-sxm"), graphs());
  constexpr Lengths kLong = {16384, 512};
  const std::uint64_t without = cost.memory().largest_batch(summarise(synthetic::full(kLong, s.layers, s.kv_heads)));
  const auto summary = summarise(synthetic::windowed(kLong, s.layer_windows, s.kv_heads));
  const std::uint64_t with = cost.memory().largest_batch(summary);
  CHECK(kv_bytes(s, DType::kF16, kLong.prompt + kLong.output).value ==
        16 * (1024 + 16896) * std::uint64_t{s.kv_heads} * 2 * 128 * 2);
  CHECK(cost.memory().ledger(summary, with).kv_allocated ==
        kv_bytes(s, DType::kF16, kLong.prompt + kLong.output) * with);
  CHECK(static_cast<double>(with) / static_cast<double>(without) == Approx(2 * 16896.0 / (16896 + 1024)).epsilon(0.1));
}

TEST_CASE("a what-if point allocates nothing") {
  const CostModel cost = on("h200", "llama-2-7b");
  const ResidencySummary r = with_scores(fraction_on("llama-2-7b", {2048, 512}, 0.5));
  const std::size_t before = allocations;
  double sum = 0;
  for (std::uint64_t batch = 1; batch <= 64; ++batch) {
    sum += cost.predict(r, batch).step.value + static_cast<double>(cost.memory().largest_batch(r));
  }
  const std::size_t after = allocations;
  CHECK(after == before);
  CHECK(sum > 0);
}

TEST_CASE("an unknown engine is answered with the nearest name") {
  CHECK_THROWS_WITH(engine("graph"), "unknown engine 'graph'; did you mean graphs?");
  CHECK_THROWS_WITH(engine("Ollama"), "unknown engine 'Ollama'; the profile of ollama is llama-cpp");
}

}  // namespace kvroof
