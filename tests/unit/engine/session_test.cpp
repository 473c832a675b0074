// Sessions over a back end whose next token is known beforehand.
#include "kernels/engine/session.hpp"

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/reader.hpp"

using namespace kvroof;

namespace {

constexpr std::uint32_t kVocab = 16;

ModelConfig config() {
  ModelConfig config;
  config.shape.layers = config.shape.heads = config.shape.kv_heads = 1;
  config.shape.head_dim = config.shape.v_head_dim = 2;
  config.shape.vocab = kVocab;
  config.options.layers.resize(1);
  config.shape.max_positions = 12;
  config.options.eos_ids = {9, 11};
  return config;
}

// Says the last token plus one, whatever came before.
class CountingBackend : public Backend {
 public:
  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested,
               std::span<float> last, const LogitsSink& all) override {
    requested_ = requested;
    say(ids.back(), last);
    asked_for_all.push_back(static_cast<bool>(all));
    // Blocks of two tokens.
    std::vector<float> rows;
    for (std::size_t i = 0; all && i < ids.size(); ++i) {
      rows.resize(rows.size() + kVocab);
      say(ids[i], std::span(rows).last(kVocab));
      if (i % 2 == 0 && i + 1 < ids.size()) continue;
      all(rows);
      rows.clear();
    }
    counters_.add(Cause::kWeights, 100);
    alive[sequence] = true;
  }
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    batches.push_back(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) say(batch[i].token, logits.subspan(i * kVocab, kVocab));
    counters_.add(Cause::kWeights, 10);
  }
  void release(std::uint32_t sequence) override { alive[sequence] = false; }
  [[nodiscard]] KvUsage kv_usage() const override { return {}; }
  ByteCounters take_counters() override { return std::exchange(counters_, {}); }
  void set_recorder(Recorder*) override {}

  std::vector<std::size_t> batches;
  std::vector<bool> asked_for_all;
  std::map<std::uint32_t, bool> alive;
  std::uint32_t requested_ = 0;

 private:
  static void say(std::int64_t last, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0F);
    logits[static_cast<std::size_t>(last + 1) % kVocab] = 8;
  }
  ByteCounters counters_;
};

// Chooses by itself, with a log-probability that no logits of its have.
class ChoosingBackend final : public CountingBackend {
 public:
  bool decode_greedily(std::span<const DecodeEntry> batch, std::span<TokenChoice> choices) override {
    chose += batch.size();
    for (std::size_t i = 0; i < batch.size(); ++i) choices[i] = {batch[i].token + 1, logprob};
    return true;
  }
  std::size_t chose = 0;
  float logprob = -0.25F;
};

// Holds four bytes of each token until its sequence is released.
class HoldingBackend final : public CountingBackend {
 public:
  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested,
               std::span<float> last, const LogitsSink& all) override {
    CountingBackend::prefill(sequence, ids, requested, last, all);
    tokens_[sequence] = ids.size();
  }
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    CountingBackend::decode(batch, logits);
    for (const DecodeEntry& entry : batch) ++tokens_[entry.sequence];
  }
  void release(std::uint32_t sequence) override {
    CountingBackend::release(sequence);
    tokens_.erase(sequence);
  }
  [[nodiscard]] KvUsage kv_usage() const override {
    KvUsage usage;
    for (const auto& [sequence, tokens] : tokens_) usage.resident_bytes += 4 * tokens;
    return usage;
  }

 private:
  std::map<std::uint32_t, std::uint64_t> tokens_;
};

using Prompts = std::vector<std::vector<std::int64_t>>;

}  // namespace

TEST_CASE("a session stops after the tokens that were asked for, feeding back all but the last") {
  CountingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 3;
  const SessionResult result = run_session(backend, config(), {{1, 2}}, options, nullptr);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{3, 4, 5});
  CHECK(result.sequences[0].stop == StopReason::kLength);
  CHECK(backend.batches == std::vector<std::size_t>{1, 1});
  CHECK(backend.requested_ == 3);
  CHECK(result.prompt_tokens == 2);
  CHECK(result.decoded_tokens == 2);
  CHECK(result.prefill_bytes[Cause::kWeights] == 100);
  CHECK(result.decode_bytes[Cause::kWeights] == 20);
}

