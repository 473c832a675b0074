// Probabilities of known tokens, fed one decode step at a time, against PyTorch's one forward pass.
#include "kernels/engine/teacher_forcing.hpp"

#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("Log-probabilities of known tokens equal PyTorch's, wherever the prompt ends and in any batch") {
  const std::filesystem::path folder = std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa";
  const Model model = load_model(folder, DType::kF32);
  const SafetensorsFile golden = open_tensors(folder / "golden.safetensors");
  const auto ids = integers(golden, "ids_37");
  const auto expected = floats(golden, "logprob_37");  // [i]: of ids[i + 1]
  CpuBackend backend = reference_backend(model);
  std::vector<KnownSequence> batch;
  for (const std::uint32_t prompt : {1U, 20U, 36U}) batch.push_back({ids, prompt, 37 - prompt});
  batch.push_back({std::span(ids).first(9), 5, 4});
  std::size_t told = 0;
  const auto found = force_tokens(backend, model.config.shape.vocab, batch, 7, [&](std::size_t n) { told += n; });
  REQUIRE(found.size() == 4);
  CHECK(told == 36 + 17 + 1 + 4);
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const std::vector<float>& logprobs = found[s].logprobs;
    REQUIRE(logprobs.size() == batch[s].ids.size() - batch[s].prompt);
    REQUIRE(found[s].greedy.size() == logprobs.size());
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      CHECK(logprobs[i] == Approx(expected[batch[s].prompt - 1 + i]).margin(1e-4));
    }
  }
  CHECK(backend.kv_usage().resident_bytes == 0);  // all were released
}

TEST_CASE("Of a sequence that PyTorch continued greedily, every token is known to be greedy, and another one is not") {
  const std::filesystem::path folder = std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa";
  const Model model = load_model(folder, DType::kF32);
  const SafetensorsFile golden = open_tensors(folder / "golden.safetensors");
  auto ids = integers(golden, "ids_37");
  const auto greedy = integers(golden, "greedy_37");
  ids.insert(ids.end(), greedy.begin(), greedy.end());
  const std::size_t other = 37 + greedy.size() / 2;
  auto changed = ids;
  changed[other] = (changed[other] + 1) % model.config.shape.vocab;
  CpuBackend backend = reference_backend(model);
  const auto tokens = static_cast<std::uint32_t>(greedy.size());
  const std::vector<KnownSequence> batch = {{ids, 37, tokens}, {changed, 37, tokens}};
  const auto found = force_tokens(backend, model.config.shape.vocab, batch, 0, {});
  CHECK(found[0].greedy == std::vector<bool>(greedy.size(), true));
  for (std::size_t i = 37; i < other; ++i) CHECK(found[1].greedy[i - 37]);
  CHECK_FALSE(found[1].greedy[other - 37]);
}
