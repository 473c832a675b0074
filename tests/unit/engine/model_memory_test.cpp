// Loading streams: the peak of memory is little more than the weights.
#include <malloc.h>

#include <fstream>
#include <sstream>

#include "kernels/engine/model.hpp"
#include "kernels/engine/weight_families.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using kvroof::test::TemporaryFolder;

// What a sanitizer keeps beside the program's memory is not told apart from it here: nothing of this is compiled then.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

// Plain, transposed (GPT-2), and interleaved by head (BLOOM).
const char* const kLlama = R"({"model_type":"llama","hidden_size":512,"num_attention_heads":8,"num_hidden_layers":4,
  "intermediate_size":1536,"vocab_size":6000,"tie_word_embeddings":true,"torch_dtype":"bfloat16"})";
const char* const kGpt2 = R"({"model_type":"gpt2","n_embd":512,"n_head":8,"n_layer":4,"vocab_size":6000,
  "torch_dtype":"bfloat16"})";
const char* const kBloom = R"({"model_type":"bloom","n_embed":512,"n_head":8,"n_layer":4,"vocab_size":6000,
  "torch_dtype":"bfloat16"})";

void write_model(const std::filesystem::path& folder, const char* config_json) {
  std::ofstream(folder / "config.json") << config_json;
  ModelConfig config = load_model_config(folder);
  ModelWeights weights;
  const auto bindings = bind_tensors(config, weights);
  const std::vector<std::byte> zeros(std::size_t{6000} * 512 * 2);
  std::vector<TensorToWrite> tensors;
  for (const TensorBinding& b : bindings) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : b.shape) count *= size;
    tensors.push_back({b.name, DType::kBF16, b.shape, std::span(zeros).first(count * 2)});
  }
  write_safetensors(folder / "model.safetensors", tensors, {});
}

std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::uint64_t kib = 0;
    std::istringstream(line.substr(field.size() + 1)) >> kib;
    return kib * 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE("loading with a conversion peaks at no more than 1.1 times the weights, fused and transposed ones too") {
  const char* const config = GENERATE(kLlama, kGpt2, kBloom);
  INFO(config);
  const TemporaryFolder folder;
  write_model(folder.path(), config);
  malloc_trim(0);                                 // what earlier tests have freed is no memory of this one
  std::ofstream("/proc/self/clear_refs") << "5";  // the high-water mark begins anew
  const std::uint64_t before = status_bytes("VmRSS");
  const Model model = load_model(folder.path(), DType::kF32);
  const std::uint64_t peak = status_bytes("VmHWM") - before;
  const std::uint64_t weights = weight_bytes(model.config.shape, DType::kF32).value;
  CHECK(peak >= weights);
  // Beside them, pieces of a fixed size and the ends of pages of 2 MiB.
  CHECK(static_cast<double>(peak) <= 1.1 * static_cast<double>(weights) + (4 << 20));
}
#endif
