// The bundled demo model against PyTorch's float32 values on documents that it has not seen.
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kDemo = fs::path(KVROOF_SOURCE_DIR) / "models/demo";
constexpr std::size_t kPrompt = 512;

const std::vector<std::string> kDocuments = {"boost-move-copyable", "postgresql-log-files", "python-c-tuple",
                                             "python-tempfile", "sqlite-rbu"};

}  // namespace

TEST_CASE("the demo model's logits, log-probabilities and greedy text equal PyTorch's") {
  const Model model = load_model(kDemo, DType::kF32);
  const std::size_t vocab = model.config.shape.vocab;
  const SafetensorsFile reference = open_tensors(kDemo / "reference.safetensors");
  for (const std::string& document : kDocuments) {
    INFO(document);
    auto ids = integers(reference, document + ".ids");
    ids.resize(kPrompt);
    const auto expected = integers(reference, document + ".greedy_after_512");
    CpuBackend backend = reference_backend(model);
    std::vector<float> logits;
    SessionOptions options;
    options.max_new_tokens = static_cast<std::uint32_t>(expected.size());
    options.ignore_eos = true;
    options.on_prompt_logits = [&](std::uint32_t, std::span<const float> rows) {
      logits.insert(logits.end(), rows.begin(), rows.end());
    };
    const SessionResult result = run_session(backend, model.config, {ids}, options, nullptr);
    CHECK(result.sequences[0].ids == expected);
    const std::vector<float> last(logits.end() - static_cast<std::ptrdiff_t>(4 * vocab), logits.end());
    CHECK(relative_error(last, floats(reference, document + ".logits_508_511")) <= 1e-4);
    const auto logprob = floats(reference, document + ".logprob");
    double largest = 0;
    for (std::size_t i = 0; i + 1 < kPrompt; ++i) {
      const auto row = std::span<const float>(logits).subspan(i * vocab, vocab);
      largest = std::max(largest, std::fabs(static_cast<double>(log_probability(row, ids[i + 1])) - logprob[i]));
    }
    CHECK(largest <= 2e-3);  // 1e-4 of the largest logit, about 20
  }
}
