// Prompts that the model repeats: what it is asked, when, and what is refused. Scores are held to kvpress in golden.
#include "kernels/engine/repetition.hpp"

#include "sim/core/error.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Ids = std::vector<std::int64_t>;

Model small_model(std::uint32_t positions, std::vector<std::uint32_t> windows = {}) {
  Model model;
  model.config.shape.layers = 2;
  model.config.shape.heads = model.config.shape.kv_heads = model.config.shape.head_dim = 1;
  model.config.shape.max_positions = positions;
  model.config.shape.layer_windows = std::move(windows);
  model.config.options.layers.resize(2);
  model.weights.layers.resize(2);
  return model;
}

// Whose q is 1, and whose k is the token itself, in every layer; it notes the prompts it computes.
class EchoBackend final : public Backend {
 public:
  explicit EchoBackend(std::vector<Ids>& prompts, KvUsage usage = {}) : prompts_(prompts), usage_(usage) {}
  void prefill(std::uint32_t, std::span<const std::int64_t> ids, std::uint32_t, std::span<float>,
               const LogitsSink&) override {
    prompts_.emplace_back(ids.begin(), ids.end());
    const std::vector<float> keys(ids.begin(), ids.end()), ones(ids.size(), 1.0F);
    const auto count = static_cast<std::uint32_t>(ids.size());
    for (std::uint32_t layer = 0; recorder_ != nullptr && layer < 2; ++layer) {
      recorder_->rows(0, LayerId(layer), 0, count, std::as_bytes(std::span(ones)), std::as_bytes(std::span(keys)), {});
    }
  }
  void decode(std::span<const DecodeEntry>, std::span<float>) override {}
  void release(std::uint32_t) override {}
  [[nodiscard]] KvUsage kv_usage() const override { return usage_; }
  ByteCounters take_counters() override { return {}; }
  void set_recorder(Recorder* recorder) override { recorder_ = recorder; }

 private:
  std::vector<Ids>& prompts_;
  KvUsage usage_;
  Recorder* recorder_ = nullptr;
};

struct Repeating {
  std::vector<Ids> passes, prompts;
  std::vector<float> scores;
  std::shared_ptr<TokenScores> held = std::make_shared<TokenScores>();
  RepeatingBackend backend;

  Repeating(const Model& model, const char* budget, std::uint32_t tokens, bool watched = true, KvUsage of_passes = {},
            KvUsage of_prompts = {})
      : backend(model, parts(budget, of_passes, of_prompts), {{-101, -102}, {-103}, {-104}}, tokens, 1,
                watched ? RepeatingBackend::Sink([this](auto, auto of) { scores.assign(of.begin(), of.end()); })
                        : nullptr) {}

  RepeatingBackend::Parts parts(const char* budget, KvUsage of_passes, KvUsage of_prompts) {
    RepeatingBackend::Parts parts;
    parts.full = std::make_unique<EchoBackend>(passes, of_passes);
    parts.inner = std::make_unique<EchoBackend>(prompts, of_prompts);
    parts.budget = spec_of(std::string("kvzip:") + budget).budget;
    parts.scores = held;
    return parts;
  }
};

}  // namespace