TEST_CASE("what a back end chooses of a step by itself is taken, and no logits are asked for") {
  ChoosingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 3;
  const SessionResult result = run_session(backend, config(), {{1, 2}, {4}}, options, nullptr);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{3, 4, 5});
  CHECK(result.sequences[1].ids == std::vector<std::int64_t>{5, 6, 7});
  CHECK(result.sequences[1].logprobs[1] == -0.25F);
  CHECK(result.sequences[1].logprobs[0] > -0.1F);  // of a prompt it gave logits
  CHECK(backend.chose == 4);
  CHECK(backend.batches.empty());
}

TEST_CASE("a token that is drawn is drawn from logits, whatever the back end would choose") {
  ChoosingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 3;
  options.sampling.temperature = 0.01;
  const SessionResult result = run_session(backend, config(), {{1, 2}}, options, nullptr);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{3, 4, 5});
  CHECK(backend.chose == 0);
  CHECK(backend.batches.size() == 2);
}

TEST_CASE("tokens of a batch are drawn alike by any number of threads") {
  const auto ids_with = [](unsigned threads) {
    CountingBackend backend;
    SessionOptions options;
    options.max_new_tokens = 9;
    options.ignore_eos = true;
    options.sampling = {6.0, 0, 1, 3};
    options.threads = threads;
    const SessionResult result = run_session(backend, config(), {{1}, {2}, {3}}, options, nullptr);
    std::vector<std::vector<std::int64_t>> ids;
    for (const SequenceResult& sequence : result.sequences) ids.push_back(sequence.ids);
    return ids;
  };
  const auto alone = ids_with(1);
  CHECK(alone == ids_with(3));
  CHECK(alone[0] != alone[1]);
}

TEST_CASE("a choice without a finite probability is an error, as logits without one are") {
  ChoosingBackend backend;
  backend.logprob = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(run_session(backend, config(), {{1, 2}}, {}, nullptr),
                    ContainsSubstring("sequence 0: the logits after 3 tokens are not finite numbers"));
}

TEST_CASE("any of the end-of-text ids ends a sequence, and is its last id") {
  CountingBackend backend;
  const SessionResult result = run_session(backend, config(), {{6}, {10}}, {}, nullptr);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{7, 8, 9});
  CHECK(result.sequences[0].stop == StopReason::kEndOfText);
  CHECK(result.sequences[1].ids == std::vector<std::int64_t>{11});
  CHECK_FALSE(backend.alive[0]);
  CHECK_FALSE(backend.alive[1]);
}

TEST_CASE("end of text can be ignored, but not the end of the context") {
  CountingBackend backend;
  SessionOptions options;
  options.ignore_eos = true;
  const SessionResult result = run_session(backend, config(), {{6, 7, 8}}, options, nullptr);
  // Twelve positions: three of the prompt, nine of new tokens; the last new token is known but has no position.
  CHECK(result.sequences[0].ids.size() == 10);
  CHECK(result.sequences[0].stop == StopReason::kContext);
  CHECK(backend.batches.size() == 9);
}

TEST_CASE("sequences leave the batch as they end") {
  CountingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 5;
  const SessionResult result = run_session(backend, config(), {{7}, {1}, {8}}, options, nullptr);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{8, 9});
  CHECK(result.sequences[1].ids == std::vector<std::int64_t>{2, 3, 4, 5, 6});
  CHECK(result.sequences[2].ids == std::vector<std::int64_t>{9});
  CHECK(backend.batches == std::vector<std::size_t>{2, 1, 1, 1});
}

TEST_CASE("new tokens are told as they come, with the log-probability that the model gave them") {
  CountingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 2;
  std::vector<std::int64_t> told;
  options.on_token = [&](std::uint32_t, std::int64_t token) { told.push_back(token); };
  const SessionResult result = run_session(backend, config(), {{1}}, options, nullptr);
  CHECK(told == result.sequences[0].ids);
  const double expected = 8 - std::log(std::exp(8.0) + kVocab - 1);
  CHECK(result.sequences[0].logprobs[0] == Approx(expected));
}

TEST_CASE("logits of the whole prompt are computed only when they are asked for") {
  CountingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 1;
  options.prompt_logprobs = true;  // of no use without a recorder
  run_session(backend, config(), {{1, 2, 3}}, options, nullptr);
  std::vector<std::size_t> blocks;
  options.on_prompt_logits = [&](std::uint32_t, std::span<const float> logits) {
    blocks.push_back(logits.size() / kVocab);
  };
  run_session(backend, config(), {{1, 2, 3}}, options, nullptr);
  CHECK(backend.asked_for_all == std::vector<bool>{false, true});
  CHECK(blocks == std::vector<std::size_t>{2, 1});
}

