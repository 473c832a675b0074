#include "analysis/scoreboard_markdown.hpp"

#include "tests/catch.hpp"

namespace kvroof {
namespace {

std::string problem_of(const std::string& document) {
  const auto text = with_scoreboard(document, "x\n");
  return text ? "" : text.error();
}

}  // namespace

TEST_CASE("the scoreboard replaces what is between its marks, and nothing else") {
  const std::string begin(kScoreboardBegin), end(kScoreboardEnd);
  CHECK(with_scoreboard("a\n" + begin + "old\n" + end + "b\n", "new\n").or_throw("document") ==
        "a\n" + begin + "new\n" + end + "b\n");
  CHECK(problem_of("a\n" + end) ==
        "no line \"<!-- scoreboard: kvroof validate --readme -->\" marks where the scoreboard goes");
  CHECK(problem_of(begin) == "no line \"<!-- /scoreboard -->\" marks where the scoreboard goes");
  CHECK(problem_of(begin + begin + end) == "the line \"<!-- scoreboard: kvroof validate --readme -->\" is there twice");
  CHECK(problem_of(end + begin) == "the scoreboard's end is marked before its begin");
}

TEST_CASE("tables of one engine, kind and device are one line of the scoreboard, and each that fails is named") {
  PublishedRow near, far, kernel;
  near.value = far.value = kernel.value = 100;
  near.engine = far.engine = "calm";
  near.gpu = far.gpu = "RTX 4090@300W";
  far.gpus = 2;
  kernel.level = "kernel";
  kernel.gpu = "RTX 4090";
  std::vector<ScoredRow> rows(4);
  rows[0].row = rows[1].row = &near;
  rows[2].row = &far;
  rows[3].row = &kernel;
  const char* groups[] = {"calm, Llama-7B", "calm, Llama-8B", "calm x 2", "matrix product, RTX 4090"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].group = groups[i];
    rows[i].kind.metric = i == 3 ? "product" : "step";
  }
  rows[0].predicted = Estimate{110, 90, 130, 80, 140, CostTerm::kLinear};
  rows[1].predicted = Estimate{95, 80, 99, 70, 120, CostTerm::kLinear};
  rows[2].predicted = Estimate{150, 120, 180, 110, 200, CostTerm::kLinear};
  rows[3].predicted = Estimate{100, 90, 110, 80, 120, CostTerm::kLinear};
  const std::string text = scoreboard_markdown(rows);
  CHECK(text.find("| calm, decode step | RTX 4090 | 2 | 7.5 % | 10.0 % | +2.5 % | 50 % | 100 % |\n") !=
        std::string::npos);
  CHECK(text.find("| calm, decode step | RTX 4090, several | 1 | 50.0 %") != std::string::npos);
  CHECK(text.find("| matrix products | RTX 4090 | 1 | 0.0 %") != std::string::npos);
  CHECK(text.find("4 rows, ") != std::string::npos);
  CHECK(text.find("- calm x 2: 50.0 % (1 row, bias +50 %)\n") != std::string::npos);
  CHECK(text.find("- calm, Llama") == std::string::npos);
}

}  // namespace kvroof
