// Published numbers that follow from counting alone, as a user gets them; docs/method.md, section 9, has the tables.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

double deviation(double ours, double published) { return ours / published - 1; }

// Bars of Keyformer's figure 10, digitised (2 to 3 % of full scale): KV movement of MPT-7B with 4 beams under 50 %,
// relative to full attention, for as many generated tokens as there are in the prompt.
struct Bar {
  int tokens;
  double without_scores, with_scores;
};
constexpr std::array kFigure10 = {Bar{512, .408, .639}, Bar{1024, .367, .503}, Bar{2048, .354, .442},
                                  Bar{4096, .347, .408}};

// Bytes of a mean decode step, in tokens of the cache.
struct Moved {
  double full = 0, keyformer = 0;
  double state = 0;  // what our kernels walk of scores and draws
  double eager = 0;  // what the published code walks
};

Moved moved_at(const std::string& trace, int tokens) {
  const json points =
      json_of(fmt::format("replay {} --policy full,keyformer:budget=0.5 --as mpt-7b --beams 4 --prompt {} --output {}",
                          trace, tokens, tokens))["points"];
  constexpr double kToken = 4 * 32 * 32 * 512;  // 4 beams, 32 layers of 32 heads
  // torch's gumbel_softmax passes the logits thirteen times: a draw, log (2), neg (2), the sum (3), the quotient (2),
  // softmax (2), and the sum over queries; in the type of the model, of 16 bits.
  constexpr double kEagerBytes = 13 * 2;
  const json& policy = points[1]["accounting"]["policy"];
  const double read = points[1]["kv_read_bytes"].get<double>();
  const double state = policy["state_read_bytes"].get<double>() + policy["state_written_bytes"].get<double>();
  return {points[0]["kv_read_bytes"].get<double>() / kToken, read / kToken, state / kToken,
          read / 512 * kEagerBytes / kToken};
}

}  // namespace

TEST_CASE("KV movement under 50 % is that of Keyformer's figure 10 and the fixed work of a step") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  REQUIRE(run_program("record --model " + std::string(KVROOF_SOURCE_DIR) +
                      "/models/demo --prompt-file " KVROOF_SOURCE_DIR
                      "/models/demo/prompts/python-tempfile.txt --max-tokens 32 --ignore-eos -o " +
                      trace)
              .code == 0);
  // Fixed work of a step, in tokens of the cache, read off the first bar of each kind; the others are predicted.
  double fixed = 0, fixed_with_scores = 0;
  for (const Bar& bar : kFigure10) {
    const Moved m = moved_at(trace, bar.tokens);
    const double bytes = m.keyformer / m.full;
    const double with_state = (m.keyformer + m.state) / m.full;
    const double with_eager = (m.keyformer + m.eager) / m.full;
    if (bar.tokens == 512) {
      fixed = (bar.without_scores * m.full - m.keyformer) / (1 - bar.without_scores);
      fixed_with_scores = bar.with_scores * (m.full + fixed) - m.keyformer - m.eager;
    }
    const double predicted = (m.keyformer + fixed) / (m.full + fixed);
    const double predicted_with_scores = (m.keyformer + m.eager + fixed_with_scores) / (m.full + fixed);
    const auto print = [&](const char* what, double ours, double published) {
      fmt::print("P = G = {}, {}: {:.3f}, published {:.3f} ({:+.1f} %)\n", bar.tokens, what, ours, published,
                 100 * deviation(ours, published));
    };
    print("bytes", bytes, bar.without_scores);
    print("bytes and fixed work", predicted, bar.without_scores);
    print("with our policy state", with_state, bar.with_scores);
    print("with the passes of the published code", with_eager, bar.with_scores);
    print("with its passes and fixed work", predicted_with_scores, bar.with_scores);
    CHECK(bytes == Approx(1.0 / 3).epsilon(0.01));
    // Bytes alone are within 10 % from 1,024 tokens on; at 512 what does not depend on the length is a fifth.
    if (bar.tokens >= 1024) CHECK(std::abs(deviation(bytes, bar.without_scores)) < 0.10);
    CHECK(std::abs(deviation(predicted, bar.without_scores)) < 0.10);
    CHECK(std::abs(deviation(predicted_with_scores, bar.with_scores)) < 0.10);
    // The paper's 2.45 at 4,096 tokens, within 15 % with the fixed work; bytes alone miss it.
    if (bar.tokens == 4096) {
      fmt::print("full / 50 % with scores: our state {:.2f}, the code's passes {:.2f}, and fixed work {:.2f}; 2.45\n",
                 1 / with_state, 1 / with_eager, 1 / predicted_with_scores);
      CHECK(std::abs(deviation(1 / predicted_with_scores, 2.45)) < 0.15);
      CHECK(deviation(1 / with_eager, 2.45) > 0.15);
    }
  }
}

TEST_CASE("largest batches under R-KV are those of its table, within 10 %") {
  // A100, DeepSeek-R1-Distill-Llama-8B, which has the shape of Llama-3.1-8B. Prompts are short; 128 tokens stand for
  // them. The last row of the table holds a tenth fewer tokens than any other of it, and is left out of the gate.
  struct Row {
    int budget, output, batch;  // budget 0: full attention
    bool gated;
  };
  for (const Row& row :
       {Row{0, 8192, 62, true}, Row{0, 16384, 30, true}, Row{1024, 8192, 402, true}, Row{1024, 16384, 402, true},
        Row{1536, 8192, 287, true}, Row{1536, 16384, 287, true}, Row{3072, 8192, 150, true},
        Row{3072, 16384, 150, true}, Row{819, 8192, 479, true}, Row{2785, 8192, 167, true},
        Row{4424, 8192, 105, true}, Row{1638, 16384, 271, true}, Row{5571, 16384, 82, true},
        Row{8847, 16384, 46, false}}) {
    const std::string policy = row.budget == 0 ? "full" : "r-kv:budget=" + std::to_string(row.budget);
    const json plan = json_of("plan --model llama-3.1-8b --device a100-80g --engine unfused --prompt 128 --output " +
                              std::to_string(row.output) + " --policy " + policy);
    const double batch = plan["largest_batch_in_memory"].get<double>();
    fmt::print("{}, {} tokens: {:.0f}, published {} ({:+.1f} %)\n", policy, row.output, batch, row.batch,
               100 * deviation(batch, row.batch));
    INFO(policy << " " << row.output);
    CHECK((std::abs(deviation(batch, row.batch)) < 0.10) == row.gated);
  }
}
