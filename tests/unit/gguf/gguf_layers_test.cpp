// GGUF files whose layers differ: in their windows, in their experts, and those behind the last one.
#include <algorithm>
#include <fstream>

#include "sim/model/gguf.hpp"
#include "tests/catch.hpp"
#include "tests/support/gguf_bytes.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kF32 = 0;
using Windows = std::vector<std::uint32_t>;

Result<GgufModel> read(const GgufBytes& file) {
  const std::string head = file.header();
  auto header = parse_gguf_header(std::as_bytes(std::span(head)), file.file_size()).or_throw("header");
  REQUIRE(header);
  return gguf_model(*header);
}

GgufBytes of_layers(const std::string& arch, std::uint32_t layers) {
  GgufSizes sizes;
  sizes.layers = layers;
  return llama_gguf(sizes, kF32, 1, 4, arch);
}

// Four layers that slide over 8 tokens, and what the file says of which.
GgufBytes sliding(const std::string& arch) {
  return of_layers(arch, 4).size(arch + ".attention.sliding_window", 8);
}

void add(GgufBytes& file, const std::string& name, std::vector<std::uint64_t> dims) {
  std::uint64_t elements = 1;
  for (const std::uint64_t d : dims) elements *= d;
  file.tensor(name, dims, kF32, 4 * elements);
}

// `layers` layers of 32, of which those have four experts of 16 and a shared one that `has_experts` says.
template <class HasExperts>
GgufBytes of_experts(const std::string& arch, std::uint32_t layers, std::uint64_t shared, HasExperts has_experts) {
  GgufBytes file;
  file.word("general.architecture", arch).size(arch + ".embedding_length", 32).size(arch + ".context_length", 64);
  file.size(arch + ".attention.head_count", 4).size(arch + ".attention.head_count_kv", 2);
  file.size(arch + ".feed_forward_length", 48).number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
  file.size(arch + ".expert_count", 4).size(arch + ".expert_used_count", 2);
  file.size(arch + ".expert_feed_forward_length", 16);
  for (const char* table : {"token_embd.weight", "output.weight"}) add(file, table, {32, 50});
  add(file, "output_norm.weight", {32});
  for (std::uint32_t i = 0; i < layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) add(file, layer + norm, {32});
    for (const char* square : {"attn_q.weight", "attn_output.weight"}) add(file, layer + square, {32, 32});
    for (const char* narrow : {"attn_k.weight", "attn_v.weight"}) add(file, layer + narrow, {32, 16});
    const auto mlp = [&](const std::string& kind, std::uint64_t width, std::vector<std::uint64_t> experts) {
      for (const std::string part : {"ffn_gate", "ffn_up", "ffn_down"}) {
        std::vector<std::uint64_t> dims = {32, width};
        if (part == "ffn_down") std::swap(dims[0], dims[1]);
        dims.insert(dims.end(), experts.begin(), experts.end());
        add(file, layer + part + kind + ".weight", dims);
      }
    };
    if (!has_experts(i)) {
      mlp("", 48, {});
      continue;
    }
    add(file, layer + "ffn_gate_inp.weight", {32, 4});
    mlp("_exps", 16, {4});
    mlp("_shexp", shared, {});
  }
  return file;
}

// Two tables and a norm; of each layer four projections and two norms.
constexpr std::uint64_t kOutside = 2 * 50 * 32 + 32, kAttention = 2 * 32 * 32 + 2 * 32 * 16 + 2 * 32;
constexpr std::uint64_t kDense = 3 * 32 * 48, kRouted = 32 * 4 + 4 * 3 * 32 * 16;

}  // namespace

TEST_CASE("Layers of a GGUF file slide as its architecture does, where the file says the window alone") {
  // The catalog has them from each model's config.json.
  const struct {
    const char *architecture, *known;
    std::uint32_t layers, window, sliding;
  } all[] = {{"gemma2", "gemma-2-9b", 42, 4096, 21},  {"gemma3", "gemma-3-27b", 62, 1024, 52},
             {"cohere2", "command-r7b", 32, 4096, 24}, {"gpt-oss", "gpt-oss-20b", 24, 128, 12},
             {"llama4", "llama-4-scout", 48, 0, 36}};
  for (const auto& [architecture, known, layers, window, sliding] : all) {
    INFO(architecture);
    GgufBytes file = of_layers(architecture, layers);
    if (window > 0) file.size(std::string(architecture) + ".attention.sliding_window", window);
    const GgufModel model = read(file).or_throw("model");
    const ModelShape shape = find_model_shape(known, std::string(KVROOF_SOURCE_DIR) + "/catalog");
    CHECK(model.shape.layer_windows == shape.layer_windows);
    CHECK(std::count(model.shape.layer_windows.begin(), model.shape.layer_windows.end(), 0U) == layers - sliding);
    CHECK(model.unknown_windows.empty());
  }
  const Windows last = {8, 8, 8, 0};
  for (const char* architecture : {"olmo2", "exaone4", "afmoe"}) {
    CHECK(read(sliding(architecture)).or_throw("model").shape.layer_windows == last);
  }
  CHECK(read(sliding("smallthinker")).or_throw("model").shape.layer_windows == Windows{0, 8, 8, 8});
  CHECK(read(sliding("llama")).or_throw("model").shape.layer_windows == Windows{8, 8, 8, 8});
  // Llama 4 without chunks says so; a Gemma 2 file of the first days says nothing of its 4,096.
  CHECK(read(of_layers("llama4", 4).size("llama4.attention.sliding_window", 0)).or_throw("0").shape.layer_windows ==
        Windows{});
  CHECK(read(of_layers("gemma2", 2)).or_throw("model").shape.layer_windows == Windows{4096, 0});
}