TEST_CASE("a prompt is repeated part after part, each behind all of it, the later ones after what came before them") {
  const Model model = small_model(64);
  Repeating repeating(model, "budget=2", 10);
  Ids prompt;
  for (std::int64_t i = 0; i < 23; ++i) prompt.push_back(i);
  repeating.backend.prefill(0, prompt, 1, {}, {});
  const auto behind = [&](const Ids& more) {
    Ids ids = prompt;
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  };
  REQUIRE(repeating.passes.size() == 3);
  CHECK(repeating.passes[0] == behind({-101, -102, -104, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  CHECK(repeating.passes[1] ==
        behind({-103, 2, 3, 4, 5, 6, 7, 8, 9, -104, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  CHECK(repeating.passes[2] == behind({-103, 12, 13, 14, 15, 16, 17, 18, 19, -104, 20, 21, 22}));
  CHECK(repeating.prompts == std::vector<Ids>{prompt});
}

TEST_CASE("a token is worth the largest weight of any row over its part, that row's repetition and the first tokens") {
  Model model = small_model(64);
  for (auto& layer : model.config.options.layers) layer.scale = 1;
  Repeating repeating(model, "budget=2", 3);
  // Tokens are their own logits, so that those which ask take nothing of a row.
  repeating.backend.prefill(0, Ids{0, 0, 0, 0, 0, 1}, 1, {}, {});
  REQUIRE(repeating.scores.size() == 2 * 6);
  // The row before a part is repeated sees most: of the first part its three tokens, of the second sinks as well.
  const double first = 1.0 / 3, second = 1 / (3 + 2 + std::exp(1.0));
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const float* scores = repeating.scores.data() + layer * 6;
    for (std::size_t t = 0; t < 3; ++t) CHECK(static_cast<double>(scores[t]) == Approx(first).epsilon(1e-6));
    CHECK(static_cast<double>(scores[3]) == Approx(second).epsilon(1e-6));
    CHECK(static_cast<double>(scores[5]) == Approx(std::exp(1.0) * second).epsilon(1e-6));
  }
}

TEST_CASE("the policy has the scores of a prompt from then on until its sequence ends") {
  const Model model = small_model(64);
  Repeating repeating(model, "budget=1", 8);
  repeating.backend.prefill(5, Ids{1, 2}, 1, {}, {});
  CHECK((repeating.held->layers == 2 && repeating.held->heads == 1));
  CHECK(repeating.held->sequences.at(5) == repeating.scores);
  repeating.backend.release(5);
  CHECK(repeating.held->sequences.empty());
}

TEST_CASE("a prompt that the budget keeps whole is not repeated, unless somebody wants its scores") {
  const Model model = small_model(64);
  Repeating unwatched(model, "budget=2", 8, false), watched(model, "budget=2", 8);
  for (Repeating* repeating : {&unwatched, &watched}) repeating->backend.prefill(0, Ids{1, 2}, 1, {}, {});
  CHECK(unwatched.passes.empty());
  CHECK(unwatched.held->sequences.at(0) == std::vector<float>(4, 0.0F));
  CHECK(watched.passes.size() == 1);
  unwatched.backend.prefill(1, Ids{1, 2, 3}, 1, {}, {});
  CHECK(unwatched.passes.size() == 1);
}

TEST_CASE("where the context has no room for a repetition, or a window hides the prompt from it, that is said") {
  const Model model = small_model(7);
  Repeating repeating(model, "budget=1", 8);
  CHECK_THROWS_WITH(repeating.backend.prefill(0, Ids{1, 2, 3}, 1, {}, {}),
                    ContainsSubstring("prompt 0 has 3 tokens, with a repetition behind it 9, but the context of the "
                                      "model is 7"));
  CHECK(repeating.held->sequences.empty());
  CHECK(repeating.passes.empty());
  repeating.backend.prefill(0, Ids{1, 2}, 1, {}, {});
  CHECK(repeating.passes.size() == 1);
  const Model windowed = small_model(64, {0, 16});
  CHECK_THROWS_WITH(Repeating(windowed, "budget=1", 8), ContainsSubstring("layer 1 of") &&
                                                            ContainsSubstring("has a window of 16 tokens"));
}

TEST_CASE("the largest memory is that of a repetition beside what other sequences hold") {
  const Model model = small_model(64);
  KvUsage of_passes, of_prompts;
  of_passes.peak_bytes = 100;
  of_passes.peak_resident_bytes = 90;
  of_prompts.allocated_bytes = of_prompts.peak_bytes = 30;
  of_prompts.resident_bytes = of_prompts.peak_resident_bytes = 20;
  Repeating repeating(model, "budget=1", 8, false, of_passes, of_prompts);
  CHECK(repeating.backend.kv_usage().peak_bytes == 30);
  repeating.backend.prefill(0, Ids{1, 2}, 1, {}, {});
  CHECK(repeating.backend.kv_usage().peak_bytes == 130);
  CHECK(repeating.backend.kv_usage().peak_resident_bytes == 110);
  CHECK(repeating.backend.kv_usage().allocated_bytes == 30);
}
