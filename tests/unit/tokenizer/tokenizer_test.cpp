// What encode and decode promise, on a tokenizer small enough to work out by hand.
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/tokenizer/unicode.hpp"
#include "tests/catch.hpp"
#include "tests/unit/tokenizer/small_tokenizer.hpp"

namespace {

using kvroof::StreamingDecoder;
using kvroof::Tokenizer;
using kvroof::test::make;
using kvroof::test::small_tokenizer;
using Ids = std::vector<std::int64_t>;
using nlohmann::json;

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

json added(int id, const std::string& content) { return {{"id", id}, {"content", content}, {"special", false}}; }

// The 256 stand-ins of ByteLevel as the vocabulary: the id of a token is its place in code point order.
Tokenizer all_bytes() {
  json file = small_tokenizer();
  json vocab;
  int id = 100;
  for (char32_t c = 0x21; c < 0x144; ++c) {
    if ((c > 0x7E && c < 0xA1) || c == 0xAD) continue;
    std::string token;
    kvroof::append_utf8(c, token);
    vocab[token] = id++;
  }
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = json::array();
  return make(file);
}

}  // namespace

TEST_CASE("merges apply in rank order and, of equal rank, from the left") {
  const Tokenizer tokenizer = make(small_tokenizer());
  CHECK(tokenizer.encode("abcd", false) == Ids{8});
  CHECK(tokenizer.encode("abab", false) == Ids{6, 6});
  CHECK(tokenizer.encode("abc", false) == Ids{6, 2});
  // "a b" outranks "Ġ a", so Ġ stays alone before b.
  CHECK(tokenizer.encode(" ab", false) == Ids{5, 6});
  CHECK(tokenizer.encode(" ax", false) == Ids{9, 4});
  json overlapping = small_tokenizer();
  overlapping["model"]["vocab"]["aa"] = 11;
  overlapping["model"]["merges"] = {"a a"};
  CHECK(make(overlapping).encode("aaa", false) == Ids{11, 0});
}

TEST_CASE("merges may be pairs of tokens as well as strings with a space") {
  json file = small_tokenizer();
  file["model"]["merges"] = json::array({{"a", "b"}, {"c", "d"}, {"ab", "cd"}});
  CHECK(make(file).encode("abcd", false) == Ids{8});
}

TEST_CASE("a model without a type is BPE when it has merges, as the first published files are") {
  json file = small_tokenizer();
  file["model"].erase("type");
  CHECK(make(file).encode("ab", false) == Ids{6});
}

TEST_CASE("ignore_merges takes a piece of the vocabulary whole, although no merge leads to it") {
  json file = small_tokenizer();
  file["model"]["vocab"]["xx"] = 11;
  CHECK(make(file).encode("xx", false) == Ids{4, 4});
  file["model"]["ignore_merges"] = true;
  CHECK(make(file).encode("xx", false) == Ids{11});
}

TEST_CASE("characters outside the vocabulary give the unknown token, one for a run when fused, or nothing") {
  json file = small_tokenizer();
  CHECK(make(file).encode("azza", false) == Ids{0, 0});
  file["model"]["unk_token"] = "x";
  CHECK(make(file).encode("azza", false) == Ids{0, 4, 4, 0});
  file["model"]["fuse_unk"] = true;
  CHECK(make(file).encode("azza", false) == Ids{0, 4, 0});
}

TEST_CASE("an added token is found before the model sees the text, the leftmost wins, then the longest") {
  json file = small_tokenizer();
  file["added_tokens"] = {added(10, "<s>"), added(11, "<s>ab"), added(12, "b<s>abc")};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("a<s>b", false) == Ids{0, 10, 1});
  CHECK(tokenizer.encode("a<s>abcd", false) == Ids{0, 11, 7});
  CHECK(tokenizer.encode("ab<s>abcd", false) == Ids{0, 12, 3});
}

TEST_CASE("lstrip and rstrip tokens take the white space of all kinds around them") {
  json file = small_tokenizer();
  file["added_tokens"] = {added(10, "<l>"), added(11, "<r>"), added(12, "<n>")};
  file["added_tokens"][0]["lstrip"] = true;
  file["added_tokens"][1]["rstrip"] = true;
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("a \u3000\t<l> a", false) == Ids{0, 10, 9});
  CHECK(tokenizer.encode("a <r>\n\u00A0 a", false) == Ids{0, 5, 11, 0});
  CHECK(tokenizer.encode("a <n> a", false) == Ids{0, 5, 12, 9});
}

TEST_CASE("a single_word token is found only between characters that are no word characters") {
  json file = small_tokenizer();
  file["added_tokens"] = {added(10, "xa"), added(11, "xab")};
  file["added_tokens"][0]["single_word"] = true;
  CHECK(make(file).encode("xa", false) == Ids{10});
  CHECK(make(file).encode("d²xa.", false) == Ids{3, 10});
  CHECK(make(file).encode("dxa", false) == Ids{3, 4, 0});
  CHECK(make(file).encode("xa\u0301", false) == Ids{4, 0});
  file["added_tokens"][1]["single_word"] = true;
  CHECK(make(file).encode("xabd", false) == Ids{4, 6, 3});  // no shorter token in the place of a refused one
}

