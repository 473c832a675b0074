// Scores of tokens by the model's repetition of its prompt, against those of kvpress' KVzipPress.
#include "kernels/engine/repetition.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "tests/golden/policy_cases.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::vector<std::int64_t> ids_of(const Case& c, std::string_view tensor) {
  return c.file.read_integers(*c.find(tensor));
}

std::unique_ptr<Backend> backend_of(const Model& model, bool fast, PolicySpec policy) {
  auto ops = fast ? make_fast_ops(2) : std::make_unique<ReferenceOps>();
  return std::make_unique<CpuBackend>(model, std::move(ops), CpuBackendOptions{std::move(policy), 0, DType::kF32});
}

PolicySpec policy_of(const Case& c) {
  const auto& parameters = c.json["parameters"];
  return spec_of(fmt::format("kvzip:compression={}:share={}:repeat={}", parameters["compression_ratio"].get<double>(),
                             parameters["layerwise"].get<bool>() ? "layer" : "model",
                             parameters["chunk_size"].get<std::uint32_t>()));
}

// Positions that each head of each layer still has, from what the back end says that it evicts.
class Survivors final : public Recorder {
 public:
  explicit Survivors(const Case& c) : heads_(c.size("scores", 1)), tokens_(c.size("scores", 2)) {
    held_.resize(c.size("scores", 0) * heads_ * tokens_, 1);
  }
  void rows(std::uint32_t, LayerId, std::uint32_t, std::uint32_t, std::span<const std::byte>,
            std::span<const std::byte>, std::span<const std::byte>) override {}
  void eviction(const EvictionRecord& e) override { held_[(e.layer * heads_ + e.head) * tokens_ + e.position] = 0; }
  [[nodiscard]] Positions of(std::uint32_t layer, std::uint32_t head) const {
    Positions positions;
    for (std::uint32_t t = 0; t < tokens_; ++t) {
      if (held_[(layer * heads_ + head) * tokens_ + t] != 0) positions.push_back(t);
    }
    return positions;
  }

 private:
  std::size_t heads_, tokens_;
  std::vector<char> held_;
};

}  // namespace

TEST_CASE("a model that repeats its prompt gives the reference's scores, and kvzip keeps the reference's sets") {
  const bool fast = GENERATE(false, true);
  for (const Case& c : cases_named("repetition_")) {
    const Model model =
        load_model(KVROOF_SOURCE_DIR "/" + c.json["parameters"]["model"].get<std::string>(), DType::kF32);
    RepeatingBackend::Parts parts;
    PolicySpec policy = policy_of(c);
    const auto tokens = policy_info("kvzip").traits(policy).repeats;
    parts.budget = policy.budget;
    parts.scores = std::make_shared<TokenScores>();
    policy.token_scores = parts.scores;
    parts.full = backend_of(model, fast, spec_of("full"));
    parts.inner = backend_of(model, fast, policy);
    std::vector<float> scores;
    RepeatingBackend backend(model, std::move(parts), {ids_of(c, "first"), ids_of(c, "again"), ids_of(c, "suffix")},
                             tokens, 2, [&](std::uint32_t, std::span<const float> of) {
                               scores.assign(of.begin(), of.end());
                             });
    Survivors survivors(c);
    backend.set_recorder(&survivors);
    backend.prefill(3, ids_of(c, "ids"), 1, {}, {});
    const std::vector<float> expected = c.floats("scores");
    REQUIRE(scores.size() == expected.size());
    double furthest = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      furthest = std::max(furthest, std::abs(double{1} * scores[i] - expected[i]));
    }
    INFO(c.name << (fast ? ", fast" : ", reference"));
    CHECK(furthest < 1e-5);  // the reference's own in float64 lie within 2e-6 of these
    for (std::uint32_t layer = 0; layer < c.size("scores", 0); ++layer) {
      for (std::uint32_t head = 0; head < c.size("scores", 1); ++head) {
        CHECK(survivors.of(layer, head) == expected_row(c, "kept_mask", layer, head));
      }
    }
  }
}
