#include "kernels/cuda/cuda_backend.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/emulator.hpp"
#include "kernels/engine/elements.hpp"
#include "kernels/engine/random_model.hpp"
#include "kernels/engine/sampler.hpp"
#include "sim/model/config_of_shape.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;

namespace {

Model model_named(const std::string& name, DType type) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, type);
}

PolicySpec policy_of(const std::string& text) { return parse_policies(text).at(0); }

std::vector<std::int64_t> prompt_of(const Model& model, std::uint32_t n) {
  std::mt19937 random(5);
  std::vector<std::int64_t> ids(n);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % model.config.shape.vocab);
  return ids;
}

// Evictions and logits of a prompt and a few given tokens.
class Listener final : public Recorder {
 public:
  void rows(std::uint32_t, LayerId, std::uint32_t, std::uint32_t, std::span<const std::byte> q,
            std::span<const std::byte> k, std::span<const std::byte> v) override {
    row_bytes += q.size() + k.size() + v.size();
  }
  void eviction(const EvictionRecord& e) override { evictions.push_back(e); }
  void experts(std::uint64_t experts) override { passed.push_back(experts); }
  std::vector<EvictionRecord> evictions;
  std::vector<std::uint64_t> passed;  // of each call
  std::uint64_t row_bytes = 0;
};

struct Outcome {
  std::vector<float> logits;
  Listener heard;
  ByteCounters bytes;
  KvUsage usage;
};

Outcome outcome_of(Backend& backend, const Model& model, std::uint32_t prompt, std::uint32_t steps,
                   std::uint32_t batch) {
  Outcome out;
  backend.set_recorder(&out.heard);
  const std::size_t vocab = model.config.shape.vocab;
  std::vector<float> last(vocab);
  const auto collect = [&](std::span<const float> logits) {
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  };
  for (std::uint32_t s = 0; s < batch; ++s) backend.prefill(s, prompt_of(model, prompt + s), steps, last, collect);
  std::vector<float> logits(batch * vocab);
  for (std::uint32_t i = 0; i < steps; ++i) {
    std::vector<DecodeEntry> entries;
    for (std::uint32_t s = 0; s < batch; ++s) {
      entries.push_back({s, static_cast<std::int64_t>((17 * i + 31 * s + 3) % std::min<std::size_t>(vocab, 200))});
    }
    backend.decode(entries, logits);
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  }
  out.usage = backend.kv_usage();
  out.bytes = backend.take_counters();
  return out;
}

double difference(const Outcome& a, const Outcome& b) {
  REQUIRE(a.logits.size() == b.logits.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    REQUIRE(std::isfinite(a.logits[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b.logits[i])));
    worst = std::max(worst, std::abs(static_cast<double>(a.logits[i]) - static_cast<double>(b.logits[i])));
  }
  return worst / largest;
}

struct Pair {
  Outcome device, host;
};

Pair run_both(const Model& model, const std::string& policy, std::uint32_t prompt, std::uint32_t steps,
              std::uint32_t batch) {
  cuda::CudaBackend device(model, {policy_of(policy), 7, model.type});
  CpuBackend host(model, std::make_unique<ReferenceOps>(), {policy_of(policy), 7, model.type});
  return {outcome_of(device, model, prompt, steps, batch), outcome_of(host, model, prompt, steps, batch)};
}

Pair run_both(const std::string& name, DType type, const std::string& policy, std::uint32_t prompt,
              std::uint32_t steps, std::uint32_t batch, std::vector<std::uint32_t> windows = {}) {
  Model model = model_named(name, type);
  model.config.shape.layer_windows = std::move(windows);
  return run_both(model, policy, prompt, steps, batch);
}

// Biases as large as what they are added to, other ones for each expert: what is left out or mixed up is seen.
void add_expert_biases(Model& model) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 0.5F);
  model.config.shape.mlp_bias = true;
  for (LayerWeights& layer : model.weights.layers) {
    for (Mlp& mlp : layer.experts.routed) {
      for (Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) {
        std::vector<float> bias(linear->matrix.rows);
        for (float& b : bias) b = normal(random);
        linear->bias = make_weight(DType::kF32, std::as_bytes(std::span(bias)).data(), 1, bias.size(), model.type);
      }
    }
  }
}

