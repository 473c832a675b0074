#include "traces/import_qkv.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

using Shape = std::vector<std::uint64_t>;

struct Tensor {
  std::string name;
  DType type;
  Shape shape;
  std::vector<std::byte> data;
};

// Element i of a tensor is i (+ 1000 for k, + 2000 for v), in the given type.
Tensor counted(const std::string& name, DType type, const Shape& shape) {
  std::uint64_t n = 1;
  for (const std::uint64_t s : shape) n *= s;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(i) + (name == "k" ? 1000.0F : name == "v" ? 2000.0F : 0.0F);
  }
  Tensor t{name, type, shape, std::vector<std::byte>(n * size_of(type))};
  if (n > 0) convert_from_float(type, values, t.data.data());
  return t;
}

fs::path write_tensors(const fs::path& path, const std::vector<Tensor>& tensors) {
  std::vector<TensorToWrite> list;
  for (const Tensor& t : tensors) list.push_back({t.name, t.type, t.shape, t.data});
  write_safetensors(path, list, {});
  return path;
}

std::vector<float> floats(DType type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  convert_to_float(type, bytes.data(), values);
  return values;
}

std::string refusal(const std::vector<Tensor>& tensors, ImportQkvOptions options = {2, {}, false}) {
  TemporaryFolder folder;
  const fs::path file = write_tensors(folder.path() / "in.safetensors", tensors);
  std::string why = "accepted";
  try {
    import_qkv(file, options, folder.path() / "out.kvt");
  } catch (const Error& e) {
    why = e.what();
    CHECK_FALSE(fs::exists(folder.path() / "out.kvt"));
  }
  const std::size_t at = why.find(".safetensors: ");
  return at == std::string::npos ? why : why.substr(at + 14);
}

const DType kF = DType::kF32;

}  // namespace

TEST_CASE("Imported tensors come back token by token, bit by bit, in the type of the file") {
  const DType type = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  TemporaryFolder folder;
  const Tensor q = counted("q", type, {2, 4, 5, 3});
  const Tensor k = counted("k", type, {2, 2, 5, 3});
  const Tensor v = counted("v", type, {2, 2, 5, 2});
  const Tensor other = counted("ignored", kF, {7});
  import_qkv(write_tensors(folder.path() / "in.safetensors", {q, k, v, other}), {3, {}, false},
             folder.path() / "run.kvt");
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  const TraceManifest& m = reader.manifest();
  CHECK(m.source == "import");
  CHECK(m.model_name.empty());
  CHECK(m.kv_type == type);
  REQUIRE(m.layers.size() == 2);
  CHECK(m.layers[1].query_heads == 4);
  CHECK(m.layers[1].kv_heads == 2);
  CHECK(m.layers[1].k_width == 3);
  CHECK(m.layers[1].v_width == 2);
  CHECK(m.layers[1].scale == static_cast<float>(1.0 / std::sqrt(3.0)));
  CHECK(m.layers[1].alibi_slopes.empty());
  CHECK(m.sequences[0].prompt == 3);
  CHECK(m.sequences[0].tokens == 5);
  CHECK(m.sequences[0].requested_new_tokens == 2);
  CHECK(m.sequences[0].stop_reason == "imported");
  const std::vector<StepRecord> steps = reader.steps();
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].phase == "prefill");
  CHECK(steps[2].phase == "decode");
  for (std::uint32_t l = 0; l < 2; ++l) {
    std::vector<std::byte> queries;
    reader.for_each_query_block(
        0, LayerId(l), [&](auto, auto, auto block) { queries.insert(queries.end(), block.begin(), block.end()); });
    const LayerKeysValues kv = reader.keys_values(0, LayerId(l));
    const auto expect = [&](const Tensor& from, const std::vector<std::byte>& got) {
      const std::uint64_t heads = from.shape[1], tokens = from.shape[2], width = from.shape[3];
      const std::vector<float> source = floats(type, from.data);
      const std::vector<float> found = floats(type, got);
      REQUIRE(found.size() == heads * tokens * width);
      for (std::uint64_t t = 0; t < tokens; ++t) {
        for (std::uint64_t h = 0; h < heads; ++h) {
          for (std::uint64_t d = 0; d < width; ++d) {
            CHECK(found[(t * heads + h) * width + d] == source[((l * heads + h) * tokens + t) * width + d]);
          }
        }
      }
    };
    expect(q, queries);
    expect(k, kv.k);
    expect(v, kv.v);
  }
}

