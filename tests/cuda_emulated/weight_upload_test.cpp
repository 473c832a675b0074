// Weights that stream from their checkpoint to the device through a few pinned buffers.
#include "kernels/cuda/weight_upload.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/device_model.hpp"
#include "kernels/engine/weight_families.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using cuda::DeviceModel;
using cuda::UploadRing;

namespace {

// What the host owns: all that comes from operator new, the emulator's pinned memory too. Memory of the emulated device
// does not.
std::atomic<std::size_t> g_owned{0}, g_peak{0};

void* own(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = g_owned += malloc_usable_size(memory);
  std::size_t peak = g_peak;
  while (now > peak && !g_peak.compare_exchange_weak(peak, now)) continue;
  return memory;
}
void disown(void* memory) {
  if (memory != nullptr) g_owned -= malloc_usable_size(memory);
  std::free(memory);
}

// The most that the host owned during the call, beyond what it owned before.
template <class Call>
std::size_t peak_of(const Call& call) {
  const std::size_t before = g_owned;
  g_peak = before;
  call();
  return g_peak - before;
}

std::vector<std::vector<std::byte>> device_bytes(const Model& model, UploadRing ring) {
  cuda::Stream stream;
  const DeviceModel device(stream, model, {}, ring);
  std::vector<std::vector<std::byte>> bytes;
  for (const cuda::DeviceBuffer& buffer : device.buffers()) {
    bytes.emplace_back(buffer.at(), buffer.at() + buffer.bytes());
  }
  return bytes;
}

// A LLaMA or GPT-2 of width 256 whose tensors are all zeros.
void write_model(const std::filesystem::path& folder, const std::string& family, int layers) {
  const std::string sizes = family == "gpt2" ? R"("n_embd":256,"n_head":4,"n_layer":)"
                                             : R"("intermediate_size":768,"hidden_size":256,"num_attention_heads":4,
                                                  "tie_word_embeddings":true,"num_hidden_layers":)";
  std::ofstream(folder / "config.json") << R"({"model_type":")" << family << R"(","vocab_size":512,)"
                                        << R"("torch_dtype":"float32",)" << sizes << layers << "}";
  const ModelConfig config = load_model_config(folder);
  ModelWeights weights;
  const auto bindings = bind_tensors(config, weights);
  const std::vector<std::byte> zeros(std::size_t{1024} * 1024 * sizeof(float));
  std::vector<TensorToWrite> tensors;
  for (const TensorBinding& b : bindings) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : b.shape) count *= size;
    tensors.push_back({b.name, DType::kF32, b.shape, std::span(zeros).first(count * sizeof(float))});
  }
  write_safetensors(folder / "model.safetensors", tensors, {});
}

}  // namespace

void* operator new(std::size_t size) { return own(std::malloc(size)); }
void* operator new[](std::size_t size) { return own(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t line) {
  const auto bytes = static_cast<std::size_t>(line);
  return own(std::aligned_alloc(bytes, (size + bytes - 1) / bytes * bytes));
}
void operator delete(void* memory) noexcept { disown(memory); }
void operator delete[](void* memory) noexcept { disown(memory); }
void operator delete(void* memory, std::size_t) noexcept { disown(memory); }
void operator delete[](void* memory, std::size_t) noexcept { disown(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { disown(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { disown(memory); }

TEST_CASE("weights that stream to the device are, byte for byte, those of a model that the host has whole") {
  std::size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::kGoldenModels)) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      INFO(entry.path().filename().string() << " " << name_of(type));
      if (cuda_model_problem(load_model_config(entry.path()), type, type)) continue;
      const auto whole = device_bytes(load_model(entry.path(), type), {});
      const Model stored = open_model(entry.path(), type);
      CHECK(stored.weights.embedding.data.size() == 0);
      CHECK(device_bytes(stored, {}) == whole);
      CHECK(device_bytes(stored, {2, 1000}) == whole);  // many pieces, which are no whole rows
      CHECK(device_bytes(stored, {3, 62}) == whole);    // pieces of parts of columns
      ++models;
    }
  }
  CHECK(models > 60);
}

TEST_CASE("the host owns no more for a model of 16 layers than for one of 2: a ring and a piece") {
  const char* const family = GENERATE("llama", "gpt2");
  constexpr UploadRing kRing = {2, 256 << 10};
  constexpr std::size_t kPieces = 3 << 20;  // what a reader converts and transposes at a time
  std::size_t peak[2] = {};
  std::size_t weights = 0;
  for (const int i : {0, 1}) {
    const test::TemporaryFolder folder;
    write_model(folder.path(), family, i == 0 ? 2 : 16);
    peak[i] = peak_of([&] {
      const Model model = open_model(folder.path(), DType::kBF16);
      weights = weight_bytes(model.config.shape, DType::kBF16).value;
      cuda::Stream stream;
      const DeviceModel device(stream, model, {}, kRing);
    });
    CHECK(peak[i] <= kRing.buffers * kRing.bytes + kPieces);
  }
  INFO(family << ": " << peak[0] << " and " << peak[1] << " bytes, weights " << weights);
  CHECK(weights > 2 * peak[1]);
  CHECK(peak[1] <= peak[0] + 14 * 16384);  // names and places of the tensors of 14 layers
}

TEST_CASE("a checkpoint that was cut after it was opened is refused with its name and a tensor's") {
  const test::TemporaryFolder folder;
  std::filesystem::copy(test::kGoldenModels / "llama-gqa", folder.path(), std::filesystem::copy_options::recursive);
  const Model model = open_model(folder.path(), DType::kF16);
  const std::filesystem::path file = folder.path() / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  try {
    cuda::Stream stream;
    const DeviceModel device(stream, model);
    FAIL("the cut was not seen");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with(file.string() + ": tensor 'model."));
    CHECK(error.code() == ExitCode::kFailure);
  }
}
