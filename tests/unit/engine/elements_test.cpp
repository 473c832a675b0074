// Rows, columns and transposed blocks of stored tensors arrive where their bindings say, in any element type.
#include "kernels/engine/elements.hpp"

#include <array>

#include "kernels/engine/mxfp4.hpp"
#include "kernels/engine/weight_binder.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using kvroof::test::TemporaryFolder;

namespace {

// What element i of every stored tensor is: exact in bf16.
float value_at(std::size_t i) { return static_cast<float>(i % 251); }

// Writes each binding's tensor in bf16, and loads it as `type`.
void load_all(const std::vector<TensorBinding>& bindings, DType type) {
  const TemporaryFolder folder;
  std::vector<std::vector<std::byte>> contents;
  std::vector<TensorToWrite> tensors;
  for (const TensorBinding& b : bindings) {
    std::size_t count = 1;
    for (const std::uint64_t size : b.shape) count *= size;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value_at(i);
    contents.emplace_back(count * 2);
    convert_from_float(DType::kBF16, values, contents.back().data());
  }
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    tensors.push_back({bindings[i].name, DType::kBF16, bindings[i].shape, contents[i]});
  }
  const auto path = folder.path() / "model.safetensors";
  write_safetensors(path, tensors, {});
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw("test");
  for (const TensorBinding& b : bindings) locate_elements({&file, file.header().find(b.name)}, nullptr, b, type);
  for (const TensorBinding& b : bindings) {
    for (const RowBlock& block : b.blocks) make_elements(*block.weight);
  }
}

std::vector<float> floats_of(const Weight& weight) {
  std::vector<float> out(weight.rows * weight.cols);
  convert_to_float(weight.type, weight.data.data(), out);
  return out;
}

// Row r, column c of the weight is element index(r, c) of the stored tensor.
template <class Index>
void check_elements(const Weight& weight, std::size_t rows, std::size_t cols, Index&& index) {
  REQUIRE(weight.rows == rows);
  REQUIRE(weight.cols == cols);
  const std::vector<float> values = floats_of(weight);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) wrong += values[r * cols + c] == value_at(index(r, c)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

constexpr std::array kTypes = {DType::kBF16, DType::kF16, DType::kF32};

}  // namespace

TEST_CASE("q, k and v interleaved by group come apart into rows of their own, and so do their biases") {
  for (const DType type : kTypes) {
    constexpr std::size_t kHidden = 12, kHead = 8, kGroups = 3;
    ModelShape shape;
    shape.hidden = kHidden;
    shape.heads = 6;
    shape.kv_heads = kGroups;
    shape.head_dim = shape.v_head_dim = kHead;
    shape.qkv_bias = true;
    LayerWeights layer;
    WeightBinder binder;
    binder.fused_qkv("qkv", shape, layer, kGroups);
    const auto bindings = binder.take();
    REQUIRE(bindings[0].shape == std::vector<std::uint64_t>{(6 + 3 + 3) * kHead, kHidden});
    load_all(bindings, type);
    // A group: 16 rows of two q heads, 8 of k, 8 of v.
    const auto stored_row = [](std::size_t row, std::size_t part, std::size_t before) {
      return row / part * 4 * kHead + before + row % part;
    };
    const auto check_part = [&](const Linear& linear, std::size_t part, std::size_t before) {
      const std::size_t rows = part * kGroups;
      check_elements(linear.matrix, rows, kHidden, [&](std::size_t r, std::size_t c) {
        return stored_row(r, part, before) * kHidden + c;
      });
      check_elements(linear.bias, 1, rows, [&](std::size_t, std::size_t c) { return stored_row(c, part, before); });
    };
    check_part(layer.q, 2 * kHead, 0);
    check_part(layer.k, kHead, 2 * kHead);
    check_part(layer.v, kHead, 3 * kHead);
  }
}

