// Models whose layers hold a state in place of a cache.
#include "sim/model/state_layers.hpp"

#include <filesystem>

#include "sim/model/model_shape.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape shape(const std::string& name) { return find_model_shape(name, kCatalog); }

std::string problem_of(const std::string& change) {
  const std::string json = shape_to_json(shape("qwen3-next-80b-a3b"));
  const std::string key = change.substr(0, change.find(':'));
  const std::size_t at = json.find(key), end = json.find_first_of(",\n", at);
  std::string other = json;
  other.replace(at, end - at, change);
  const Result<ModelShape> read = shape_from_json(other);
  return read ? "" : read.error();
}

}  // namespace

TEST_CASE("models with states have as many parameters as transformers makes of their configurations") {
  // Sums over state_dict() of transformers 5.24 on no device, a tied head once; of MiniMax without the tables of decays
  // that its layers keep beside their parameters.
  const std::pair<const char*, std::uint64_t> counted[] = {
      {"qwen3-next-80b-a3b", 79674391296},  {"qwen3.5-9b", 8953803264},
      {"qwen3.5-27b", 26895998464},         {"qwen3.5-35b-a3b", 34660610688},
      {"kimi-linear-48b-a3b", 49122681728}, {"nemotron-nano-9b-v2", 8888227328},
      {"nemotron-3-nano-30b-a3b", 31577940288}, {"granite-4.0-h-micro", 3191396096},
      {"granite-4.0-h-tiny", 6939037248},   {"granite-4.0-h-small", 32207337984},
      {"lfm2-1.2b", 1170340608},            {"lfm2-8b-a1b", 8339930560},
      {"minimax-text-01", 456089655296},    {"olmo-hybrid-7b", 7430870688},
      {"qwen3.5-122b-a10b", 122111526912},  {"qwen3.5-397b-a17b", 396346350336},
      {"nemotron-3-super-120b", 120668707840}};
  for (const auto& [name, parameters] : counted) {
    INFO(name);
    CHECK(parameter_count(shape(name)) == parameters);
  }
}

TEST_CASE("Granite 4's published files have the size of its parameters in 16 bits") {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  CHECK(2.0 * static_cast<double>(parameter_count(shape("granite-4.0-h-small"))) / kGib == Approx(59.99).margin(0.005));
  CHECK(2.0 * static_cast<double>(parameter_count(shape("granite-4.0-h-tiny"))) / kGib == Approx(12.93).margin(0.01));
}

TEST_CASE("a sequence holds the matrices of all heads and what convolutions still see") {
  // Of vLLM's shapes of states, by hand.
  constexpr std::uint64_t kHalf = 2, kFloat = 4;
  CHECK(state_bytes(shape("qwen3-next-80b-a3b"), DType::kBF16).value ==
        36 * ((2 * 16 * 128 + 32 * 128) * 3 * kHalf + 32 * 128 * 128 * kHalf));
  CHECK(state_bytes(shape("qwen3.5-27b"), DType::kBF16).value ==
        48 * ((2 * 16 * 128 + 48 * 128) * 3 * kHalf + 48 * 128 * 128 * kFloat));
  CHECK(state_bytes(shape("nemotron-nano-9b-v2"), DType::kBF16).value ==
        27 * ((128 * 80 + 2 * 8 * 128) * 3 * kHalf + 128 * 80 * 128 * kFloat));
  CHECK(state_bytes(shape("kimi-linear-48b-a3b"), DType::kBF16).value ==
        20 * (3 * 32 * 128 * 3 * kHalf + 32 * 128 * 128 * kFloat));
  CHECK(state_bytes(shape("lfm2-1.2b"), DType::kBF16).value == 10 * 2048 * 2 * kHalf);
  CHECK(state_bytes(shape("minimax-text-01"), DType::kBF16).value == std::uint64_t{70} * 64 * 128 * 128 * kHalf);
  CHECK(state_bytes(shape("llama-3-8b"), DType::kBF16).value == 0);
}

TEST_CASE("only layers that attend have a cache") {
  CHECK(kv_bytes_per_token(shape("qwen3-next-80b-a3b"), DType::kBF16).value == 12 * 2 * 2 * 256 * 2);
  CHECK(kv_bytes(shape("nemotron-nano-9b-v2"), DType::kBF16, 1000).value == 1000 * 4 * 8 * 2 * 128 * 2);
  CHECK(kv_bytes_per_token(shape("kimi-linear-48b-a3b"), DType::kBF16).value == 7 * 576 * 2);
}

TEST_CASE("a token reads the weights of its experts, and of all states") {
  // Of 512 experts ten and the shared one: what the name says, 3 billion, beside the embedding.
  CHECK(static_cast<double>(active_parameters(shape("qwen3-next-80b-a3b"))) / 1e9 == Approx(3.6).margin(0.3));
  const auto active = [](const char* name) { return static_cast<double>(active_parameters(shape(name))) / 1e9; };
  CHECK(active("qwen3.5-397b-a17b") == Approx(17).margin(0.7));
  CHECK(active("nemotron-3-super-120b") == Approx(12).margin(0.8));
  CHECK(active_parameters(shape("lfm2-1.2b")) == 1170340608 + 2048);
}

TEST_CASE("a token forgets, changes and reads each matrix, and the delta rule reads it once more") {
  const auto of = [](const char* name) {
    const ModelShape s = shape(name);
    return state_operations(s.state, s.hidden);
  };
  CHECK(of("nemotron-3-nano-30b-a3b") == 5 * 64 * 64 * 128 + 2 * 4 * (64 * 64 + 2 * 8 * 128));
  CHECK(of("qwen3-next-80b-a3b") == 7 * 32 * 128 * 128 + 2 * 4 * 8192);
  CHECK(of("lfm2-1.2b") == 2 * 3 * 2048);
}

TEST_CASE("a shape with states is read as it was written, and one without them names none") {
  const ModelShape hybrid = shape("nemotron-3-nano-30b-a3b");
  const Result<ModelShape> back = shape_from_json(shape_to_json(hybrid));
  REQUIRE(back);
  CHECK(back.value().state.kind == StateKind::kMamba2);
  CHECK(back.value().state.type == DType::kF32);
  CHECK(back.value().mlp_layers == 23);
  CHECK(parameter_count(back.value()) == parameter_count(hybrid));
  const std::string plain = shape_to_json(shape("llama-3-8b"));
  for (const char* key : {"\"state_", "mlp_layers", "expert_width", "attention_gate"}) {
    CHECK(plain.find(key) == std::string::npos);
  }
}

TEST_CASE("sizes that no layer with a state has are refused, by the name of the field") {
  CHECK(problem_of("\"state_layers\": 0").find("state_layers is 0") != std::string::npos);
  CHECK(problem_of("\"state_key_heads\": 5").find("not a multiple of state_key_heads 5") != std::string::npos);
  CHECK(problem_of("\"state_heads\": 70000").find("70000") != std::string::npos);
  CHECK(problem_of("\"state_key_dim\": 0").find("a size of a state is 0") != std::string::npos);
  CHECK(problem_of("\"state_convolution\": 65").find("state_convolution is 65") != std::string::npos);
  CHECK(problem_of("\"state_kind\": \"mamba\"").find("mamba2") != std::string::npos);
  CHECK(problem_of("\"state_kind\": \"none\"").find("state_kind is missing") != std::string::npos);
  CHECK(problem_of("\"state_kind\": \"short_convolution\"").find("have no heads") != std::string::npos);
}

}  // namespace kvroof