TEST_CASE("The layer dimension may be absent, and the prompt may be all of the tokens") {
  TemporaryFolder folder;
  const fs::path in =
      write_tensors(folder.path() / "in.safetensors",
                    {counted("q", kF, {4, 5, 2}), counted("k", kF, {1, 5, 2}), counted("v", kF, {1, 5, 2})});
  import_qkv(in, {5, 0.25, false}, folder.path() / "run.kvt");
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.manifest().layers.size() == 1);
  CHECK(reader.manifest().layers[0].scale == 0.25F);
  CHECK(reader.manifest().sequences[0].requested_new_tokens == 0);
  CHECK(reader.steps().size() == 1);
}

TEST_CASE("An import larger than a segment is cut into several prefill steps and reads the same") {
  TemporaryFolder folder;
  const Tensor q = counted("q", kF, {2, 8, 3000, 32});
  const Tensor k = counted("k", kF, {2, 8, 3000, 32});
  const Tensor v = counted("v", kF, {2, 8, 3000, 32});
  import_qkv(write_tensors(folder.path() / "in.safetensors", {q, k, v}), {2900, {}, false}, folder.path() / "run.kvt");
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(inspect_trace(folder.path() / "run.kvt", true).segments > 1);
  CHECK(reader.steps()[1].phase == "prefill");
  const LayerKeysValues kv = reader.keys_values(0, LayerId(1));
  REQUIRE(kv.v.size() == v.data.size() / 2);
  bool same = true;
  for (std::size_t t = 0; t < 3000; ++t) {
    for (std::size_t h = 0; h < 8; ++h) {
      same = same && std::memcmp(kv.v.data() + (t * 8 + h) * 128, v.data.data() + ((8 + h) * 3000 + t) * 128, 128) == 0;
    }
  }
  CHECK(same);
}

TEST_CASE("ALiBi slopes are those of the paper, also when the heads are no power of two") {
  const auto slopes = [](std::uint64_t heads) {
    TemporaryFolder folder;
    const fs::path in = write_tensors(
        folder.path() / "in.safetensors",
        {counted("q", kF, {heads, 1, 1}), counted("k", kF, {heads, 1, 1}), counted("v", kF, {heads, 1, 1})});
    import_qkv(in, {1, {}, true}, folder.path() / "run.kvt");
    return TraceReader::open(folder.path() / "run.kvt").manifest().layers[0].alibi_slopes;
  };
  CHECK(slopes(1) == std::vector<float>{1.0F / 256});
  CHECK(slopes(8) ==
        std::vector<float>{1 / 2.0F, 1 / 4.0F, 1 / 8.0F, 1 / 16.0F, 1 / 32.0F, 1 / 64.0F, 1 / 128.0F, 1 / 256.0F});
  // Twelve heads: the eight above, then 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
  const std::vector<float> twelve = slopes(12);
  REQUIRE(twelve.size() == 12);
  CHECK(twelve[7] == 1 / 256.0F);
  CHECK(twelve[8] == Approx(0.70710678).epsilon(1e-6));
  CHECK(twelve[11] == Approx(0.08838835).epsilon(1e-6));
}

TEST_CASE("Windows are repeated over the layers, and a soft-cap is that of all of them") {
  TemporaryFolder folder;
  const fs::path in = write_tensors(
      folder.path() / "in.safetensors",
      {counted("q", kF, {5, 2, 8, 4}), counted("k", kF, {5, 1, 8, 4}), counted("v", kF, {5, 1, 8, 4})});
  ImportQkvOptions options;
  options.prompt = 4;
  options.softcap = 30;
  options.windows = {3, 0};
  import_qkv(in, options, folder.path() / "run.kvt");
  const TraceReader trace = TraceReader::open(folder.path() / "run.kvt");
  std::vector<std::uint32_t> windows;
  for (const TraceLayer& layer : trace.manifest().layers) {
    windows.push_back(layer.window);
    CHECK(layer.softcap == 30);
  }
  CHECK(windows == std::vector<std::uint32_t>{3, 0, 3, 0, 3});
}