TEST_CASE("thirds of a matrix stored [in, out] become rows of q, k and v, over many pieces and odd edges") {
  for (const DType type : kTypes) {
    // More than one piece of 4 MiB, and no multiple of a tile in either direction.
    constexpr std::size_t kIn = 731, kQ = 1030, kKv = 515;
    constexpr std::size_t kOut = kQ + 2 * kKv;
    LayerWeights layer;
    WeightBinder binder;
    binder.fused("c_attn", {{&layer.q, kQ}, {&layer.k, kKv}, {&layer.v, kKv}}, 1, kIn, true, true);
    const auto bindings = binder.take();
    REQUIRE(bindings[0].shape == std::vector<std::uint64_t>{kIn, kOut});
    load_all(bindings, type);
    const auto check_part = [&](const Linear& linear, std::size_t rows, std::size_t first) {
      check_elements(linear.matrix, rows, kIn, [&](std::size_t r, std::size_t c) { return c * kOut + first + r; });
      check_elements(linear.bias, 1, rows, [&](std::size_t, std::size_t c) { return first + c; });
    };
    check_part(layer.q, kQ, 0);
    check_part(layer.k, kKv, kQ);
    check_part(layer.v, kKv, kQ + kKv);
  }
}

TEST_CASE("transposed blocks of rows land beside rows that keep their order") {
  for (const DType type : kTypes) {
    // Two heads of 5 rows that turn and 3 that stay, 40 columns.
    constexpr std::size_t kTurned = 5, kKept = 3, kCols = 40;
    Weight turned, kept;
    TensorBinding binding{"kv_b", {2 * (kTurned + kKept), kCols}, {}};
    for (std::size_t h = 0; h < 2; ++h) {
      const std::size_t first = h * (kTurned + kKept);
      binding.blocks.push_back({&turned, 2 * kCols, kTurned, first, h * kCols, kTurned, true});
      binding.blocks.push_back({&kept, 2 * kKept, kCols, first + kTurned, h * kKept, kKept});
    }
    load_all({binding}, type);
    check_elements(turned, 2 * kCols, kTurned, [](std::size_t r, std::size_t c) {
      return (r / kCols * (kTurned + kKept) + c) * kCols + r % kCols;
    });
    check_elements(kept, 2 * kKept, kCols, [](std::size_t r, std::size_t c) {
      return (r / kKept * (kTurned + kKept) + kTurned + r % kKept) * kCols + c;
    });
  }
}

TEST_CASE("MXFP4 is a sign, two bits of exponent and one of mantissa, times a power of two of 32 numbers") {
  std::array<std::byte, 32> codes{};
  for (int i = 0; i < 16; ++i) codes[i] = std::byte(i + 16 * (15 - i));  // 0 15, 1 14, 2 13 …
  codes[16] = std::byte{0x21};
  std::array<float, 64> out{};
  unpack_mxfp4(codes.data(), out);
  const std::array<float, 8> positive = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::size_t i = 0; i < 16; ++i) {
    const float number = i < 8 ? positive[i] : -positive[i - 8];
    CHECK(out[2 * i] == number);
    CHECK(out[2 * (15 - i) + 1] == number);
  }
  CHECK((out[32] == 0.5F && out[33] == 1));
  CHECK((mxfp4_scale(std::byte{127}) == 1 && mxfp4_scale(std::byte{124}) == 0.125F));
  CHECK(mxfp4_scale(std::byte{0}) == std::ldexp(1.0F, -127));
}

namespace {

// Takes elements piece by piece, as they are.
class Collected final : public ElementSink {
 public:
  explicit Collected(const Weight& weight) : bytes(weight.bytes()), weight_(weight) {}
  Room room(const ElementPiece& piece) override {
    return {bytes.data() + piece.first * size_of(weight_.type), weight_.cols};
  }
  void written(const ElementPiece& piece) override { elements += piece.rows * piece.width; }
  std::vector<std::byte> bytes;
  std::size_t elements = 0;

