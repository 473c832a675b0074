// Model folders that are incomplete, contradictory or hostile: one sentence each, naming file and tensor.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/engine/model.hpp"
#include "tests/catch.hpp"
#include "tests/support/model_folder.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = kGoldenModels / "llama-gqa";

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

Tensors golden_tensors() { return kvroof::test::golden_tensors("llama-gqa"); }

std::string refusal_of(const Tensors& tensors) { return kvroof::test::refusal_of("llama-gqa", tensors); }

std::string refusal_with_config(const std::string& key, const nlohmann::json& value) {
  const TemporaryFolder folder;
  auto config = nlohmann::json::parse(slurp(kGolden / "config.json"));
  config[key] = value;
  write(folder.path() / "config.json", config.dump());
  fs::copy_file(kGolden / "model.safetensors", folder.path() / "model.safetensors");
  return refusal(folder.path());
}

// Two shards with an index; `spoil` may change the index before it is written.
template <class Spoil>
std::string load_shards(Spoil&& spoil) {
  const TemporaryFolder folder;
  fs::copy_file(kGolden / "config.json", folder.path() / "config.json");
  auto tensors = golden_tensors();
  const std::size_t half = tensors.size() / 2;
  nlohmann::json index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index["weight_map"][tensors[i].name] = i < half ? "a.safetensors" : "b.safetensors";
  }
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(half);
  write_tensors(folder.path() / "a.safetensors", {tensors.begin(), middle});
  write_tensors(folder.path() / "b.safetensors", {middle, tensors.end()});
  spoil(index, folder.path());
  write(folder.path() / "model.safetensors.index.json", index.dump());
  return refusal(folder.path());
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sharded checkpoint loads like a single file") {
  CHECK(load_shards([](nlohmann::json&, const fs::path&) {}) == "accepted");
}

TEST_CASE("a weight_map that leaves the folder is refused") {
  for (const char* name : {"../a.safetensors", "/etc/passwd", "x/../a.safetensors", "..", "", "a.bin"}) {
    INFO(name);
    contains(load_shards([&](nlohmann::json& index, const fs::path&) { index["weight_map"]["lm_head.weight"] = name; }),
             "expected a plain *.safetensors name inside the folder");
  }
}

TEST_CASE("an index that disagrees with its shards is refused") {
  contains(load_shards([](nlohmann::json& index, const fs::path&) {
             index["weight_map"]["lm_head.weight"] = "b.safetensors";
             index["weight_map"]["model.norm.weight"] = "a.safetensors";
           }),
           "but it does not");
  contains(load_shards([](nlohmann::json& index, const fs::path&) { index["weight_map"]["ghost"] = "a.safetensors"; }),
           "a.safetensors holds ghost, but it does not");
  contains(load_shards([](nlohmann::json&, const fs::path& folder) { fs::remove(folder / "b.safetensors"); }),
           "b.safetensors");
  contains(load_shards([](nlohmann::json& index, const fs::path&) { index = nlohmann::json::array(); }),
           "not a JSON object");
  contains(load_shards([](nlohmann::json& index, const fs::path&) { index["weight_map"] = 3; }),
           "weight_map is missing or empty");
  contains(load_shards([](nlohmann::json& index, const fs::path&) { index["weight_map"]["x"] = 3; }),
           "weight_map[\"x\"] is not a file name");
}

TEST_CASE("a tensor that two shards hold is refused") {
  contains(load_shards([](nlohmann::json& index, const fs::path& folder) {
             fs::remove(folder / "b.safetensors");
             fs::copy_file(folder / "a.safetensors", folder / "b.safetensors");
             for (auto& [name, file] : index["weight_map"].items()) file = "a.safetensors";
             index["weight_map"]["lm_head.weight"] = "b.safetensors";
           }),
           "is also in");
}

TEST_CASE("missing tensors are named and counted") {
  auto tensors = golden_tensors();
  named(tensors, "model.norm.weight").name = "something.else";
  const std::string message = refusal_of(tensors);
  contains(message, "1 of the 21 tensors that config.json asks for are missing: model.norm.weight");
}

