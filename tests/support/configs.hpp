// Texts of config.json and what is read of them.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof::test {

inline ModelConfig parsed(const std::string& text) {
  auto config = parse_config_json(text);
  INFO((config.ok() ? "" : config.error()));
  REQUIRE(config.ok());
  return std::move(config).value();
}

// A file of a model in tests/golden/models.
inline std::string golden_text(const std::string& model, const std::string& name = "config.json") {
  std::ifstream file(std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/" + model + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline ModelConfig golden(const std::string& model) { return parsed(golden_text(model)); }

// The sizes of any decoder, with a family and more keys.
inline std::string decoder(const std::string& family, const std::string& more = "") {
  return R"({"model_type":")" + family +
         R"(","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":4,"intermediate_size":96,"vocab_size":100,)"
         R"("max_position_embeddings":512)" +
         (more.empty() ? "" : "," + more) + "}";
}

inline std::string refusal(const std::string& text) {
  const auto config = parse_config_json(text);
  REQUIRE_FALSE(config.ok());
  return config.error();
}

inline void check_refused(const std::string& text, const std::string& part) {
  const std::string message = refusal(text);
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace kvroof::test
