// Probabilities of known tokens, fed one decode step at a time, against PyTorch's one forward pass.
#include "kernels/engine/teacher_forcing.hpp"

#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"

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
    REQUIRE(found[s].size() == batch[s].ids.size() - batch[s].prompt);
    for (std::size_t i = 0; i < found[s].size(); ++i) {
      CHECK(found[s][i] == Approx(expected[batch[s].prompt - 1 + i]).margin(1e-4));
    }
  }
  CHECK(backend.kv_usage().resident_bytes == 0);  // all were released
}
