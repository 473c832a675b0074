// Models made from a shape and a seed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "kernels/engine/elements.hpp"
#include "kernels/engine/random_model.hpp"
#include "kernels/engine/weight_families.hpp"
#include "sim/model/config_of_shape.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

const std::filesystem::path kCatalog = std::string(KVROOF_SOURCE_DIR) + "/catalog";

ModelShape small_shape() {
  ModelShape shape = find_model_shape("llama-3-8b", kCatalog);
  shape.layers = 2;
  shape.hidden = 512;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.ffn = 640;
  shape.vocab = 300;
  return shape;
}

// Bytes of all weights, and of those that norms multiply by.
std::uint64_t bytes_of(Model& model) {
  std::uint64_t bytes = 0;
  std::unordered_set<const Weight*> seen;
  for (const TensorBinding& tensor : bind_tensors(model.config, model.weights)) {
    for (const RowBlock& block : tensor.blocks) {
      if (seen.insert(block.weight).second) bytes += block.weight->bytes();
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("a random model has the parameters that its shape counts, for every model of the catalog that can be run") {
  std::size_t runnable = 0, hybrids = 0;
  for (const std::string& name : catalog_model_names(kCatalog)) {
    const ModelShape shape = find_model_shape(name, kCatalog);
    if (!runs_family(shape.family) || !not_built(shape).empty()) continue;
    INFO(name);
    Model model = random_model(config_of_shape(shape), DType::kBF16, 1);
    CHECK(bytes_of(model) == weight_bytes(shape, DType::kBF16).value);
    CHECK(model.weights.embedding.data.size() == 0);  // no elements yet
    ++runnable;
    if (shape.state.layers > 0) ++hybrids;
  }
  CHECK(runnable > 40);
  CHECK(hybrids >= 12);  // of Qwen3-Next, Qwen3.5, LFM2, Granite 4 and Nemotron
}

TEST_CASE("random matrices keep the variance of what passes through them, and norms are about 1") {
  Model model = random_model(config_of_shape(small_shape()), DType::kF32, 3);
  make_elements(model);
  const auto moments = [](const Weight& w) {
    double sum = 0, squares = 0;
    const auto* data = reinterpret_cast<const float*>(w.data.data());
    const std::size_t count = w.rows * w.cols;
    for (std::size_t i = 0; i < count; ++i) sum += data[i], squares += double{data[i]} * data[i];
    const double n = static_cast<double>(count);
    return std::pair(sum / n, squares / n - sum / n * sum / n);
  };
  const LayerWeights& layer = model.weights.layers[1];
  const auto [mean, variance] = moments(layer.mlp.down.matrix);
  CHECK(std::abs(mean) < 1e-3);
  CHECK(variance == Approx(1.0 / 640).epsilon(0.02));
  CHECK(moments(layer.mlp_norm.scale).first == Approx(1.0).epsilon(0.05));
  CHECK(std::memcmp(layer.q.matrix.data.data(), layer.o.matrix.data.data(), 4096) != 0);
}

TEST_CASE("the same seed makes the same weights, another one makes others") {
  const auto first_bytes = [](std::uint64_t seed) {
    Model model = random_model(config_of_shape(small_shape()), DType::kBF16, seed);
    make_elements(model);
    const Weight& w = model.weights.layers[0].k.matrix;
    return std::vector<std::byte>(w.data.data(), w.data.data() + w.data.size());
  };
  CHECK(first_bytes(5) == first_bytes(5));
  CHECK(first_bytes(5) != first_bytes(6));
}

TEST_CASE("a shape of a family that the engine does not know is refused with its name") {
  ModelShape shape = small_shape();
  shape.family = "mamba";
  CHECK_THROWS_WITH(random_model(config_of_shape(shape), DType::kBF16, 0),
                    "llama-3-8b: the engine runs no model of family mamba");
}

TEST_CASE("what a shape has that its family names no weights for is refused") {
  ModelShape gated = small_shape();
  gated.attention_gate = true;
  CHECK_THROWS_WITH(random_model(config_of_shape(gated), DType::kBF16, 0),
                    "llama-3-8b: the engine runs no model of family llama with a gate of attention's output");
  ModelShape other = find_model_shape("lfm2-1.2b", kCatalog);
  other.family = "qwen3_next";
  CHECK_THROWS_WITH(random_model(config_of_shape(other), DType::kBF16, 0),
                    "lfm2-1.2b: the engine runs no model of family qwen3_next with layers that hold a state of this "
                    "kind");
}

TEST_CASE("a shape's layers without positions are not turned") {
  ModelShape shape = small_shape();
  shape.unturned_layers = {0};
  const ModelOptions options = config_of_shape(shape).options;
  CHECK(options.rotary.at(options.layers.at(0).rotary).dims == 0);
  CHECK(options.rotary.at(options.layers.at(1).rotary).dims == shape.head_dim);
}
