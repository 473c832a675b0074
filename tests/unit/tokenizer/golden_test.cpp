// Every text and id sequence of the reference tokenizers, produced by the reference library (see the README there).
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"
#include "tests/support/json_lines.hpp"

namespace {

using kvroof::StreamingDecoder;
using kvroof::Tokenizer;
using Ids = std::vector<std::int64_t>;

std::vector<std::filesystem::path> families() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(KVROOF_SOURCE_DIR "/tests/golden/tokenizers")) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamingDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const std::int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

// What the ids decode to without special tokens; not stated where there are none.
std::string skipped(const nlohmann::json& line) {
  return line.at(line.contains("decoded_skip") ? "decoded_skip" : "decoded").get<std::string>();
}

}  // namespace

TEST_CASE("every reference text gives the ids of the reference library, with and without special tokens") {
  for (const auto& family : families()) {
    const Tokenizer tokenizer = Tokenizer::load(family / "tokenizer.json");
    const auto lines = kvroof::test::json_lines_of(family / "vectors.jsonl");
    REQUIRE(lines.size() > 100);
    for (const auto& line : lines) {
      INFO(family.filename() << ": " << line.dump());
      const auto text = line.at("text").get<std::string>();
      CHECK(tokenizer.encode(text, false) == line.at("ids").get<Ids>());
      CHECK(tokenizer.encode(text, true) == line.at("ids_special").get<Ids>());
    }
  }
}

TEST_CASE("ids of reference texts decode to the reference texts, at once and one by one") {
  for (const auto& family : families()) {
    const Tokenizer tokenizer = Tokenizer::load(family / "tokenizer.json");
    for (const auto& line : kvroof::test::json_lines_of(family / "vectors.jsonl")) {
      INFO(family.filename() << ": " << line.dump());
      const auto ids = line.at("ids_special").get<Ids>();
      CHECK(tokenizer.decode(ids, false) == line.at("decoded").get<std::string>());
      CHECK(tokenizer.decode(ids, true) == skipped(line));
      CHECK(streamed(tokenizer, ids, false) == line.at("decoded").get<std::string>());
    }
  }
}

TEST_CASE("ids that no text gives decode as in the reference library, at once and one by one") {
  for (const auto& family : families()) {
    const Tokenizer tokenizer = Tokenizer::load(family / "tokenizer.json");
    for (const auto& line : kvroof::test::json_lines_of(family / "decode.jsonl")) {
      INFO(family.filename() << ": " << line.dump());
      const auto ids = line.at("ids").get<Ids>();
      CHECK(tokenizer.decode(ids, false) == line.at("decoded").get<std::string>());
      CHECK(tokenizer.decode(ids, true) == skipped(line));
      CHECK(streamed(tokenizer, ids, false) == line.at("decoded").get<std::string>());
      CHECK(streamed(tokenizer, ids, true) == skipped(line));
    }
  }
}

TEST_CASE("the demo tokenizer puts its begin of text first and knows 4,096 tokens") {
  const Tokenizer tokenizer = Tokenizer::load(KVROOF_SOURCE_DIR "/models/demo/tokenizer.json");
  CHECK(tokenizer.vocab_size() == 4096);
  CHECK(tokenizer.id_of("<|endoftext|>") == 0);
  CHECK(tokenizer.encode("", true) == Ids{0});
}
