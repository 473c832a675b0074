// What is fetched for the launches to come: the matrix after each one, and each of its lines once.
#include "kernels/cuda/weights_ahead.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "kernels/cuda/ahead.cuh"
#include "kernels/cuda/emulator.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using cuda::Ahead;
using cuda::DeviceMatrix;

namespace {

struct Loaded {
  explicit Loaded(const std::string& name)
      : model(load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kBF16)),
        device(stream, model),
        ahead(device, 1 << 20) {}
  cuda::Stream stream;
  Model model;
  cuda::DeviceModel device;
  cuda::WeightsAhead ahead;
};

void check_next(const Loaded& m, const DeviceMatrix& matrix, const DeviceMatrix& next) {
  CHECK(m.ahead.after(matrix).data == next.data);
  CHECK(m.ahead.after(matrix).bytes == 2 * next.rows * next.cols);
}

}  // namespace

TEST_CASE("after each matrix of a layer that of the next launch is fetched, and after the last layer the head") {
  const Loaded m("llama-gqa");
  const std::vector<cuda::DeviceLayer>& layers = m.device.layers;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    check_next(m, layers[l].qkv.matrix, layers[l].o.matrix);
    check_next(m, layers[l].o.matrix, layers[l].mlp.gate.matrix);
    check_next(m, layers[l].mlp.gate.matrix, layers[l].mlp.down.matrix);
    check_next(m, layers[l].mlp.down.matrix, l + 1 < layers.size() ? layers[l + 1].qkv.matrix : m.device.head);
  }
  CHECK(m.ahead.after(m.device.head).bytes == 0);
}

TEST_CASE("a model whose MLP reads what attention read fetches it before the output's matrix") {
  const Loaded m("gptj");
  const cuda::DeviceLayer& layer = m.device.layers[0];
  check_next(m, layer.qkv.matrix, layer.mlp.up.matrix);
  check_next(m, layer.mlp.up.matrix, layer.o.matrix);
  check_next(m, layer.o.matrix, layer.mlp.down.matrix);
}

TEST_CASE("experts that a router chooses are not fetched ahead, nor what comes after them") {
  const Loaded m("mixtral");
  const cuda::DeviceLayer& layer = m.device.layers[0];
  check_next(m, layer.o.matrix, layer.experts.router);
  CHECK(m.ahead.after(layer.experts.router).bytes == 0);
  const cuda::WeightsAhead little(m.device, 100);
  CHECK(little.after(layer.qkv.matrix).bytes == 100);
}

TEST_CASE("the threads of a launch fetch each line of what is next once, whatever the grid") {
  std::vector<std::byte> memory(128 * 100);
  std::vector<const std::byte*> lines;
  for (const std::uint32_t bytes : {0U, 1U, 128U, 129U, 128U * 100U}) {
    for (const cuda::emulator::Dim grid : {cuda::emulator::Dim{1}, cuda::emulator::Dim{2, 2}, cuda::emulator::Dim{9}}) {
      lines.clear();
      cuda::emulator::prefetched = &lines;
      cuda::emulator::run(grid, {32}, [&] { cuda::fetch_ahead({memory.data(), bytes}); });
      cuda::emulator::prefetched = nullptr;
      std::sort(lines.begin(), lines.end());
      REQUIRE(lines.size() == (bytes + 127) / 128);
      for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i] == memory.data() + 128 * i);
    }
  }
}