TEST_CASE("an untied head that is missing is not replaced by the embedding") {
  auto tensors = golden_tensors();
  std::erase_if(tensors, [](const StoredContent& t) { return t.name == "lm_head.weight"; });
  contains(refusal_of(tensors), "missing: lm_head.weight");
}

TEST_CASE("tensors that have no place in the model are named") {
  auto tensors = golden_tensors();
  StoredContent extra = named(tensors, "model.norm.weight");
  extra.name = "model.layers.0.self_attn.q_proj.bias";
  tensors.push_back(extra);
  contains(refusal_of(tensors), "no place in a llama model as config.json describes it: " + extra.name);
}

TEST_CASE("buffers of rotary embedding are skipped") {
  auto tensors = golden_tensors();
  StoredContent buffer = named(tensors, "model.norm.weight");
  buffer.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  tensors.push_back(buffer);
  CHECK(refusal_of(tensors) == "accepted");
}

TEST_CASE("shapes that disagree with config.json are refused with both") {
  auto tensors = golden_tensors();
  StoredContent& norm = named(tensors, "model.norm.weight");
  norm.shape = {48};
  norm.data.resize(96);
  contains(refusal_of(tensors), "model.norm.weight has shape [48], expected [96] from config.json");
  contains(refusal_with_config("intermediate_size", 129), "has shape");
  contains(refusal_with_config("vocab_size", 225), "model.embed_tokens.weight has shape [224, 96], expected [225, 96]");
  contains(refusal_with_config("num_hidden_layers", 3), "model.layers.2.");
  contains(refusal_with_config("num_hidden_layers", 1), "no place in a llama model");
  contains(refusal_with_config("hidden_size", 1U << 24), "hidden is 16777216, expected 1 to 1048576");
}

TEST_CASE("a transposed matrix is refused although its size is right") {
  auto tensors = golden_tensors();
  StoredContent& down = named(tensors, "model.layers.0.mlp.down_proj.weight");
  std::swap(down.shape[0], down.shape[1]);
  contains(refusal_of(tensors), "down_proj.weight has shape [128, 96], expected [96, 128]");
}

TEST_CASE("weights of integers are refused") {
  auto tensors = golden_tensors();
  named(tensors, "model.norm.weight").type = DType::kI16;
  contains(refusal_of(tensors), "model.norm.weight has type I16, expected F32, F16 or BF16");
}

TEST_CASE("a checkpoint cut anywhere is refused") {
  const std::string whole = slurp(kGolden / "model.safetensors");
  for (const std::size_t keep : {std::size_t{0}, std::size_t{4}, std::size_t{8}, std::size_t{500}, whole.size() - 1}) {
    const TemporaryFolder folder;
    fs::copy_file(kGolden / "config.json", folder.path() / "config.json");
    write(folder.path() / "model.safetensors", whole.substr(0, keep));
    contains(refusal(folder.path()), "model.safetensors: ");
  }
}

TEST_CASE("folders without what is needed say what to do") {
  const TemporaryFolder folder;
  contains(refusal(folder.path() / "nowhere"), "no such model folder");
  contains(refusal(folder.path()), "no config.json in this folder");
  fs::copy_file(kGolden / "config.json", folder.path() / "config.json");
  contains(refusal(folder.path()), "neither model.safetensors nor model.safetensors.index.json");
  write(folder.path() / "pytorch_model.bin", "PK");
  contains(refusal(folder.path()), "only pickled weights (pytorch_model.bin)");
  write(folder.path() / "config.json", "{}");
  contains(refusal(folder.path()), "config.json: model_type is missing");
}

TEST_CASE("end-of-text ids of generation_config.json go before those of config.json") {
  const TemporaryFolder folder;
  fs::copy_file(kGolden / "config.json", folder.path() / "config.json");
  write(folder.path() / "generation_config.json", R"({"eos_token_id": [5, 6]})");
  CHECK(load_model_config(folder.path()).options.eos_ids == std::vector<std::int64_t>{5, 6});
  write(folder.path() / "generation_config.json", R"({"max_length": 6})");
  CHECK(load_model_config(folder.path()).options.eos_ids == std::vector<std::int64_t>{2});
  write(folder.path() / "generation_config.json", R"({"eos_token_id": "x"})");
  CHECK_THROWS_WITH(load_model_config(folder.path()), ContainsSubstring("eos_token_id"));
}
