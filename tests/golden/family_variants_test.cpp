// Options of families that no golden has: the same model told in another way must compute what PyTorch computed.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;
using nlohmann::json;

namespace {

constexpr double kTolerance = 1e-4;  // of the largest reference value

json golden_config(const std::string& model) {
  std::ifstream file(kGoldenModels / model / "config.json");
  return json::parse(file);
}

std::vector<float> logits_of(const json& config, const Tensors& tensors, const std::vector<std::int64_t>& ids) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << config.dump();
  write_tensors(folder.path() / "model.safetensors", tensors);
  return prompt_logits(load_model(folder.path(), DType::kF32), ids);
}

// The first logits behind the golden's prompt of two tokens, with other values in its configuration.
std::vector<float> first_logits(const std::string& model, const json& changes, std::size_t count) {
  json config = golden_config(model);
  config.update(changes);
  const SafetensorsFile file = open_tensors(kGoldenModels / model / "golden.safetensors");
  const std::vector<float> logits = logits_of(config, golden_tensors(model), integers(file, "ids_2"));
  const auto last = logits.begin() + static_cast<std::ptrdiff_t>(logits.size() / 2);
  return {last, last + static_cast<std::ptrdiff_t>(count)};
}

SafetensorsFile golden(const std::string& model) { return open_tensors(kGoldenModels / model / "golden.safetensors"); }

// [rows, cols] → [cols, rows]; elements of two bytes.
StoredContent transposed(const StoredContent& from, const std::string& name) {
  const std::size_t rows = from.shape[0];
  const std::size_t cols = from.shape[1];
  StoredContent to{name, from.type, {cols, rows}, std::vector<std::byte>(from.data.size())};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      std::copy_n(from.data.begin() + static_cast<std::ptrdiff_t>((r * cols + c) * 2), 2,
                  to.data.begin() + static_cast<std::ptrdiff_t>((c * rows + r) * 2));
    }
  }
  return to;
}

// Rows of a matrix of two-byte elements, in this order.
StoredContent with_rows(const StoredContent& from, const std::vector<std::size_t>& rows) {
  const std::size_t row_bytes = from.shape[1] * 2;
  StoredContent to{from.name, from.type, {rows.size(), from.shape[1]}, {}};
  for (const std::size_t row : rows) {
    const auto first = from.data.begin() + static_cast<std::ptrdiff_t>(row * row_bytes);
    to.data.insert(to.data.end(), first, first + static_cast<std::ptrdiff_t>(row_bytes));
  }
  return to;
}

std::vector<std::size_t> rows_between(std::size_t first, std::size_t last) {
  std::vector<std::size_t> rows;
  for (std::size_t row = first; row < last; ++row) rows.push_back(row);
  return rows;
}

void append(std::vector<std::size_t>& to, const std::vector<std::size_t>& rows) {
  to.insert(to.end(), rows.begin(), rows.end());
}

}  // namespace

TEST_CASE("MPT with learned positions and biases computes what Cerebras-GPT computes with its weights") {
  const std::vector<std::array<std::string, 2>> names = {
      {"attn.c_attn", "attn.Wqkv"}, {"attn.c_proj", "attn.out_proj"}, {"ln_1", "norm_1"}, {"ln_2", "norm_2"},
      {"mlp.c_fc", "ffn.up_proj"},  {"mlp.c_proj", "ffn.down_proj"},  {"ln_f", "norm_f"},
      {"transformer.h.", "transformer.blocks."}};
  Tensors tensors;
  for (const StoredContent& tensor : golden_tensors("cerebras-gpt")) {
    std::string name = tensor.name;
    for (const auto& [from, to] : names) {
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    }
    StoredContent renamed = tensor;
    renamed.name = name;
    const bool conv1d = tensor.name.find(".h.") != std::string::npos && tensor.shape.size() == 2;
    tensors.push_back(conv1d ? transposed(tensor, name) : renamed);
  }
  const json config = {{"model_type", "mpt"},     {"d_model", 128},  {"n_heads", 2},     {"n_layers", 2},
                       {"expansion_ratio", 1.5},  {"max_seq_len", 64}, {"vocab_size", 224}, {"no_bias", false},
                       {"attn_config", {{"alibi", false}}}};
  const SafetensorsFile expected = golden("cerebras-gpt");
  CHECK(relative_error(logits_of(config, tensors, integers(expected, "ids_37")), floats(expected, "logits_37")) <=
        kTolerance);
}

