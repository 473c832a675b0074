// Policies that tell kinds of tokens apart: the tokenizer comes from the model's folder.
#include <nlohmann/json.hpp>

#include "kernels/engine/token_kinds.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {
constexpr const char* kDemo = KVROOF_SOURCE_DIR "/models/demo";
}  // namespace

TEST_CASE("kinds of a vocabulary: special tokens are marked in tokenizer.json, punctuation is punctuation alone") {
  const Tokenizer tokenizer = Tokenizer::load(std::string(kDemo) + "/tokenizer.json");
  const std::vector<TokenKind> kinds = token_kinds(tokenizer);
  const auto kind_of = [&](const char* text) {
    const std::vector<std::int64_t> ids = tokenizer.encode(text, false);
    REQUIRE(ids.size() == 1);
    std::vector<TokenKind> found;
    append_kinds(kinds, ids, found);
    return found.front();
  };
  REQUIRE(kinds.size() == tokenizer.vocab_size());
  for (const char* text : {".", ",", "(", "\""}) CHECK(kind_of(text) == TokenKind::kPunctuation);
  for (const char* text : {"a", "7", " "}) CHECK(kind_of(text) == TokenKind::kOther);
  const std::int64_t end = 0;  // end of text, of config.json
  CHECK(tokenizer.decode({&end, 1}, true).empty());
  CHECK(kinds[0] == TokenKind::kSpecial);
  std::vector<TokenKind> unknown;
  append_kinds(kinds, std::vector<std::int64_t>{-1, 1'000'000'000}, unknown);
  CHECK(unknown == std::vector<TokenKind>(2, TokenKind::kOther));
}

TEST_CASE("replay under fastgen and threshold decides as the engine did, with the tokenizer of the recorded model") {
  const TemporaryFolder folder;
  for (const std::string policy : {"fastgen:recovery=0.7", "threshold:threshold=0.5:recent=8"}) {
    INFO(policy);
    const std::string trace = folder.file(policy.substr(0, 4) + ".kvt");
    const Ran recorded = run_program("record --model " + std::string(kDemo) +
                                     " --prompt \"The file is closed, then (if it was opened) removed. Why?\" "
                                     "--max-tokens 40 --ignore-eos --backend reference --policy " +
                                     policy + " -o " + trace);
    INFO(recorded.err);
    REQUIRE(recorded.code == 0);
    const Ran replayed = run_program("replay " + trace + " --policy " + policy + " --format json");
    INFO(replayed.err);
    REQUIRE(replayed.code == 0);
    const auto reproduction = nlohmann::json::parse(replayed.out)["policies"][0]["reproduction"];
    CHECK(reproduction["differences"] == 0);
    CHECK(reproduction["decisions"].get<int>() > 0);
  }
}

TEST_CASE("fastgen on a trace that names no model folder is refused in one sentence, which says what to do") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("x.kvt");
  const std::string tensors = KVROOF_SOURCE_DIR "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  REQUIRE(run_program("import qkv " + tensors + " --prompt 64 -o " + trace).code == 0);
  const Ran ran = run_program("replay " + trace + " --policy fastgen");
  CHECK(ran.code == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: the trace names no model folder, and a policy that tells kinds of tokens apart"));
  CHECK(run_program("replay " + trace + " --policy fastgen:kinds=none").code == 0);
}

TEST_CASE("a plan without a recording refuses policies that hold as many tokens as the attention says") {
  const Ran ran = run_program("plan --model llama-3-8b --device h100-sxm --policy threshold --prompt 4k --output 1k");
  CHECK(ran.code == 2);
  CHECK(ran.err.find("as its attention says") != std::string::npos);
}
