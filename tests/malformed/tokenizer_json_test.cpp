// Damaged, hostile and unsupported tokenizer.json: one clear sentence each, never a crash.
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/tokenizer/small_tokenizer.hpp"

namespace {

using kvroof::Tokenizer;
using kvroof::test::byte_level;
using kvroof::test::small_tokenizer;
using nlohmann::json;

// Why the text is refused; fails when it is accepted.
std::string refusal(const std::string& text) {
  const auto result = Tokenizer::from_json(text);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().find('\n') == std::string::npos);
  return result.error();
}
std::string refusal(const json& file) { return refusal(file.dump()); }

}  // namespace

TEST_CASE("a tokenizer.json cut anywhere is refused") {
  const std::string text = small_tokenizer().dump();
  REQUIRE(Tokenizer::from_json(text).ok());
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK_FALSE(Tokenizer::from_json(text.substr(0, length)).ok());
  }
  CHECK_THAT(refusal(text.substr(0, 50)), ContainsSubstring("truncated") && ContainsSubstring("50 bytes"));
}

TEST_CASE("text that is no JSON object is refused with the place of the error") {
  CHECK_THAT(refusal(std::string("{\"model\": nonsense}")), ContainsSubstring("byte 12"));
  CHECK_THAT(refusal(std::string("[1, 2]")), ContainsSubstring("expected a JSON object"));
  CHECK_THAT(refusal(std::string("{\"model\": 1e999}")), ContainsSubstring("out of range"));
  CHECK_THAT(refusal(std::string("{\"a\": \"\xFF\"}")), ContainsSubstring("not valid JSON"));
  CHECK_FALSE(Tokenizer::from_json(std::string(200000, '[')).ok());
  CHECK_FALSE(Tokenizer::from_json("{\"a\":" + std::string(200000, '[') + std::string(200000, ']') + "}").ok());
}

TEST_CASE("part types that are not built are refused by name, with the nearest known one") {
  json file = small_tokenizer();
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  CHECK_THAT(refusal(file), ContainsSubstring("pre_tokenizer") && ContainsSubstring("\"Metaspace\" is not supported"));
  file = small_tokenizer();
  file["pre_tokenizer"]["type"] = "ByteLevl";
  CHECK_THAT(refusal(file), ContainsSubstring("did you mean ByteLevel?"));
  file = small_tokenizer();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {byte_level(), {{"type", "Oracle"}}}}};
  CHECK_THAT(refusal(file), ContainsSubstring("pre_tokenizer.pretokenizers[1]") && ContainsSubstring("Oracle"));
  for (const char* part : {"normalizer", "post_processor", "decoder", "model"}) {
    file = small_tokenizer();
    file[part]["type"] = "Oracle";
    CHECK_THAT(refusal(file), ContainsSubstring(part) && ContainsSubstring("\"Oracle\" is not supported"));
  }
}

TEST_CASE("settings that change ids and are not built are refused by name, never ignored") {
  const auto with = [](const char* pointer, const json& value) {
    json file = small_tokenizer();
    file[json::json_pointer(pointer)] = value;
    return refusal(file);
  };
  CHECK_THAT(with("/model/dropout", 0.1), ContainsSubstring("model.dropout"));
  CHECK_THAT(with("/model/byte_fallback", true), ContainsSubstring("model.byte_fallback"));
  CHECK_THAT(with("/model/end_of_word_suffix", "</w>"), ContainsSubstring("model.end_of_word_suffix"));
  CHECK_THAT(with("/model/continuing_subword_prefix", "##"), ContainsSubstring("model.continuing_subword_prefix"));
  CHECK_THAT(with("/model/magic", 1), ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/pre_tokenizer/magic", 1), ContainsSubstring("pre_tokenizer") && ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/truncation", json{{"max_length", 10}}), ContainsSubstring("truncation"));
  CHECK_THAT(with("/padding", json{{"pad_id", 1}}), ContainsSubstring("padding"));
  CHECK_THAT(with("/added_tokens/0/single_word", true), ContainsSubstring("added_tokens[0].single_word"));
  CHECK_THAT(with("/magic", 1), ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/decoder", nullptr), ContainsSubstring("decoder"));
}