// Evictions, bytes and memory are the host's, and logits within rounding.
void check_alike(const Pair& pair) {
  CHECK(difference(pair.device, pair.host) <= 5e-3);
  REQUIRE(pair.device.heard.evictions.size() == pair.host.heard.evictions.size());
  CHECK(pair.host.heard.evictions.size() > 0);
  for (std::size_t i = 0; i < pair.host.heard.evictions.size(); ++i) {
    CHECK(pair.device.heard.evictions[i].position == pair.host.heard.evictions[i].position);
  }
  CHECK(pair.device.heard.row_bytes == pair.host.heard.row_bytes);
  CHECK(pair.device.usage.resident_bytes == pair.host.usage.resident_bytes);
  for (const Cause cause : {Cause::kWeights, Cause::kKvWrite, Cause::kScores, Cause::kCompaction}) {
    INFO(kCauseNames[static_cast<std::size_t>(cause)]);
    CHECK(pair.device.bytes[cause] == pair.host.bytes[cause]);
  }
}

}  // namespace

TEST_CASE("the device's logits equal the reference's for a prompt and decoding, alone and in a batch") {
  for (const char* name : {"llama", "llama-gqa", "llama-bias", "opt-350m"}) {
    INFO(name);
    const Pair pair = run_both(name, DType::kF16, "full", 19, 2, 1);
    CHECK(difference(pair.device, pair.host) <= 5e-3);
  }
  const Pair batch = run_both("llama-gqa", DType::kBF16, "full", 5, 2, 5);
  CHECK(difference(batch.device, batch.host) <= 2e-2);
}

TEST_CASE("the device chooses of each row what the host would, whoever decides what goes") {
  const Model model = model_named("llama-gqa", DType::kF16);
  const std::uint32_t vocab = model.config.shape.vocab;
  for (const char* policy : {"h2o:budget=8", "knorm:budget=8"}) {
    INFO(policy);
    std::array<cuda::CudaBackend, 2> backends = {cuda::CudaBackend(model, {policy_of(policy), 7, model.type}),
                                                 cuda::CudaBackend(model, {policy_of(policy), 7, model.type})};
    std::vector<float> last(vocab), logits(std::size_t{3} * vocab);
    for (cuda::CudaBackend& backend : backends) {
      for (std::uint32_t s = 0; s < 3; ++s) backend.prefill(s, prompt_of(model, 9 + s), 4, last, {});
    }
    for (std::uint32_t step = 0; step < 3; ++step) {  // the second is the first that is a graph
      std::vector<DecodeEntry> entries;
      for (std::uint32_t s = 0; s < 3; ++s) entries.push_back({s, (17 * step + 31 * s + 3) % vocab});
      std::vector<TokenChoice> choices(3, {-1, 1.0F});
      backends[0].decode(entries, logits);
      REQUIRE(backends[1].decode_greedily(entries, choices));
      for (std::size_t s = 0; s < 3; ++s) {
        const auto row = std::span<const float>(logits).subspan(s * vocab, vocab);
        CHECK(choices[s].token == sample(row, {}, 0, 0));
        CHECK_THAT(choices[s].logprob, Catch::Matchers::WithinAbs(log_probability(row, choices[s].token), 4e-6));
      }
    }
    CHECK(backends[0].take_counters().total() == backends[1].take_counters().total());
  }
}

TEST_CASE("on the device too a layer's own rotary rule says whether a prompt takes its second table") {
  Model model = model_named("llama-gqa", DType::kF16);
  const auto logits = [&] {
    cuda::CudaBackend backend(model, {policy_of("full"), 7, model.type});
    return outcome_of(backend, model, 9, 2, 2).logits;
  };
  const std::vector<float> expected = logits();
  ModelOptions& options = model.config.options;
  options.rotary.resize(2, options.rotary[0]);
  options.layers[1].rotary = 1;
  options.rotary[0].long_from = 4;
  options.rotary[0].long_inverse_frequencies.swap(options.rotary[0].inverse_frequencies);
  options.rotary[0].inverse_frequencies.assign(options.rotary[0].dims / 2, 7);
  CHECK(logits() == expected);
}

TEST_CASE("on the device too a prefill that fails leaves nothing behind, and the other sequences go on") {
  const Model model = model_named("llama-gqa", DType::kF16);
  class Full final : public Recorder {
   public:
    void rows(std::uint32_t sequence, LayerId layer, std::uint32_t, std::uint32_t, std::span<const std::byte>,
              std::span<const std::byte>, std::span<const std::byte>) override {
      if (sequence == 1 && layer.value == 1) throw Error("no space is left");
    }
    void eviction(const EvictionRecord&) override {}
  } full;
  const auto decoded = [&](bool fails) {
    cuda::CudaBackend backend(model, {policy_of("h2o:budget=4"), 7, model.type});
    backend.prefill(0, prompt_of(model, 9), 4, {}, {});
    const KvUsage before = backend.kv_usage();
    if (fails) {
      backend.set_recorder(&full);
      CHECK_THROWS_WITH(backend.prefill(1, prompt_of(model, 9), 4, {}, {}), "no space is left");
      backend.set_recorder(nullptr);
      CHECK(backend.kv_usage().resident_bytes == before.resident_bytes);
      CHECK(backend.kv_usage().allocated_bytes == before.allocated_bytes);
    }
    std::vector<float> logits(model.config.shape.vocab);
    const DecodeEntry token{0, 7};
    backend.decode({&token, 1}, logits);
    backend.prefill(1, prompt_of(model, 9), 4, {}, {});
    CHECK(backend.kv_usage().resident_bytes == 2 * before.resident_bytes);
    return logits;
  };
  CHECK(decoded(true) == decoded(false));
}