TEST_CASE("a token that begins in white space which another has taken is found all the same") {
  json file = small_tokenizer();
  file["added_tokens"] = {added(10, "<r>"), added(11, "\n")};
  file["added_tokens"][0]["rstrip"] = true;
  CHECK(make(file).encode("<r> \na", false) == Ids{10, 11, 0});
  file["added_tokens"][1]["lstrip"] = true;
  CHECK(make(file).encode("<r> \na", false) == Ids{10, 0});  // nothing is left of it
}

TEST_CASE("the template puts its tokens before and after a text, and only when asked") {
  json file = small_tokenizer();
  const json special = {{"SpecialToken", {{"id", "S"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {special, text, special, special}},
                            {"pair", json::array()},
                            {"special_tokens", {{"S", {{"id", "S"}, {"ids", {10, 4}}, {"tokens", {"<s>", "x"}}}}}}};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("ab", false) == Ids{6});
  CHECK(tokenizer.encode("ab", true) == Ids{10, 4, 6, 10, 4, 10, 4});
  CHECK(tokenizer.encode("", true) == Ids{10, 4, 10, 4, 10, 4});
}

TEST_CASE("a streaming decoder holds back the bytes of an unfinished character") {
  const Tokenizer tokenizer = all_bytes();
  const Ids ids = tokenizer.encode("a😀b", false);
  REQUIRE(ids.size() == 6);  // 1 + 4 + 1 bytes
  StreamingDecoder decoder(tokenizer, false);
  CHECK(decoder.push(ids[0]) == "a");
  CHECK(decoder.push(ids[1]).empty());
  CHECK(decoder.push(ids[2]).empty());
  CHECK(decoder.push(ids[3]).empty());
  CHECK(decoder.push(ids[4]) == "😀");
  CHECK(decoder.push(ids[5]) == "b");
  CHECK(decoder.finish().empty());
}

TEST_CASE("an unfinished character becomes U+FFFD at the end, or as soon as the next byte breaks it") {
  const Tokenizer tokenizer = all_bytes();
  const Ids smile = tokenizer.encode("😀", false);
  const Ids a = tokenizer.encode("a", false);
  StreamingDecoder decoder(tokenizer, false);
  CHECK(decoder.push(smile[0]).empty());
  CHECK(decoder.push(a[0]) == std::string(kReplacement) + "a");
  CHECK(decoder.push(smile[0]).empty());
  CHECK(decoder.push(smile[1]).empty());
  CHECK(decoder.finish() == kReplacement);
  CHECK(decoder.push(a[0]) == "a");  // as new after finish
}

TEST_CASE("every text of a streaming decoder is valid UTF-8, whatever the ids") {
  const Tokenizer tokenizer = all_bytes();
  StreamingDecoder decoder(tokenizer, false);
  std::string text;
  Ids ids;
  std::uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<std::int64_t>(state >> 24) + 100);
    const std::string part = decoder.push(ids.back());
    REQUIRE(kvroof::is_valid_utf8(part));
    text += part;
  }
  CHECK(text + decoder.finish() == tokenizer.decode(ids, false));
}

TEST_CASE("ids without a token and skipped special tokens give no text") {
  const Tokenizer tokenizer = make(small_tokenizer());
  CHECK(tokenizer.decode(Ids{0, -1, 11, 1 << 30, std::int64_t{1} << 40, 1}, false) == "ab");
  CHECK(tokenizer.decode(Ids{10, 8}, false) == "<s>abcd");
  CHECK(tokenizer.decode(Ids{10, 8}, true) == "abcd");
}

TEST_CASE("a token is bytes when all its characters are stand-ins, else text as it stands") {
  json file = small_tokenizer();
  file["added_tokens"] = {added(10, "é中"), added(11, "é")};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.decode(Ids{10}, false) == "é中");
  CHECK(tokenizer.decode(Ids{11, 0}, false) == std::string(kReplacement) + "a");  // the byte E9
}

TEST_CASE("each maximal invalid sequence of the input is read as U+FFFD") {
  const Tokenizer tokenizer = all_bytes();
  // The cases of the Unicode standard, table 3-8: F0 80 80 is three, E1 80 and F0 91 92 are one each.
  const std::string broken =
      "a\xF0\x80\x80"
      "b\xE1\x80"
      "c\xF0\x91\x92";
  const std::string r = kReplacement;
  CHECK(tokenizer.encode(broken, false) == tokenizer.encode("a" + r + r + r + "b" + r + "c" + r, false));
}