TEST_CASE("Falcon's grouped layout with one group and one norm is its multi-query layout") {
  json config = golden_config("falcon");
  config["new_decoder_architecture"] = true;
  config["num_kv_heads"] = 1;
  config["num_ln_in_parallel_attn"] = 1;
  const SafetensorsFile expected = golden("falcon");
  CHECK(relative_error(logits_of(config, golden_tensors("falcon"), integers(expected, "ids_37")),
                       floats(expected, "logits_37")) <= kTolerance);
}

TEST_CASE("MPT with grouped queries computes what many heads compute whose keys and values are equal in a group") {
  // 4 query heads of 24 in 2 groups, out of the rows of 2 heads of 48.
  constexpr std::size_t kWidth = 96, kHead = 24;
  json config = golden_config("mpt-clip");
  config["n_heads"] = 4;
  Tensors many = golden_tensors("mpt-clip");
  Tensors grouped = many;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const std::string name = fmt::format("transformer.blocks.{}.attn.Wqkv.weight", layer);
    std::vector<std::size_t> repeated = rows_between(0, kWidth);
    std::vector<std::size_t> once = repeated;
    for (const std::size_t first : {kWidth, 2 * kWidth}) {
      for (std::size_t group = 0; group < 2; ++group) {
        const auto head = rows_between(first + group * kHead, first + (group + 1) * kHead);
        append(once, head);
        append(repeated, head);
        append(repeated, head);
      }
    }
    named(many, name) = with_rows(named(many, name), repeated);
    named(grouped, name) = with_rows(named(grouped, name), once);
  }
  const auto ids = integers(golden("mpt-clip"), "ids_37");
  const std::vector<float> expected = logits_of(config, many, ids);
  config["attn_config"]["attn_type"] = "grouped_query_attention";
  config["attn_config"]["kv_n_heads"] = 2;
  CHECK(logits_of(config, grouped, ids) == expected);
}

TEST_CASE("a stored head that is not the embedding counts although config.json ties them, and the model says so") {
  json config = golden_config("llama-gqa");
  config["tie_word_embeddings"] = true;
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << config.dump();
  write_tensors(folder.path() / "model.safetensors", golden_tensors("llama-gqa"));
  const Model model = load_model(folder.path(), DType::kF32);
  const SafetensorsFile expected = golden("llama-gqa");
  CHECK(relative_error(prompt_logits(model, integers(expected, "ids_37")), floats(expected, "logits_37")) <=
        kTolerance);
  CHECK_FALSE(model.config.shape.tied_head);
  REQUIRE(model.notes.size() == 1);
  CHECK(model.notes[0].find("holds another lm_head.weight") != std::string::npos);
}

TEST_CASE("a stored copy of the embedding leaves the head tied, in whatever type it is stored") {
  Tensors tensors = golden_tensors("llama");
  StoredContent head = named(tensors, "model.embed_tokens.weight");
  head.name = "lm_head.weight";
  if (GENERATE(false, true)) {
    std::vector<float> numbers(head.data.size() / size_of(head.type));
    convert_to_float(head.type, head.data.data(), numbers);
    const auto bytes = std::as_bytes(std::span(numbers));
    head.type = DType::kF32;
    head.data.assign(bytes.begin(), bytes.end());
  }
  tensors.push_back(head);
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << golden_config("llama").dump();
  write_tensors(folder.path() / "model.safetensors", tensors);
  const Model model = load_model(folder.path(), DType::kF32);
  CHECK((model.config.shape.tied_head && model.weights.head.empty() && model.notes.empty()));
}

TEST_CASE("the norms of latent attention keep an epsilon of 1e-6 whatever rms_norm_eps says") {
  // From transformers 5.24 in float32, with these weights.
  const std::vector<float> v2 = {0.228058F, -3.314901F, 1.959908F, 0.308998F, -0.518712F, -1.738912F};
  const std::vector<float> v3 = {-0.745644F, -2.560504F, -0.645242F, 1.348186F, -0.076115F, -2.482502F};
  const json changes = {{"rms_norm_eps", 0.05}};
  CHECK(relative_error(first_logits("deepseek-v2", changes, 6), v2) <= kTolerance);
  CHECK(relative_error(first_logits("deepseek_v3", changes, 6), v3) <= kTolerance);
}