TEST_CASE("every family that the device runs moves the reference's bytes and gives its logits") {
  std::uint32_t ran = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(KVROOF_SOURCE_DIR) /
                                                               "tests/golden/models")) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    const Model model = model_named(name, DType::kF16);
    if (cuda_model_problem(model.config, DType::kF16, DType::kF16)) continue;
    const Pair pair = run_both(name, DType::kF16, "full", 6, 2, 1);
    CHECK(difference(pair.device, pair.host) <= 1e-2);
    for (const Cause cause : {Cause::kWeights, Cause::kKvWrite}) {
      INFO(kCauseNames[static_cast<std::size_t>(cause)]);
      CHECK(pair.device.bytes[cause] == pair.host.bytes[cause]);
    }
    ++ran;
  }
  CHECK(ran == 87);
}

TEST_CASE("states of Mamba-2 may have any number of heads: what a product loads at once stays aligned") {
  ModelShape shape = model_named("granitemoehybrid-dense", DType::kF16).config.shape;
  for (const std::uint32_t heads : {5U, 6U, 7U}) {
    INFO(heads);
    shape.state.heads = shape.state.key_heads = heads;
    shape.state.key_dim = 8;
    Model model = random_model(config_of_shape(shape), DType::kF16, heads);
    make_elements(model);
    const Pair pair = run_both(model, "full", 5, 3, 1);
    CHECK(difference(pair.device, pair.host) <= 2e-2);
  }
}

// Rounding may decide otherwise where two scores are close; here they are not.

TEST_CASE("a policy evicts the same tokens on the device as on the host, and the same bytes move") {
  for (const char* policy : {"window:budget=8", "streaming:budget=8", "h2o:budget=8", "keyformer:budget=8",
                             "scissorhands:budget=8:prompt=stream", "h2o:budget=8:group=none"}) {
    INFO(policy);
    check_alike(run_both("llama-gqa", DType::kF16, policy, 12, 3, 1));
  }
}

TEST_CASE("policies that score by k, v and q find them on the device") {
  for (const char* policy : {"knorm:budget=8", "keydiff:budget=8:group=none", "expected-attention:budget=8:sinks=2",
                             "criticalkv:budget=8:window=3", "r-kv:budget=8:window=2:when=2"}) {
    INFO(policy);
    check_alike(run_both("llama-gqa", DType::kF16, policy, 12, 3, 2));
  }
}

TEST_CASE("heads hold different numbers of tokens on the device as on the host") {
  for (const char* policy : {"adakv:budget=8:window=3", "adakv:budget=8:window=3:group=none:rule=kvpress"}) {
    INFO(policy);
    check_alike(run_both("llama-gqa", DType::kF16, policy, 12, 3, 2));
  }
}

TEST_CASE("a policy that looks at the last rows of a prompt is shown those alone, and evicts the same") {
  for (const char* policy : {"snapkv:budget=8:window=3", "tova:budget=8"}) {
    INFO(policy);
    check_alike(run_both("llama-gqa", DType::kF16, policy, 45, 3, 1));
    check_alike(run_both("llama-gqa", DType::kF16, policy, 12, 3, 1, {0, 5}));
  }
}

TEST_CASE("latent attention keeps one row a token on the device, evicts what the host evicts and moves its bytes") {
  for (const char* policy : {"window:budget=8", "h2o:budget=8", "keyformer:budget=8", "tova:budget=8", "knorm:budget=8",
                             "snapkv:budget=8:window=3", "h2o:budget=8:group=none",
                             "scissorhands:budget=8:prompt=stream"}) {
    INFO(policy);
    const Pair pair = run_both("deepseek-v2", DType::kF16, policy, 12, 3, 1);
    check_alike(pair);
    CHECK(pair.device.heard.passed == pair.host.heard.passed);
  }
  check_alike(run_both("deepseek-v2", DType::kF16, "h2o:budget=8", 11, 2, 6));
}

