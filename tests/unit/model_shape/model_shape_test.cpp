#include "sim/model/model_shape.hpp"

#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape shape(const std::string& name) { return find_model_shape(name, kCatalog); }

Bytes kv_of(const std::string& model, std::uint64_t tokens) {
  return Bytes(kv_bytes_per_token(shape(model), DType::kF16).value * tokens);
}

// Writes a file that is removed with the object.
struct TemporaryFile {
  std::filesystem::path path;
  TemporaryFile(const std::string& name, const std::string& text)
      : path(std::filesystem::temp_directory_path() / name) {
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

std::string message_of(const std::string& name) {
  try {
    shape(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("parameter counts equal those of the published checkpoints") {
  // From the safetensors metadata or model cards of the repositories named in the catalog.
  const std::vector<std::pair<std::string, std::uint64_t>> published = {
      {"gpt-j-6b", 6'050'882'784},
      {"mpt-7b", 6'649'286'656},
      {"bloom", 176'247'271'424},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3.1-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-65b", 65'285'660'672},
      {"mistral-7b", 7'241'732'096},
      {"opt-6.7b", 6'658'473'984},
      {"opt-13b", 12'853'473'280},
      {"opt-30b", 29'974'540'288},
      {"cerebras-gpt-6.7b", 6'658'404'352},
      {"llama-3.1-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"gemma-7b", 8'537'680'896},
      {"gemma-2-9b", 9'241'705'984},
      {"phi-2", 2'779'683'840},
      {"phi-3-mini-4k", 3'821'079'552},
      {"olmo-2-7b", 7'298'617'344},
      {"stablelm-2-1.6b", 1'644'515'328},
      {"stablelm-3b", 2'795'443'200},
      {"starcoder2-7b", 7'173'923'840},
      {"command-r", 34'980'831'232},
      {"command-r7b", 8'028'033'024},
      {"ernie-4.5-0.3b", 360'748'032},
      {"glm-4-9b", 9'400'279'040},
      {"smollm3-3b", 3'075'098'624},
      {"granite-3.3-2b", 2'533'539'840},
      {"granite-3.3-8b", 8'170'864'640},
      {"granite-3.1-3b-a800m", 3'298'793'472},
      {"exaone-3.5-7.8b", 7'818'448'896},
      {"phi-3.5-moe", 41'873'153'344},
      {"deepseek-v2-lite", 15'706'484'224},
      {"deepseek-v2", 235'741'434'880},
      {"deepseek-v3", 671'026'419'200},  // without layers that draft tokens
      {"deepseek-v3.2", 671'877'944'064},
      {"glm-5", 743'911'218'432},
      {"kimi-k2", 1'026'408'232'448},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"opt-125m", 125'239'296},
      {"opt-350m", 331'196'416},
      {"opt-1.3b", 1'315'758'080},
      {"gpt2", 124'439'808},
      {"gpt2-xl", 1'557'611'200},
      {"gpt-neox-20b", 20'554'567'680},
      {"bloom-7b1", 7'069'016'064},
      {"pythia-6.9b", 6'857'302'016},
  };
  for (const auto& [name, count] : published) {
    INFO(name);
    CHECK(parameter_count(shape(name)) == count);
  }
}

TEST_CASE("parameter counts are those that model cards round") {
  const std::vector<std::pair<std::string, double>> billions = {
      {"ernie-4.5-21b-a3b", 21.83}, {"ernie-4.5-300b-a47b", 300}, {"granite-3.1-1b-a400m", 1.33},
      {"hunyuan-7b", 7.5},          {"hunyuan-a13b", 80.4},       {"k-exaone-236b-a23b", 236},
      {"minitron-4b", 4.19},        {"mistral-small-4-119b", 119}, {"solar-open-100b", 102.6},
  };
  for (const auto& [name, count] : billions) {
    INFO(name);
    CHECK(static_cast<double>(parameter_count(shape(name))) / 1e9 == Approx(count).epsilon(0.01));
  }
}

TEST_CASE("Falcon's checkpoints hold the parameters and a second copy of the tied head") {
  CHECK(parameter_count(shape("falcon-7b")) + std::uint64_t{65024} * 4544 == 7'217'189'760);
  CHECK(parameter_count(shape("falcon-40b")) + std::uint64_t{65024} * 8192 == 41'835'970'560);
}

TEST_CASE("Gemma 3's published counts exceed its text models by one and the same vision tower") {
  // Safetensors metadata of google/gemma-3-12b-it and 27b-it, less the projector of the tower: 1152 inputs and a norm.
  const auto tower = [](const std::string& name, std::uint64_t published) {
    const ModelShape text = shape(name);
    return published - parameter_count(text) - 1152 * std::uint64_t{text.hidden} - 1152;
  };
  const std::uint64_t of_12b = tower("gemma-3-12b", 12'187'325'040);
  CHECK(of_12b == tower("gemma-3-27b", 27'432'406'640));
  CHECK(static_cast<double>(of_12b) == Approx(417e6).epsilon(0.01));  // table 1 of arXiv:2503.19786
}

TEST_CASE("of a mixture of experts one token reads what its name says") {
  // 12.9 billion: arXiv:2401.04088; 2.4 and 21 billion: arXiv:2405.04434; 3.3 billion: the Qwen3-30B-A3B model card.
  const auto billions = [](const std::string& name) {
    const ModelShape s = shape(name);
    // The papers count the embedding, of which a token reads one row.
    return static_cast<double>(active_parameters(s) + std::uint64_t{s.vocab} * s.hidden) / 1e9;
  };
  CHECK(billions("mixtral-8x7b") == Approx(12.9).epsilon(0.01));
  CHECK(billions("deepseek-v2") == Approx(21).epsilon(0.03));
  CHECK(billions("qwen3-30b-a3b") == Approx(3.3).epsilon(0.02));
  CHECK(active_parameters(shape("llama-3-8b")) == parameter_count(shape("llama-3-8b")) - 128255ULL * 4096);
}

TEST_CASE("KV bytes a token equal the published ones of grouped and of latent attention") {
  const auto bytes = [](const std::string& name) { return kv_bytes_per_token(shape(name), DType::kBF16).value; };
  CHECK(bytes("llama-3.1-405b") == 516'096);  // 516 KB: table 1 of arXiv:2505.09343
  CHECK(bytes("deepseek-v2") == 2 * 34'560);  // 34.6 thousand elements: appendix D of arXiv:2405.04434
  // 0.125 and 0.313 GB at 1,024 tokens: Hugging Face's notes on LLaMA 3.1.
  CHECK(bytes("llama-3.1-8b") * 1024 == 134'217'728);
  CHECK(bytes("llama-3.1-70b") * 1024 == 335'544'320);
  CHECK(bytes("mixtral-8x7b") == bytes("mistral-7b"));
}

TEST_CASE("a layer with a window holds no more rows than that") {
  const ModelShape gemma = shape("gemma-2-9b");  // 21 of 42 layers see 4096 tokens
  CHECK(kv_bytes(gemma, DType::kBF16, 4096) == kv_bytes_per_token(gemma, DType::kBF16) * 4096);
  CHECK(kv_bytes(gemma, DType::kBF16, 8192) == kv_bytes_per_token(gemma, DType::kBF16) * 6144);
}

TEST_CASE("parameter counts of models without a public checkpoint are within one percent of their names") {
  CHECK(static_cast<double>(parameter_count(shape("mpt-30b"))) == Approx(29.95e9).epsilon(0.001));
  CHECK(static_cast<double>(parameter_count(shape("opt-66b"))) == Approx(66e9).epsilon(0.01));
  CHECK(static_cast<double>(parameter_count(shape("opt-175b"))) == Approx(175e9).epsilon(0.01));
  CHECK(static_cast<double>(parameter_count(shape("gpt-175b"))) == Approx(175e9).epsilon(0.01));
  CHECK(static_cast<double>(parameter_count(shape("llama-30b"))) == Approx(32.5e9).epsilon(0.01));
  CHECK(static_cast<double>(parameter_count(shape("deepseek-v3"))) == Approx(671e9).epsilon(0.01));
}

TEST_CASE("weight bytes agree with the sizes logged by the H2O runs, which leave the position table out") {
  // 12.386, 23.921 and 55.803 GiB: A100 logs in the H2O repository.
  CHECK(gib(weight_bytes(shape("opt-6.7b"), DType::kF16)) == Approx(12.386).epsilon(0.002));
  CHECK(gib(weight_bytes(shape("opt-13b"), DType::kF16)) == Approx(23.921).epsilon(0.002));
  CHECK(gib(weight_bytes(shape("opt-30b"), DType::kF16)) == Approx(55.803).epsilon(0.002));
}

TEST_CASE("KV bytes at batch 128 and length 2048 equal the Scissorhands table, but for BLOOM") {
  constexpr std::uint64_t kTokens = 128 * 2048;
  CHECK(gib(kv_of("opt-175b", kTokens)) == 1152.0);
  CHECK(gib(kv_of("llama-65b", kTokens)) == 640.0);
  // The paper prints 950, which no 70 layers of 14,336 can give: 2 · 70 · 14336 · 2 B · 128 · 2048 is 980 GiB.
  CHECK(gib(kv_of("bloom", kTokens)) == 980.0);
}

TEST_CASE("KV bytes of MPT-7B with 4 beams are 1 to 32 GiB at 512 to 16k tokens, as in Keyformer's figure 1b") {
  double expected = 1.0;
  for (std::uint64_t tokens = 512; tokens <= 16384; tokens *= 2, expected *= 2) {
    CHECK(gib(kv_of("mpt-7b", 4 * tokens)) == expected);
  }
}

TEST_CASE("KV bytes of OPT are those that the papers on serving it print") {
  // 800 KB a token of OPT-13B: vLLM (arXiv 2309.06180), section 3.
  CHECK(kv_of("opt-13b", 1).value == 800 * 1024);
  // OPT-175B, batch 512, 512 + 32 tokens: weights of 325 GB and a cache of 1.2 TB: FlexGen (arXiv 2303.06865).
  CHECK(gib(weight_bytes(shape("opt-175b"), DType::kF16)) == Approx(325).epsilon(0.005));
  CHECK(gib(kv_of("opt-175b", 512 * (512 + 32))) / 1024 == Approx(1.2).epsilon(0.01));
}

TEST_CASE("multi-query attention stores one head, grouped queries store the groups") {
  // 32 layers · 1 head · (64 + 64) · 2 B, and 60 layers · 8 heads
  CHECK(kv_bytes_per_token(shape("falcon-7b"), DType::kBF16).value == 8'192);
  CHECK(kv_bytes_per_token(shape("falcon-40b"), DType::kBF16).value == 122'880);
}

TEST_CASE("grouped-query attention stores KV heads, not query heads") {
  // 32 layers · 8 heads · (128 + 128) · 2 B
  CHECK(kv_bytes_per_token(shape("llama-3-8b"), DType::kBF16).value == 131'072);
}

TEST_CASE("an embedding narrower than the hidden size adds two projections") {
  ModelShape s = shape("opt-6.7b");
  const std::uint64_t before = parameter_count(s);
  s.embedding_width = 512;
  const std::uint64_t narrower = std::uint64_t{50272} * (4096 - 512);
  CHECK(parameter_count(s) == before - narrower + 2 * 512 * 4096);
}

TEST_CASE("every catalog model is readable and has the name of its file") {
  const auto names = catalog_model_names(kCatalog);
  CHECK(names.size() >= 12);
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) CHECK(shape(name).name == name);
}

TEST_CASE("a shape survives the way through JSON") {
  for (const std::string& name : catalog_model_names(kCatalog)) {
    const std::string once = shape_to_json(shape(name));
    const auto back = shape_from_json(once);
    REQUIRE(back.ok());
    CHECK(shape_to_json(back.value()) == once);
    CHECK(parameter_count(back.value()) == parameter_count(shape(name)));
  }
}

TEST_CASE("a model is known by its name in any case, and as its page writes it") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  for (const char* name : {"qwen3-32b", "Qwen3-32B", "Qwen/Qwen3-32B"}) {
    CHECK(find_model_shape(name, catalog).name == "qwen3-32b");
  }
}

TEST_CASE("a model is known by its other names, and without the endings of tunings and storages") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  CHECK(find_model_shape("meta-llama/Llama-3.1-8B-Instruct", catalog).name == "llama-3.1-8b");
  CHECK(find_model_shape("deepseek-ai/DeepSeek-R1", catalog).name == "deepseek-v3");
  CHECK(find_model_shape("Qwen2.5-7B-Instruct-AWQ", catalog).name == "qwen2.5-7b");
  CHECK(find_model_shape("gpt_oss 120B", catalog).name == "gpt-oss-120b");
  CHECK(message_of("Qwen9-7B-Instruct").find("unknown model 'Qwen9-7B-Instruct'") == 0);
}

TEST_CASE("a checkpoint has the longest context of its own config.json, not that of another one of the same shape") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  struct Checkpoint {
    const char *typed, *name;
    std::uint32_t positions;  // max_position_embeddings
  };
  const Checkpoint checkpoints[] = {{"mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral-small-24b", 131072},
                                    {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b", 131072},
                                    {"mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b", 32768},
                                    {"Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b", 262144},
                                    {"Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b", 262144},
                                    {"Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", 40960},
                                    {"Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b", 262144},
                                    {"Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b", 262144},
                                    {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b", 262144},
                                    {"Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b", 262144},
                                    {"Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b", 262144},
                                    {"Qwen/Qwen3-4B", "qwen3-4b", 40960},
                                    {"zai-org/GLM-4.6-FP8", "glm-4.5", 202752},
                                    {"zai-org/GLM-4.5", "glm-4.5", 131072},
                                    {"moonshotai/Kimi-K2-Instruct-0905", "kimi-k2", 262144},
                                    {"moonshotai/Kimi-K2-Instruct", "kimi-k2", 131072}};
  for (const auto& [typed, name, positions] : checkpoints) {
    INFO(typed);
    const ModelShape shape = find_model_shape(typed, catalog);
    CHECK(shape.name == name);
    CHECK(shape.max_positions == positions);
  }
}

TEST_CASE("a checkpoint that bitsandbytes stored in 4 bits is known by its page's name") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  CHECK(find_model_shape("unsloth/Llama-3.2-3B-Instruct-bnb-4bit", catalog).name == "llama-3.2-3b");
  CHECK(find_model_shape("unsloth/Qwen3-8B-unsloth-bnb-4bit", catalog).name == "qwen3-8b");
}

TEST_CASE("a model that comes with the program is known by the name of its folder") {
  const std::filesystem::path root = KVROOF_SOURCE_DIR, catalog = root / "catalog";
  CHECK(shape_to_json(find_model_shape("demo", catalog)) ==
        shape_to_json(find_model_shape((root / "models/demo").string(), catalog)));
  CHECK(bundled_model("demo", catalog) == root / "models/demo");
  for (const char* name : {"", ".", "..", "./demo", "demo/", "dem"}) {
    INFO(name);
    CHECK_FALSE(bundled_model(name, catalog));
  }
}

TEST_CASE("an unknown model is answered with the nearest name") {
  CHECK(message_of("llama-2-7bx").find("did you mean llama-2-7b?") != std::string::npos);
  CHECK(message_of("opt-13").find("did you mean opt-13b?") != std::string::npos);
  CHECK(message_of("qwen3-235").find("did you mean qwen3-235b-a22b?") != std::string::npos);
  CHECK(message_of("meta-llama/Llama-3-8x") ==
        "unknown model 'meta-llama/Llama-3-8x': there is no such folder, and the catalog has no such name; did you "
        "mean llama-3-8b?");
  CHECK(message_of("Qwen/Some-Unknown-Name") ==
        "unknown model 'Qwen/Some-Unknown-Name': there is no such folder, and the catalog has no such name");
  for (const char* path : {"no/such/folder", "./folder", "../folder", "folder/config.json", "model.gguf"}) {
    INFO(path);
    CHECK(message_of(path) == std::string(path) + ": no such file or folder");
  }
}

TEST_CASE("a model file with an unknown key is refused with the nearest key") {
  const TemporaryFile file("kvroof-shape-key.yaml", "name: x\nlayer: 3\nsource: [me]\n");
  CHECK(message_of(file.path.string()).find("unknown key 'layer'; did you mean layers?") != std::string::npos);
}

TEST_CASE("a model file must name its source") {
  const TemporaryFile file("kvroof-shape-source.yaml", "name: x\nlayers: 3\n");
  CHECK(message_of(file.path.string()).find("'source' is missing") != std::string::npos);
}

TEST_CASE("a model file without a size that every model has is refused by that key") {
  const TemporaryFile file("kvroof-shape-missing.yaml",
                           "name: x\nlayers: 3\nhidden: 64\nheads: 4\nffn: 128\nvocab: 100\nsource: [me]\n");
  CHECK(message_of(file.path.string()).find("key 'max_positions' is missing") != std::string::npos);
}

TEST_CASE("impossible sizes are refused") {
  const auto problem = [](const char* key, const char* value) {
    std::string text = R"({"layers":2,"hidden":64,"heads":4,"ffn":128,"vocab":100,"max_positions":32,)";
    text += std::string("\"") + key + "\":" + value + "}";
    const auto result = shape_from_json(text);
    return result.ok() ? std::string() : result.error();
  };
  CHECK(problem("kv_heads", "2").empty());
  CHECK(problem("kv_heads", "3") == "heads is 4, not a multiple of kv_heads 3");
  CHECK(problem("layers", "0").find("layers is 0") == 0);
  CHECK(problem("layers", "-1").find("'layers' must be a whole number") == 0);
  CHECK(problem("hidden", "4294967295").find("hidden is 4294967295") == 0);
  CHECK(problem("hidden", "1e30").find("'hidden' must be a whole number") == 0);
  CHECK(problem("position", "\"sinusoidal\"").find("'position' must be one of") == 0);
  CHECK(problem("unturned_layers", "[0,1]").empty());
  CHECK(problem("unturned_layers", "[1,1]").find("unturned_layers: expected ascending") == 0);
  CHECK(problem("unturned_layers", "[2]").find("unturned_layers: expected ascending") == 0);
  CHECK_FALSE(shape_from_json("[1, 2").ok());
  CHECK_FALSE(shape_from_json("3").ok());
}

}  // namespace kvroof