TEST_CASE("token ids that are no ids, or belong to two tokens, are refused") {
  const auto with_id = [](const json& id) {
    json file = small_tokenizer();
    file["model"]["vocab"]["x"] = id;
    return refusal(file);
  };
  for (const json& id : {json(-1), json(1.5), json(3000000000U), json("4"), json(nullptr), json(UINT64_MAX)}) {
    CHECK_THAT(with_id(id), ContainsSubstring("model.vocab[\"x\"]") && ContainsSubstring("token id"));
  }
  CHECK_THAT(with_id(3), ContainsSubstring("the id 3 is also that of \"d\""));
  json file = small_tokenizer();
  file["added_tokens"][0]["id"] = 3;
  CHECK_THAT(refusal(file), ContainsSubstring("the id 3 of \"<s>\" is also that of \"d\""));
  file["added_tokens"][0] = {{"id", 3}, {"content", "a"}};
  CHECK_THAT(refusal(file), ContainsSubstring("\"a\" has the id 3, but 0 in the vocabulary"));
  file["added_tokens"][0] = {{"id", 10}, {"content", ""}};
  CHECK_THAT(refusal(file), ContainsSubstring("may not be empty"));
}

TEST_CASE("merges that are no two tokens, or name unknown ones, are refused with their place") {
  const auto with = [](const json& merge) {
    json file = small_tokenizer();
    file["model"]["merges"].push_back(merge);
    return refusal(file);
  };
  CHECK_THAT(with("a q"), ContainsSubstring("model.merges[4]") && ContainsSubstring("\"q\"") &&
                              ContainsSubstring("not in the vocabulary"));
  CHECK_THAT(with("a d"), ContainsSubstring("\"ad\"") && ContainsSubstring("not in the vocabulary"));
  CHECK_THAT(with("ab"), ContainsSubstring("two tokens"));
  CHECK_THAT(with("a b c"), ContainsSubstring("two tokens"));
  CHECK_THAT(with(json::array({"a", "b", "c"})), ContainsSubstring("found 3"));
  CHECK_THAT(with(json::array({"a", 1})), ContainsSubstring("expected a string"));
  CHECK_THAT(with(7), ContainsSubstring("expected an array"));
}

TEST_CASE("templates that name unknown tokens, drop or repeat the text are refused") {
  const json text = {{"Sequence", {{"id", "A"}}}};
  const json special = {{"SpecialToken", {{"id", "S"}}}};
  const auto with = [&](const json& single, const json& specials) {
    json file = small_tokenizer();
    file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", specials}};
    return refusal(file);
  };
  CHECK_THAT(with({special, text}, json::object()), ContainsSubstring("\"S\"") && ContainsSubstring("special_tokens"));
  CHECK_THAT(with({special, text}, {{"S", {{"ids", {99}}}}}), ContainsSubstring("no token with the id 99"));
  CHECK_THAT(with({text, text}, json::object()), ContainsSubstring("repeats the text"));
  CHECK_THAT(with(json::array(), json::object()), ContainsSubstring("leaves out the text"));
  CHECK_THAT(with(json::array({{{"Sequence", {{"id", "B"}}}}}), json::object()), ContainsSubstring("\"A\""));
  json file = small_tokenizer();
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<t>", 10}}, {"sep", {"<s>", 10}}};
  CHECK_THAT(refusal(file), ContainsSubstring("the id 10 is that of \"<s>\", not of \"<t>\""));
}

TEST_CASE("sequences nested without end are refused before the stack ends") {
  json part = byte_level();
  for (int i = 0; i < 200; ++i) part = {{"type", "Sequence"}, {"pretokenizers", {part}}};
  json file = small_tokenizer();
  file["pre_tokenizer"] = part;
  CHECK_THAT(refusal(file), ContainsSubstring("nested too deeply"));
}

TEST_CASE("names from the file are shown cut and without control characters") {
  json file = small_tokenizer();
  file["decoder"]["type"] = "evil\n\x1b[2J" + std::string(100000, 'x');
  const std::string message = refusal(file);
  CHECK(message.size() < 300);
  CHECK(message.find('\x1b') == std::string::npos);
}

TEST_CASE("a missing tokenizer.json is a failure, an unsupported one wrong usage; both name the file") {
  for (const std::string missing : {"/nonexistent/tokenizer.json", KVROOF_SOURCE_DIR}) {  // the second is a folder
    try {
      (void)Tokenizer::load(missing);
      FAIL("loaded a missing file");
    } catch (const kvroof::Error& e) {
      CHECK(e.code() == kvroof::ExitCode::kFailure);
      CHECK_THAT(e.what(), ContainsSubstring(missing + ": no such file"));
    }
  }
  const auto path = std::filesystem::temp_directory_path() / "kvroof_unsupported_tokenizer.json";
  json file = small_tokenizer();
  file["model"]["type"] = "WordPiece";
  std::ofstream(path) << file.dump();
  try {
    (void)Tokenizer::load(path);
    FAIL("loaded an unsupported file");
  } catch (const kvroof::Error& e) {
    CHECK(e.code() == kvroof::ExitCode::kUsage);
    CHECK_THAT(e.what(), ContainsSubstring(path.string()) && ContainsSubstring("WordPiece"));
  }
  std::filesystem::remove(path);
}