TEST_CASE("sinks have their share of the weights that policies see, on the device and in rows sent to the host") {
  for (const char* policy : {"h2o:budget=6", "h2o:budget=6:group=none", "keyformer:budget=6", "tova:budget=6",
                             "scissorhands:budget=6:prompt=stream", "snapkv:budget=6:window=3",
                             "adakv:budget=6:window=3"}) {
    for (const auto& windows : {std::vector<std::uint32_t>{}, {5, 0, 5}}) {
      INFO(policy << ", windows in " << windows.size() << " layers");
      Model model = model_named("gpt_oss", DType::kF16);
      model.config.shape.layer_windows = windows;
      model.config.shape.experts_per_token = model.config.shape.experts;  // rounding decides nothing
      check_alike(run_both(model, policy, 14, 3, 2));
    }
  }
}

TEST_CASE("mixtures of experts give the reference's logits, bytes and experts, for one token, a batch and a prompt") {
  for (const char* name : {"mixtral", "qwen2-moe", "qwen3-moe", "gpt_oss", "granitemoehybrid", "nemotron_h",
                           "ernie4_5_moe", "granitemoe", "hunyuan_v1_moe"}) {
    INFO(name);
    const Pair few = run_both(name, DType::kF16, "h2o:budget=8", 11, 3, 1);
    check_alike(few);
    CHECK(few.device.heard.passed == few.host.heard.passed);
    const Pair many = run_both(name, DType::kF16, "h2o:budget=8", 11, 2, 7);
    check_alike(many);
    CHECK(many.device.heard.passed == many.host.heard.passed);
    CHECK(many.host.heard.passed.size() == 9);
  }
}

TEST_CASE("SparseMixer's experts give the reference's logits and bytes, for one token, a batch and a prompt") {
  // Weights jump where an expert is taken before another or is near it no more: of longer prompts rounding decides.
  for (const std::uint32_t batch : {1U, 7U}) check_alike(run_both("phimoe", DType::kF16, "h2o:budget=4", 6, 2, batch));
}

TEST_CASE("experts with biases give the reference's logits, bytes and experts, for one token, a batch and a prompt") {
  Model model = model_named("mixtral", DType::kF16);
  const Pair without = run_both(model, "h2o:budget=8", 11, 3, 1);
  add_expert_biases(model);
  const Pair few = run_both(model, "h2o:budget=8", 11, 3, 1);
  check_alike(few);
  CHECK(difference(few.host, without.host) > 0.1);
  CHECK(few.device.heard.passed == few.host.heard.passed);
  const Pair many = run_both(model, "h2o:budget=8", 11, 2, 7);  // more pairs than go one by one
  check_alike(many);
  CHECK(many.device.heard.passed == many.host.heard.passed);
}

TEST_CASE("a sliding window bounds a layer's cache on the device as on the host, whatever the policy sees of it") {
  for (const char* policy : {"full", "h2o:budget=8", "h2o:budget=3", "scissorhands:budget=8:prompt=stream"}) {
    INFO(policy);
    const Pair pair = run_both("llama-gqa", DType::kF16, policy, 12, 3, 1, {0, 5});
    CHECK(difference(pair.device, pair.host) <= 5e-3);
    REQUIRE(pair.device.heard.evictions.size() == pair.host.heard.evictions.size());
    for (std::size_t i = 0; i < pair.host.heard.evictions.size(); ++i) {
      CHECK(pair.device.heard.evictions[i].position == pair.host.heard.evictions[i].position);
    }
    CHECK(pair.device.usage.resident_bytes == pair.host.usage.resident_bytes);
    CHECK(pair.device.usage.peak_resident_bytes == pair.host.usage.peak_resident_bytes);
    CHECK(pair.device.bytes[Cause::kCompaction] == pair.host.bytes[Cause::kCompaction]);
  }
}

TEST_CASE("rows that a window and a policy leave at once reach their slots in whatever order a launch moves them") {
  struct Backwards {
    Backwards() { std::swap(cuda::emulator::backwards, other); }
    ~Backwards() { std::swap(cuda::emulator::backwards, other); }
    bool other = true;
  };
  for (const char* policy : {"h2o:budget=6:when=4", "h2o:budget=5:when=5:group=none", "tova:budget=6:when=4"}) {
    for (const std::uint32_t window : {9U, 10U, 11U}) {
      INFO(policy << ", window " << window);
      const Backwards backwards;
      check_alike(run_both("llama-gqa", DType::kF16, policy, 8, 16, 1, {0, window}));
    }
  }
}