TEST_CASE("Layers of a GGUF file that see everything know no positions where its architecture turns the others alone") {
  CHECK(read(sliding("cohere2")).or_throw("model").shape.unturned_layers == Windows{3});
  CHECK(read(sliding("smallthinker")).or_throw("model").shape.unturned_layers == Windows{0});
  CHECK(read(sliding("gemma3")).or_throw("model").shape.unturned_layers.empty());
}

TEST_CASE("A GGUF file's own period or list of sliding layers goes before its architecture's") {
  const auto listed = [](const std::string& arch, const std::string& truths) {
    return read(sliding(arch).list(arch + ".attention.sliding_window_pattern", 7, truths.size(), truths));
  };
  for (const std::string arch : {"gemma3", "of-next-year"}) {
    const GgufBytes two = sliding(arch).size(arch + ".attention.sliding_window_pattern", 2);
    CHECK(read(two).or_throw("model").shape.layer_windows == Windows{8, 0, 8, 0});
    const GgufModel model = listed(arch, std::string("\1\0\0\1", 4)).or_throw("model");
    CHECK(model.shape.layer_windows == Windows{8, 0, 0, 8});
    CHECK(model.unknown_windows.empty());
  }
  CHECK(listed("gemma3", "\1\1\1").error() ==
        "'attention.sliding_window_pattern' says of 3 layers whether they slide, and there are 4");
}

TEST_CASE("A window of layers that nothing names is not counted, which is said") {
  const GgufModel model = read(sliding("of-next-year")).or_throw("model");
  CHECK(model.shape.layer_windows.empty());
  CHECK(model.unknown_windows ==
        "which layers of 'of-next-year' slide over 8 tokens is not known: the cache is counted as if none did");
  CHECK(read(of_layers("of-next-year", 4)).or_throw("model").unknown_windows.empty());
}

TEST_CASE("Shared experts of a GGUF file are as wide as their matrices, whatever its keys say of them") {
  // GLM-4.5 and DeepSeek say how many there are, behind layers without experts; two of 16 are one of 32.
  GgufBytes glm = of_experts("glm4moe", 3, 32, [](std::uint32_t i) { return i > 0; });
  glm.size("glm4moe.block_count", 3).size("glm4moe.leading_dense_block_count", 1);
  glm.size("glm4moe.expert_shared_count", 2);
  const GgufModel counted = read(glm).or_throw("model");
  CHECK(counted.shape.shared_expert_ffn == 32);
  CHECK(counted.shape.dense_layers == 1);
  CHECK(counted.parameters == kOutside + 3 * kAttention + kDense + 2 * (kRouted + 3 * 32 * 32));
  CHECK(parameter_count(counted.shape) == counted.parameters);
  CHECK_FALSE(counted.shape.shared_expert_gate);
  for (const char* layer : {"blk.1.", "blk.2."}) add(glm, layer + std::string("ffn_gate_inp_shexp.weight"), {32});
  const GgufModel gated = read(glm).or_throw("model");
  CHECK(gated.shape.shared_expert_gate);
  CHECK(parameter_count(gated.shape) == counted.parameters + 2 * 32);
  // Llama 4 says nothing of its shared expert, and Maverick has experts in every other layer.
  GgufBytes llama = of_experts("llama4", 4, 16, [](std::uint32_t i) { return i % 2 == 1; });
  llama.size("llama4.block_count", 4).size("llama4.interleave_moe_layer_step", 2);
  const GgufModel every_other = read(llama).or_throw("model");
  CHECK(every_other.shape.shared_expert_ffn == 16);
  CHECK(every_other.shape.dense_layers == 2);
  CHECK(every_other.parameters == kOutside + 4 * kAttention + 2 * kDense + 2 * (kRouted + 3 * 32 * 16));
  CHECK(parameter_count(every_other.shape) == every_other.parameters);
}

TEST_CASE("Layers of a GGUF file that draft tokens are no part of the model") {
  GgufBytes file = of_experts("glm4moe", 3, 16, [](std::uint32_t i) { return i > 0; });
  add(file, "blk.2.nextn.eh_proj.weight", {64, 32});
  file.size("glm4moe.block_count", 3).size("glm4moe.leading_dense_block_count", 1);
  file.size("glm4moe.nextn_predict_layers", 1);
  const GgufModel model = read(file).or_throw("model");
  const std::uint64_t by_hand = kOutside + 2 * kAttention + kDense + kRouted + 3 * 32 * 16;
  CHECK(model.shape.layers == 2);
  CHECK(model.parameters == by_hand);
  CHECK(model.bytes == 4 * by_hand);
  CHECK(parameter_count(model.shape) == by_hand);
}

TEST_CASE("A GGUF file with more parameters than its sizes describe is refused with the keys that were read") {
  GgufBytes file = llama_gguf({}, kF32, 1, 4);
  add(file, "blk.0.altup_proj.weight", {64, 64});
  std::string bytes = file.header();
  bytes.resize(file.file_size());
  const TemporaryFolder folder;
  std::ofstream(folder.file("tiny.gguf"), std::ios::binary) << bytes;
  try {
    static_cast<void>(find_model_shape(folder.file("tiny.gguf"), std::string(KVROOF_SOURCE_DIR) + "/catalog"));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("but its metadata describe") != std::string::npos);
    REQUIRE(error.notes().size() == 2);
    CHECK(error.notes()[0] ==
          "sizes were read from llama.block_count, llama.embedding_length, llama.context_length, "
          "llama.attention.head_count, llama.attention.head_count_kv, llama.feed_forward_length; none of them "
          "describes the tensors altup_proj");
  }
}
