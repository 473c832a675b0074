// Every part that a tokenizer.json may name, against the reference library: tests/golden/tokenizer-parts/make.py wrote
// the cases with it.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"

namespace {

using kvroof::StreamingDecoder;
using kvroof::Tokenizer;
using Ids = std::vector<std::int64_t>;
using nlohmann::json;

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamingDecoder decoder(tokenizer, true);
  std::string text;
  for (const std::int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

Tokenizer tokenizer_of(const json& parts, const json& model) {
  json file = parts;
  file["model"] = model;
  return Tokenizer::from_json(file.dump()).or_throw("case");
}

}  // namespace

TEST_CASE("every kind of part gives the ids and texts of the reference library") {
  std::ifstream file(KVROOF_SOURCE_DIR "/tests/golden/tokenizer-parts/cases.jsonl", std::ios::binary);
  std::string line;
  REQUIRE(std::getline(file, line));
  const json models = json::parse(line).at("models");
  int cases = 0;
  for (; std::getline(file, line); ++cases) {
    const json one = json::parse(line);
    const Tokenizer tokenizer = tokenizer_of(one.at("parts"), models.at(one.at("model").get<std::string>()));
    for (const json& text : one.at("texts")) {
      INFO(one.at("name") << ": " << text.dump());
      const auto ids = text[1].get<Ids>();
      CHECK(tokenizer.encode(text[0].get<std::string>(), false) == ids);
      CHECK(tokenizer.decode(ids, true) == text[2].get<std::string>());
      CHECK(streamed(tokenizer, ids) == text[2].get<std::string>());
    }
  }
  CHECK(cases > 100);
}