TEST_CASE("More windows than the file has layers are refused, and as many are taken") {
  TemporaryFolder folder;
  const fs::path in = write_tensors(
      folder.path() / "in.safetensors",
      {counted("q", kF, {2, 2, 8, 4}), counted("k", kF, {2, 1, 8, 4}), counted("v", kF, {2, 1, 8, 4})});
  ImportQkvOptions options;
  options.prompt = 4;
  options.windows = {4, 0, 8};
  CHECK_THROWS_WITH(import_qkv(in, options, folder.path() / "run.kvt"),
                    "--window: the file has 2 layers, found 3 entries: expected one for each layer, or fewer, which "
                    "are repeated over the layers");
  CHECK_FALSE(fs::exists(folder.path() / "run.kvt"));
  options.windows = {4, 0};
  import_qkv(in, options, folder.path() / "run.kvt");
}

TEST_CASE("Importing the same tensors twice gives the same bytes") {
  TemporaryFolder folder;
  const fs::path in =
      write_tensors(folder.path() / "in.safetensors",
                    {counted("q", kF, {2, 4, 2}), counted("k", kF, {2, 4, 2}), counted("v", kF, {2, 4, 2})});
  for (const char* name : {"a", "b"}) import_qkv(in, {2, {}, false}, folder.path() / name);
  for (const char* name :
       {"manifest.json", "journal.jsonl", "seal.json", "kernels.sqlite", "segments/00000.safetensors"}) {
    CHECK(slurp(folder.path() / "a" / name) == slurp(folder.path() / "b" / name));
  }
}

TEST_CASE("An import is refused with the tensor and the shapes, and leaves nothing behind") {
  const Tensor q = counted("q", kF, {4, 5, 2});
  const Tensor k = counted("k", kF, {2, 5, 2});
  const Tensor v = counted("v", kF, {2, 5, 2});
  CHECK(refusal({q, k, v}) == "accepted");
  CHECK(refusal({q, v}) == "there is no tensor 'k'");
  CHECK(refusal({q, k, counted("v", DType::kBF16, {2, 5, 2})}) == "q is F32, k is F32, v is BF16: the types differ");
  CHECK(refusal({{"q", DType::kF64, {1, 1, 1}, std::vector<std::byte>(8)}, k, v}) == "tensor 'q' has type F64");
  CHECK(refusal({counted("q", kF, {5, 2}), k, v}) == "tensor 'q' has shape [5, 2]: 2 dimensions");
  CHECK(refusal({counted("q", kF, {1, 1, 4, 5, 2}), k, v}) == "tensor 'q' has shape [1, 1, 4, 5, 2]: 5 dimensions");
  CHECK(refusal({counted("q", kF, {4, 0, 2}), k, v}) == "tensor 'q' has shape [4, 0, 2] and is empty");
  CHECK(refusal({counted("q", kF, {4, 6, 2}), k, v}) ==
        "q [4, 6, 2], k [2, 5, 2], v [2, 5, 2]: the numbers of tokens differ");
  CHECK(refusal({counted("q", kF, {3, 5, 2}), k, v}).ends_with("the heads of q are not a multiple of those of k"));
  CHECK(refusal({counted("q", kF, {4, 5, 3}), k, v}).ends_with("q and k have different widths"));
  CHECK(refusal({q, k, counted("v", kF, {1, 5, 2})}).ends_with("k and v have different numbers of heads"));
  CHECK(refusal({counted("q", kF, {2, 4, 5, 2}), k, v}).ends_with("the numbers of layers differ"));
  CHECK(refusal({q, k, v}, {0, {}, false}).find("--prompt is 0, expected 1 to 5") == 0);
  CHECK(refusal({q, k, v}, {6, {}, false}).find("--prompt is 6, expected 1 to 5") == 0);
  CHECK(refusal({q, k, v}, {2, 0.0, false}).find("--scale is 0") == 0);
  CHECK(refusal({q, k, v}, {2, std::nan(""), false}).find("--scale is nan") == 0);
  CHECK(refusal({counted("q", kF, {2048, 1, 1}), counted("k", kF, {1, 1, 1}), counted("v", kF, {1, 1, 1})},
                {1, {}, false})
            .find("layers[0].query_heads is 2048") != std::string::npos);
}