TEST_CASE("a recording computes what a run does, and more only for the log-probabilities of the prompt") {
  for (const bool wanted : {false, true}) {
    CountingBackend backend;
    SessionOptions options;
    options.max_new_tokens = 2;
    options.prompt_logprobs = wanted;
    const test::TemporaryFolder folder;
    RecordedRun run;
    run.prompts = {3};
    Model model;
    model.config = config();
    TraceRecorder recorder(folder.path() / "run.kvt", make_manifest(model, run));
    run_session(backend, config(), {{1, 2, 5}}, options, &recorder);
    recorder.seal();
    const auto logprobs = TraceReader::open(folder.path() / "run.kvt").logprobs(0);
    REQUIRE(logprobs.size() == 5);
    CHECK(backend.asked_for_all == std::vector<bool>{wanted});
    CHECK(logprobs[0] == 0);
    // The back end says 2 after 1, and 3 after 2: the prompt's second token is likely, its third is not.
    const double likely = 8 - std::log(std::exp(8.0) + kVocab - 1);
    for (const auto& [token, logprob] : {std::pair(1, likely), std::pair(2, likely - 8)}) {
      if (wanted) CHECK(logprobs[token] == Approx(logprob));
      if (!wanted) CHECK(std::isnan(logprobs[token]));
    }
    for (const int token : {3, 4}) CHECK(logprobs[token] == Approx(likely));
  }
}

TEST_CASE("a recorded step says what the cache held after it, and a sequence that ended is gone from the next one") {
  HoldingBackend backend;
  SessionOptions options;
  options.max_new_tokens = 4;
  const test::TemporaryFolder folder;
  RecordedRun run;
  run.backend = "reference";
  run.prompts = {2, 1};
  Model model;
  model.config = config();
  TraceRecorder recorder(folder.path() / "run.kvt", without_attention(make_manifest(model, run)));
  run_session(backend, config(), {{1, 2}, {7}}, options, &recorder);
  recorder.seal();
  std::vector<std::uint64_t> held;
  for (const StepRecord& step : TraceReader::open(folder.path() / "run.kvt").steps()) {
    held.push_back(step.kv_resident_bytes.value_or(0));
  }
  // Two prompts of two tokens and of one; 8 is followed by 9, which ends the second sequence after a step of both.
  CHECK(held == std::vector<std::uint64_t>{4 * 2, 4 * (2 + 1), 4 * (3 + 2), 4 * 4, 4 * 5});
}

TEST_CASE("an interrupt ends the run after the step in progress") {
  CountingBackend backend;
  std::atomic<bool> interrupted{false};
  SessionOptions options;
  options.interrupted = &interrupted;
  options.on_token = [&](std::uint32_t, std::int64_t token) { interrupted = token == 4; };
  const SessionResult result = run_session(backend, config(), {{1}}, options, nullptr);
  CHECK(result.interrupted);
  CHECK(result.sequences[0].ids == std::vector<std::int64_t>{2, 3, 4});
  CHECK(result.sequences[0].stop == StopReason::kInterrupted);
}

TEST_CASE("prompts that cannot be run are refused by name") {
  const auto refusal = [](const Prompts& prompts) {
    try {
      check_prompts(config(), prompts);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({{1}, {}}) == "prompt 1 is empty; expected at least one token");
  CHECK(refusal({{1, 16}}) == "prompt 0: token 1 has id 16, but the model knows ids 0 to 15");
  CHECK(refusal({{-1}}) == "prompt 0: token 0 has id -1, but the model knows ids 0 to 15");
  CHECK(refusal({std::vector<std::int64_t>(13, 1)}) == "prompt 0 has 13 tokens, but the context of the model is 12");
  CHECK(refusal({std::vector<std::int64_t>(12, 1)}).empty());
}

TEST_CASE("logits that are no numbers end the run instead of becoming a token") {
  class NanBackend : public CountingBackend {
    void prefill(std::uint32_t, std::span<const std::int64_t>, std::uint32_t, std::span<float> logits,
                 const LogitsSink&) override {
      std::fill(logits.begin(), logits.end(), std::nanf(""));
    }
  } backend;
  CHECK_THROWS_WITH(run_session(backend, config(), {{1}}, {}, nullptr), ContainsSubstring("not finite"));
}
