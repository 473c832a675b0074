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
  file["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  CHECK_THAT(refusal(file), ContainsSubstring("pre_tokenizer: the type \"UnicodeScripts\" is not supported") &&
                                ContainsSubstring("Metaspace") && ContainsSubstring("WhitespaceSplit"));
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
  CHECK_THAT(with("/model/end_of_word_suffix", "</w>"), ContainsSubstring("model.end_of_word_suffix"));
  CHECK_THAT(with("/model/continuing_subword_prefix", "##"), ContainsSubstring("model.continuing_subword_prefix"));
  CHECK_THAT(with("/model/magic", 1), ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/pre_tokenizer/magic", 1), ContainsSubstring("pre_tokenizer") && ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/truncation", json{{"max_length", 10}}), ContainsSubstring("truncation"));
  CHECK_THAT(with("/padding", json{{"pad_id", 1}}), ContainsSubstring("padding"));
  CHECK_THAT(with("/added_tokens/0/magic", true),
             ContainsSubstring("added_tokens[0]") && ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/magic", 1), ContainsSubstring("\"magic\""));
  CHECK_THAT(with("/version", "2.0"), ContainsSubstring("version: only \"1.0\" is supported, found \"2.0\""));
}

TEST_CASE("settings of parts that are wrong are refused by path and value") {
  const auto with = [](const char* key, const json& part) {
    json file = small_tokenizer();
    file[key] = part;
    return refusal(file);
  };
  const json pattern = {{"Regex", "a"}};
  const auto split = [](const json& p, const char* behavior) {
    return json{{"type", "Split"}, {"pattern", p}, {"behavior", behavior}, {"invert", false}};
  };
  CHECK_THAT(
      with("pre_tokenizer", split(pattern, "Merged")),
      ContainsSubstring("pre_tokenizer.behavior: \"Merged\" is not supported") && ContainsSubstring("Contiguous"));
  CHECK_THAT(with("pre_tokenizer", split({{"Regex", "(a"}}, "Isolated")),
             ContainsSubstring("pre_tokenizer.pattern.Regex") && ContainsSubstring("\"(a\" is not valid"));
  CHECK_THAT(with("pre_tokenizer", split({{"Regex", "a"}, {"String", "a"}}, "Isolated")),
             ContainsSubstring("either String or Regex"));
  CHECK_THAT(with("pre_tokenizer", split({{"Glob", "a"}}, "Isolated")), ContainsSubstring("\"Glob\""));
  CHECK_THAT(with("pre_tokenizer", split({{"Regex", std::string(100'000, 'a')}}, "Isolated")),
             ContainsSubstring("too long"));
  CHECK_THAT(with("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}), ContainsSubstring("one character"));
  CHECK_THAT(with("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "often"}}),
             ContainsSubstring("prepend_scheme: \"often\" is not supported"));
  CHECK_THAT(
      with("pre_tokenizer",
           {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"add_prefix_space", false}}),
      ContainsSubstring("contradicts add_prefix_space"));
  CHECK_THAT(with("pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}), ContainsSubstring("above 0"));
  CHECK_THAT(with("normalizer", {{"type", "Prepend"}}), ContainsSubstring("normalizer.prepend: expected a string"));
  CHECK_THAT(with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "x"}}),
             ContainsSubstring("\"Precompiled\" is not supported"));
  CHECK_THAT(with("decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}),
             ContainsSubstring("decoder.start: expected a whole number"));
  CHECK_THAT(with("decoder", {{"type", "Sequence"}, {"decoders", {nullptr}}}),
             ContainsSubstring("decoder.decoders[0]"));
}

TEST_CASE("unigram models with wrong tokens, scores or unknown ids are refused") {
  const auto with = [](const json& vocab, const json& unknown) {
    json file = small_tokenizer();
    file["added_tokens"] = json::array();
    file["model"] = {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", vocab}};
    return refusal(file);
  };
  const json a = json::array({"a", -1.0});
  CHECK_THAT(with(json::array({a}), 1), ContainsSubstring("model.unk_id: there is no token 1"));
  CHECK_THAT(with(json::array({a, a}), 0), ContainsSubstring("\"a\" is listed twice"));
  CHECK_THAT(with(json::array({json::array({"a"})}), 0),
             ContainsSubstring("model.vocab[0]: expected a token and its score"));
  CHECK_THAT(with(json::array({json::array({"a", "b"})}), 0),
             ContainsSubstring("model.vocab[0][1]: expected a number"));
  CHECK_THAT(with(json::array({json::array({"", 0})}), 0), ContainsSubstring("may not be empty"));
  CHECK_THAT(with(json::array(), nullptr), ContainsSubstring("the vocabulary is empty"));
}

TEST_CASE("a hostile regular expression ends in one sentence, not in a hang") {
  json file = small_tokenizer();
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = Tokenizer::from_json(file.dump());
  REQUIRE(tokenizer.ok());
  CHECK_THROWS_WITH(tokenizer.value().encode(std::string(60, 'a') + "b", false),
                    ContainsSubstring("takes more than") && ContainsSubstring("steps on a text of 61 bytes"));
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

TEST_CASE("a missing tokenizer.json is a failure, an unsupported one wrong usage, both name the file") {
  const std::pair<std::string, std::string> no_files[] = {
      {"/nonexistent/tokenizer.json", "cannot open: No such file or directory"},
      {KVROOF_SOURCE_DIR, "a folder, expected a file"}};
  for (const auto& [missing, why] : no_files) {
    try {
      (void)Tokenizer::load(missing);
      FAIL("loaded a missing file");
    } catch (const kvroof::Error& e) {
      CHECK(e.code() == kvroof::ExitCode::kFailure);
      CHECK(e.what() == missing + ": " + why);
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
