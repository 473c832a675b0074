// Questions one after the other, over a back end whose next token follows from all tokens before it.
#include "kernels/engine/questions.hpp"

#include <limits>
#include <map>

#include "sim/core/error.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

constexpr std::uint32_t kVocab = 16;
constexpr std::int64_t kEnd = 15;

ModelConfig config_of(std::uint32_t positions) {
  ModelConfig config;
  config.shape.vocab = kVocab;
  config.shape.max_positions = positions;
  config.options.eos_ids = {kEnd};
  return config;
}

// Says the sum of a sequence's tokens, never the end of a text but after a token 14.
class SummingBackend final : public Backend {
 public:
  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested,
               std::span<float> last, const LogitsSink&) override {
    passed[sequence].assign(ids.begin(), ids.end());
    asked_for[sequence] = requested;
    say(sequence, last);
  }
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    batches.push_back(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      passed.at(batch[i].sequence).push_back(batch[i].token);
      say(batch[i].sequence, logits.subspan(i * kVocab, kVocab));
    }
  }
  void release(std::uint32_t sequence) override { released[sequence] = true; }
  [[nodiscard]] KvUsage kv_usage() const override { return {}; }
  ByteCounters take_counters() override { return {}; }
  void set_recorder(Recorder*) override {}

  static std::int64_t next(std::span<const std::int64_t> tokens) {
    std::int64_t sum = 0;
    for (const std::int64_t token : tokens) sum += token;
    return tokens.back() == 14 ? kEnd : sum % 14;
  }

  std::map<std::uint32_t, TokenList> passed;
  std::map<std::uint32_t, std::uint32_t> asked_for;
  std::map<std::uint32_t, bool> released;
  std::vector<std::size_t> batches;
  bool breaks = false;

 private:
  void say(std::uint32_t sequence, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), breaks ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
    if (!breaks) logits[static_cast<std::size_t>(next(passed.at(sequence)))] = 8;
  }
};

// What an answer of so many tokens is, and what stands before it afterwards.
TokenList answer_behind(TokenList& said, std::size_t tokens) {
  TokenList answer;
  while (answer.size() < tokens && (answer.empty() || answer.back() != kEnd)) {
    answer.push_back(SummingBackend::next(said));
    if (answer.back() != kEnd) said.push_back(answer.back());
  }
  return answer;
}

}  // namespace

TEST_CASE("each question stands behind the answer before it, and all of it passes through the model once") {
  SummingBackend backend;
  const std::vector<AskedPrompt> asked = {{{1, 2, 3}, {{4, 5}, {6}}}, {{7}, {{}, {8, 9}, {2}}}, {{5, 5}, {{}}}};
  std::size_t told = 0;
  const auto answers = answer_questions(backend, config_of(100), asked, 3, 10, [&] { ++told; });
  REQUIRE(answers.size() == 3);
  for (std::uint32_t s = 0; s < 3; ++s) {
    TokenList said = asked[s].ids;
    REQUIRE(answers[s].size() == asked[s].questions.size());
    std::uint32_t behind = 0;
    for (std::size_t i = 0; i < answers[s].size(); ++i) {
      said.insert(said.end(), asked[s].questions[i].begin(), asked[s].questions[i].end());
      behind += static_cast<std::uint32_t>(asked[s].questions[i].size()) + 3;
      CHECK(answers[s][i] == answer_behind(said, 3));
    }
    said.pop_back();  // of the last answer nobody asks what follows
    CHECK(backend.passed.at(10 + s) == said);
    CHECK(backend.asked_for.at(10 + s) == behind);
    CHECK(backend.released.at(10 + s));
  }
  CHECK(told == 6 * 3);
  CHECK(backend.batches.front() == 3);  // together
}

TEST_CASE("an end of text ends an answer, and is not fed before the next question") {
  SummingBackend backend;
  const std::vector<AskedPrompt> asked = {{{14}, {{}, {3, 1}}}, {{2}, {{14}, {7}}}};
  const auto answers = answer_questions(backend, config_of(100), asked, 2, 0, {});
  CHECK(answers[0][0] == TokenList{kEnd});
  CHECK(answers[0][1] == TokenList{18 % 14, 22 % 14});
  CHECK(backend.passed.at(0) == TokenList{14, 3, 1, 4});
  CHECK(answers[1][0] == TokenList{kEnd});
  CHECK(backend.passed.at(1) == TokenList{2, 14, 7, 23 % 14});
}

TEST_CASE("where the context of the model ends so does the answer, and what is asked after it has none") {
  SummingBackend backend;
  const std::vector<AskedPrompt> asked = {{{1, 2, 3}, {{}, {4}}}};
  const auto answers = answer_questions(backend, config_of(5), asked, 8, 0, {});
  CHECK(answers[0][0].size() == 3);  // two of them are in the context
  CHECK(answers[0][1].empty());
  CHECK(backend.passed.at(0).size() == 5);
  CHECK(backend.released.at(0));
}

TEST_CASE("logits that are no numbers are refused, with the sequence and the tokens before them") {
  SummingBackend backend;
  backend.breaks = true;
  const std::vector<AskedPrompt> asked = {{{1, 2}, {{4}}}};
  CHECK_THROWS_WITH(answer_questions(backend, config_of(9), asked, 2, 6, {}),
                    Catch::Contains("sequence 6: the logits after 2 tokens are not finite numbers"));
}