TEST_CASE("How q and k were turned is what the caller says, over the whole width or a part, by theta or by a table") {
  TemporaryFolder folder;
  const Tensor q = counted("q", kF, {4, 5, 4}), k = counted("k", kF, {2, 5, 4}), v = counted("v", kF, {2, 5, 4});
  const auto table = [](const Shape& shape) { return counted("inverse_frequencies", kF, shape); };
  int runs = 0;
  const auto imported = [&](const std::vector<Tensor>& tensors, const RotaryInfo& rotary) {
    const fs::path out = folder.path() / std::to_string(++runs);
    import_qkv(write_tensors(folder.path() / "in.safetensors", tensors), {2, {}, false, rotary}, out);
    return TraceReader::open(out).manifest().layers[0].rotary;
  };
  CHECK(imported({q, k, v}, {}).style == "none");
  CHECK(imported({q, k, v, table({2})}, {}).inverse_frequencies.empty());
  const RotaryInfo whole = imported({q, k, v}, {.style = "half_split", .dims = 0, .theta = 500000});
  CHECK(whole.style == "half_split");
  CHECK(whole.dims == 4);
  CHECK(whole.theta == 500000);
  CHECK(imported({q, k, v}, {.style = "adjacent_pairs", .dims = 2}).dims == 2);
  const RotaryInfo scaled = imported({q, k, v, table({2})}, {.style = "half_split", .magnitude = 1.25F});
  CHECK(scaled.inverse_frequencies == std::vector<float>{0, 1});
  CHECK(scaled.magnitude == 1.25F);

  const ImportQkvOptions turned = {2, {}, false, {.style = "half_split"}};
  CHECK(refusal({q, k, v}, {2, {}, false, {.style = "half_split", .dims = 6}}).find("--rotary: 6 elements") == 0);
  CHECK(refusal({q, k, v}, {2, {}, false, {.style = "half_split", .dims = 3}}).find("--rotary: 3 elements") == 0);
  CHECK(refusal({q, k, v, table({3})}, turned) ==
        "tensor 'inverse_frequencies' is F32 [3], expected F32 [2], one for each pair");
  Tensor infinite = table({2});
  const float value = std::numeric_limits<float>::infinity();
  std::memcpy(infinite.data.data(), &value, sizeof value);
  CHECK(refusal({q, k, v, infinite}, turned) == "tensor 'inverse_frequencies' holds inf");
}

TEST_CASE("Sinks that lie beside q, k and v are those of each layer's query heads") {
  TemporaryFolder folder;
  const Tensor q = counted("q", kF, {2, 4, 5, 4});
  const Tensor k = counted("k", kF, {2, 2, 5, 4}), v = counted("v", kF, {2, 2, 5, 4});
  import_qkv(write_tensors(folder.path() / "in.safetensors", {q, k, v, counted("sinks", kF, {2, 4})}), {2, {}, false},
             folder.path() / "x.kvt");
  const TraceManifest manifest = TraceReader::open(folder.path() / "x.kvt").manifest();
  CHECK(manifest.layers[0].attention_sinks == std::vector<float>{0, 1, 2, 3});
  CHECK(manifest.layers[1].attention_sinks == std::vector<float>{4, 5, 6, 7});
  CHECK(refusal({q, k, v, counted("sinks", kF, {2, 2})}) ==
        "tensor 'sinks' is F32 [2, 2], expected F32 [2, 4], one for each layer and query head");
}

TEST_CASE("An import with NaN or infinity names layer, head and token") {
  const DType type = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  Tensor k = counted("k", type, {2, 2, 3, 2});
  const float bad = std::numeric_limits<float>::infinity();
  convert_from_float(type, std::span(&bad, 1), k.data.data() + (((1 * 2 + 1) * 3 + 2) * 2 + 1) * size_of(type));
  CHECK(refusal({counted("q", type, {2, 2, 3, 2}), k, counted("v", type, {2, 2, 3, 2})}) ==
        "tensor 'k' holds NaN or infinity (layer 1, head 1, token 2)");
}

TEST_CASE("An import that is refused leaves the empty folder empty that it should have filled") {
  Tensor q = counted("q", DType::kF32, {1, 1, 3, 2});
  const float bad = std::numeric_limits<float>::infinity();
  convert_from_float(DType::kF32, std::span(&bad, 1), q.data.data());
  TemporaryFolder folder;
  const Tensor k = counted("k", DType::kF32, {1, 1, 3, 2}), v = counted("v", DType::kF32, {1, 1, 3, 2});
  const fs::path file = write_tensors(folder.path() / "in.safetensors", {q, k, v});
  const fs::path out = folder.path() / "out.kvt";
  fs::create_directory(out);
  CHECK_THROWS_AS(import_qkv(file, {2, {}, false}, out), Error);
  CHECK(fs::is_directory(out));
  CHECK(fs::is_empty(out));
}