 private:
  const Weight& weight_;
};

}  // namespace

namespace {

// What a reader makes of a weight in pieces of each size, against the weight in memory.
void check_pieces(const Weight& from, const Weight& whole) {
  for (const std::size_t most : {std::size_t{4}, std::size_t{100}, std::size_t{1000}, std::size_t{1} << 20}) {
    Collected sink(from);
    ElementReader().read(from, most, sink);
    CHECK(sink.elements == from.rows * from.cols);
    CHECK(std::equal(sink.bytes.begin(), sink.bytes.end(), whole.data.data()));
  }
}

std::filesystem::path golden_folder(const char* name) {
  return std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name;
}

}  // namespace

TEST_CASE("experts that share tensors, plain or packed, come apart alike in pieces of any size") {
  for (const char* name : {"gpt_oss", "gpt_oss-mxfp4"}) {
    for (const DType type : kTypes) {
      const Model stored = open_model(golden_folder(name), type);
      Model whole = open_model(golden_folder(name), type);
      make_elements(whole);
      const Mlp& expected = whole.weights.layers[1].experts.routed[5];
      const Mlp& mlp = stored.weights.layers[1].experts.routed[5];
      for (const Linear Mlp::* const part : {&Mlp::gate, &Mlp::up, &Mlp::down}) {
        for (const Weight Linear::* const weight : {&Linear::matrix, &Linear::bias}) {
          check_pieces(mlp.*part.*weight, expected.*part.*weight);
        }
      }
    }
  }
}

TEST_CASE("a matrix in FP8 is the product of its numbers and the scales of their blocks, turned or not") {
  const auto folder = golden_folder("deepseek_v3-fp8");
  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors").or_throw("test");
  const auto read = [&](const char* name) {
    const TensorInfo& tensor = *file.header().find(name);
    std::vector<std::byte> bytes(tensor.bytes);
    file.read(tensor, 0, bytes);
    std::vector<float> numbers(tensor.elements());
    convert_to_float(tensor.type, bytes.data(), numbers);
    return numbers;
  };
  // 4 heads of 16 rows of keys, that turn, and 24 of values, over 32 columns; blocks of 24 rows and 40 columns.
  const std::vector<float> codes = read("model.layers.1.self_attn.kv_b_proj.weight");
  const std::vector<float> scales = read("model.layers.1.self_attn.kv_b_proj.weight_scale_inv");
  REQUIRE((codes.size() == 160 * 32 && scales.size() == 7));
  const auto number = [&](std::size_t row, std::size_t col) { return codes[row * 32 + col] * scales[row / 24]; };
  const Model model = load_model(folder, DType::kF32);
  const LatentWeights& latent = model.weights.layers[1].latent;
  const std::vector<float> keys = floats_of(latent.k_up), values = floats_of(latent.v_up);
  for (std::size_t head = 0; head < 4; ++head) {
    for (std::size_t col = 0; col < 32; ++col) {
      for (std::size_t r = 0; r < 16; ++r) CHECK(keys[(head * 32 + col) * 16 + r] == number(head * 40 + r, col));
      for (std::size_t r = 0; r < 24; ++r) CHECK(values[(head * 24 + r) * 32 + col] == number(head * 40 + 16 + r, col));
    }
  }
  for (const DType type : kTypes) {
    const Model stored = open_model(folder, type);
    const Model whole = load_model(folder, type);
    const LayerWeights& from = stored.weights.layers[1];
    const LayerWeights& to = whole.weights.layers[1];
    check_pieces(from.latent.k_up, to.latent.k_up);
    check_pieces(from.latent.v_up, to.latent.v_up);
    check_pieces(from.latent.q_down.matrix, to.latent.q_down.matrix);
    check_pieces(from.experts.routed[5].down.matrix, to.experts.routed[5].down.matrix);
  }
}