TEST_CASE("vocab_size is the largest id + 1 and names go both ways") {
  json file = small_tokenizer();
  file["added_tokens"].push_back(added(40, "<far>"));
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.vocab_size() == 41);
  CHECK(tokenizer.id_of("<far>") == 40);
  CHECK(tokenizer.id_of("Ġa") == 9);
  CHECK_FALSE(tokenizer.id_of(" a").has_value());
  CHECK(tokenizer.token_of(9) == "Ġa");
  CHECK_FALSE(tokenizer.token_of(20).has_value());
  CHECK_FALSE(tokenizer.token_of(-1).has_value());
}

TEST_CASE("bytes stand in for characters outside the vocabulary, and come back as text") {
  json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["model"]["byte_fallback"] = true;
  int id = 20;
  for (const char* byte : {"<0xC3>", "<0xA9>", "<0xE4>"}) file["model"]["vocab"][byte] = id++;
  file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("aéab", false) == Ids{0, 20, 21, 6});
  CHECK(tokenizer.encode("ä", false).empty());  // C3 A4: one of its bytes is missing
  CHECK(tokenizer.decode(Ids{0, 20, 21, 1}, false) == "aéb");
  CHECK(tokenizer.decode(Ids{20, 21, 22, 0}, false) == std::string(kReplacement) + kReplacement + kReplacement + "a");
  StreamingDecoder decoder(tokenizer, false);
  CHECK(decoder.push(0) == "a");
  CHECK(decoder.push(20).empty());
  CHECK(decoder.push(21).empty());  // the run may still go on and break
  CHECK(decoder.push(1) == "éb");
  CHECK(decoder.finish().empty());
}

TEST_CASE("strip takes spaces at both ends of the fused text, also when it arrives in parts") {
  json file = small_tokenizer();
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "Ġ"}}}, {"content", " "}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}}}}};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.decode(Ids{5, 5, 0, 5, 1, 5, 5, 5}, false) == " a b ");
  StreamingDecoder decoder(tokenizer, false);
  CHECK(decoder.push(5).empty());
  CHECK(decoder.push(0) == "a");
  CHECK(decoder.push(5).empty());
  CHECK(decoder.push(1) == " b");
}

TEST_CASE("tokens of a file without a decoder have a space between them") {
  json file = small_tokenizer();
  file["decoder"] = nullptr;
  CHECK(make(file).decode(Ids{0, 6, 10}, true) == "a ab");
  CHECK(make(file).decode(Ids{0, 6, 10}, false) == "a ab <s>");
}

TEST_CASE("a unigram model takes the likeliest cut, unknown characters next to each other count as one") {
  json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["added_tokens"] = json::array();
  file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array()}};
  for (const auto& [token, score] : {std::pair("<unk>", 0.0), std::pair("a", -1.0), std::pair("b", -1.0),
                                     std::pair("ab", -1.5), std::pair("aba", -4.0), std::pair("é", -2.0)}) {
    file["model"]["vocab"].push_back(json::array({token, score}));
  }
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("abab", false) == Ids{3, 3});  // -3, better than aba b (-5) and a b a b (-4)
  CHECK(tokenizer.encode("aba", false) == Ids{3, 1});   // -2.5 beats -4
  CHECK(tokenizer.encode("axyzé", false) == Ids{1, 0, 5});
}

TEST_CASE("an unknown token that does not exist is an error only when a text needs it") {
  json file = small_tokenizer();
  file["model"]["unk_token"] = "<none>";
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode("ab", false) == Ids{6});
  CHECK_THROWS_WITH(tokenizer.encode("z", false), ContainsSubstring("\"z\"") && ContainsSubstring("\"<none>\""));
}

TEST_CASE("a sentencepiece-style text of a million spaces or words is one piece and still encoded near-linearly") {
  json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"▁", 2}, {"ab", 3}, {"▁▁", 4}, {"▁▁▁▁", 5}, {"▁a", 6}};
  file["model"]["merges"] = {"a b", "▁ ▁", "▁▁ ▁▁", "▁ a"};
  const Tokenizer tokenizer = make(file);
  CHECK(tokenizer.encode(std::string(1 << 20, ' '), false) == Ids(1 << 18, 5));
  std::string words;
  for (int i = 0; i < 1 << 18; ++i) words += " ab";
  Ids expected;
  for (int i = 0; i < 1 << 18; ++i) expected.insert(expected.end(), {2, 3});
  CHECK(tokenizer.encode(words, false) == expected);
}

TEST_CASE("a word of a million letters is encoded in one pass over a heap, not quadratically") {
  json file = small_tokenizer();
  file["model"]["vocab"]["aa"] = 11;
  file["model"]["vocab"]["aaaa"] = 12;
  file["model"]["merges"] = {"a a", "aa aa"};
  const Ids ids = make(file).encode(std::string(1 << 20, 'a'), false);
  CHECK(ids == Ids(1 << 18, 12));
}

TEST_CASE("threads may share a tokenizer") {
  const Tokenizer tokenizer = make(small_tokenizer());
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.encode("abcd abcd ab", false); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) CHECK(result == Ids{8, 5, 8, 5, 6});
}
