// Policies that live on the device beside the same policies' objects on the host, behind one engine.
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "kernels/cuda/cuda_backend.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;

namespace {

class Listener final : public Recorder {
 public:
  void rows(std::uint32_t, LayerId, std::uint32_t, std::uint32_t, std::span<const std::byte>,
            std::span<const std::byte>, std::span<const std::byte>) override {}
  void eviction(const EvictionRecord& e) override {
    gone[{e.sequence, e.step, e.layer, e.head}].insert(e.position);
    ++count;
  }
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::set<std::uint32_t>> gone;
  std::size_t count = 0;
};

struct Outcome {
  Listener heard;
  std::vector<float> logits;
  ByteCounters bytes;
  std::uint64_t resident = 0;
};

// Prompts of 9, 11, … tokens, decoded together.
Outcome outcome_of(const Model& model, const std::string& policy, bool fused, std::uint32_t batch,
                   std::uint32_t steps) {
  cuda::CudaBackendOptions options{parse_policies(policy).at(0), 7, DType::kF16};
  options.fused = fused;
  cuda::CudaBackend backend(model, options);
  Outcome out;
  backend.set_recorder(&out.heard);
  const std::size_t vocab = model.config.shape.vocab;
  std::mt19937 random(11);
  for (std::uint32_t s = 0; s < batch; ++s) {
    std::vector<std::int64_t> ids(9 + 2 * s);
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % vocab);
    std::vector<float> last(vocab);
    backend.prefill(s, ids, steps, last, {});
  }
  backend.take_counters();
  std::vector<float> logits(batch * vocab);
  for (std::uint32_t i = 0; i < steps; ++i) {
    std::vector<DecodeEntry> entries;
    for (std::uint32_t s = 0; s < batch; ++s) entries.push_back({s, (17 * i + 31 * s + 3) % 200});
    backend.decode(entries, logits);
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  }
  out.bytes = backend.take_counters();
  out.resident = backend.kv_usage().resident_bytes;
  return out;
}

Model model_named(const std::string& name) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kF16);
}

void check_same(const Model& model, const std::string& policy, std::uint32_t batch, std::uint32_t steps) {
  INFO(policy);
  const Outcome device = outcome_of(model, policy, true, batch, steps);
  const Outcome host = outcome_of(model, policy, false, batch, steps);
  CHECK(device.heard.count == host.heard.count);
  CHECK(device.heard.gone == host.heard.gone);
  CHECK(device.bytes.bytes == host.bytes.bytes);
  CHECK(device.resident == host.resident);
  REQUIRE(device.logits.size() == host.logits.size());
  // Where no row of a prompt is shown, its attention rounds weights to 16 bits for the tensor cores.
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < host.logits.size(); ++i) {
    worst = std::max(worst, std::abs(device.logits[i] - host.logits[i]));
    largest = std::max(largest, std::abs(host.logits[i]));
  }
  CHECK(worst <= 5e-3F * largest);
}

}  // namespace

TEST_CASE("steps made as one graph of launches are the steps launched one by one, while sequences come and go") {
  const Model model = model_named("llama-gqa");
  const std::size_t vocab = model.config.shape.vocab;
  for (const char* policy :
       {"full", "streaming:budget=5:sinks=2", "h2o:budget=8:group=mean", "keyformer:budget=8:group=max:tau=0.5..3",
        "scissorhands:budget=9:recent=3:drop=3:group=none", "tova:budget=8"}) {
    INFO(policy);
    cuda::CudaBackendOptions options{parse_policies(policy).at(0), 7, DType::kF16};
    cuda::CudaBackend graph(model, options), single(model, options);
    Listener listener;
    single.set_recorder(&listener);  // which has the launches one by one
    std::vector<float> of_graph, of_single;
    const auto prefill = [&](std::uint32_t sequence, std::size_t tokens) {
      std::vector<std::int64_t> ids(tokens, 5 + sequence);
      for (cuda::CudaBackend* backend : {&graph, &single}) backend->prefill(sequence, ids, 20, {}, {});
    };
    const auto decode = [&](std::vector<std::uint32_t> sequences, std::uint32_t steps) {
      of_graph.resize(sequences.size() * vocab);
      of_single.resize(sequences.size() * vocab);
      for (std::uint32_t i = 0; i < steps; ++i) {
        std::vector<DecodeEntry> entries;
        for (const std::uint32_t s : sequences) entries.push_back({s, (17 * i + 31 * s + 3) % 200});
        graph.decode(entries, of_graph);
        single.decode(entries, of_single);
        REQUIRE(of_graph == of_single);
      }
    };
    prefill(0, 9);
    decode({0}, 4);
    prefill(1, 30);
    decode({0}, 3);
    decode({1}, 3);
    decode({0, 1}, 3);
    graph.release(0);
    single.release(0);
    decode({1}, 3);
    CHECK(graph.take_counters().bytes == single.take_counters().bytes);
    CHECK(graph.kv_usage().resident_bytes == single.kv_usage().resident_bytes);
  }
}

TEST_CASE("windows, streaming and full take the slots and give up the tokens that their objects do, without them") {
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"full", "window:budget=10", "streaming:budget=5:sinks=2"}) {
    check_same(model, policy, 2, 3);
  }
}

TEST_CASE("a device that keeps H2O's sums evicts what the policy object evicts, whatever the group does with them") {
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"h2o:budget=10:group=mean", "h2o:budget=8:group=max:recent=2",
                             "h2o:budget=8:group=none", "h2o:budget=0.6@current"}) {
    check_same(model, policy, 2, 3);
  }
}

TEST_CASE("a device that keeps Keyformer's noisy sums evicts what the policy object evicts") {
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"keyformer:budget=8:group=max:tau=0.5..3", "keyformer:budget=10:noise=query:group=mean",
                             "keyformer:budget=8:group=none:recent=3"}) {
    check_same(model, policy, 2, 3);
  }
}

TEST_CASE("a device that sums the newest row over a layer's heads evicts what TOVA's object evicts, in all of them") {
  // Heads that are not shared, one that all share, latent rows.
  for (const char* name : {"gptj", "falcon", "deepseek-v2"}) {
    INFO(name);
    check_same(model_named(name), "tova:budget=8", 2, 4);
  }
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"tova:budget=1", "tova:budget=10", "tova:budget=12:rule=kvpress", "tova:budget=40",
                             "tova:budget=0.6@current", "tova:budget=8:when=prefill"}) {
    check_same(model, policy, 3, 4);
  }
}

TEST_CASE("a device that counts for Scissorhands drops what the policy object drops, many tokens at once") {
  // One layer: in the next ones the rounding of attention on the tensor cores may turn a count.
  Model model = model_named("llama-gqa");
  model.config.shape.layers = 1;
  model.weights.layers.resize(1);
  for (const char* policy : {"scissorhands:budget=9:recent=3:drop=3:reading=B:group=none",
                             "scissorhands:budget=9:recent=3:drop=3:group=none:history=2000",
                             "scissorhands:budget=9:recent=3:drop=3",
                             "scissorhands:budget=8:recent=2:drop=2:history=5:threshold=length"}) {
    check_same(model, policy, 2, 3);
  }
}
