#include "analysis/scoreboard_markdown.hpp"

#include <deque>
#include <vector>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

std::string problem_of(const std::string& document) {
  const auto text = with_scoreboard(document, {});
  return text ? "" : text.error();
}

}  // namespace

TEST_CASE("the scoreboard replaces what is between its marks, and nothing else, by board where they say so") {
  const std::string begin(kSummaryBegin), end(kScoreboardEnd), by_board(kByBoardBegin);
  CHECK(with_scoreboard("a\n" + begin + "old\n" + end + "b\n", {}).or_throw("document") ==
        "a\n" + begin + scoreboard_summary({}) + end + "b\n");
  CHECK(with_scoreboard("a\n" + by_board + end + "b\n", {}).or_throw("document") ==
        "a\n" + by_board + scoreboard_by_board({}) + end + "b\n");
  CHECK(scoreboard_summary({}) != scoreboard_by_board({}));
  CHECK(problem_of("a\n" + end) ==
        "no line \"<!-- scoreboard: kvroof validate --readme -->\" marks where the scoreboard goes");
  CHECK(problem_of(begin) == "no line \"<!-- /scoreboard -->\" marks where the scoreboard goes");
  CHECK(problem_of(begin + begin + end) == "the line \"<!-- scoreboard: kvroof validate --readme -->\" is there twice");
  CHECK(problem_of(end + begin) == "the scoreboard's end is marked before its begin");
}

// Two engines and kernels: eleven rows of calm (on one board and on two), one of TGI and one of DeepSpeed.
class Rows {
 public:
  Rows() {
    for (int i = 0; i < 8; ++i) add("calm, Llama-7B", "calm", "RTX 4090@300W", 1, i % 2 == 0 ? 110 : 95);
    for (int i = 0; i < 3; ++i) add("calm x 2", "calm", "RTX 4090", 2, 150);
    add("TGI", "TGI", "L40S", 1, 130);
    add("DeepSpeed", "DeepSpeed", "V100", 1, 100);
    add("matrix product, RTX 4090", "", "RTX 4090", 1, 100);
    rows_.back().kind.metric = "product";
    published_.back().level = "kernel";
    add("never measured", "calm", "RTX 4090", 1, 100);
    published_.back().value.reset();
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].row = &published_[i];
  }
  std::span<const ScoredRow> all() const { return rows_; }

 private:
  // Measured as 100; the interval of 80 % ends 5 away from the prediction, that of 95 % 20.
  void add(const char* group, const char* engine, const char* gpu, int gpus, double predicted) {
    PublishedRow& row = published_.emplace_back();
    row.value = 100;
    row.engine = engine;
    row.gpu = gpu;
    row.gpus = gpus;
    ScoredRow& scored = rows_.emplace_back();
    scored.group = group;
    scored.kind.metric = "step";
    scored.predicted =
        Estimate{predicted, predicted - 5, predicted + 5, predicted - 20, predicted + 20, CostTerm::kLinear};
  }
  std::deque<PublishedRow> published_;
  std::vector<ScoredRow> rows_;
};

bool has(const std::string& text, const std::string& line) { return text.find(line) != std::string::npos; }

TEST_CASE("tables of one engine, kind and board are one line of the scoreboard, and each that fails is named") {
  const Rows rows;
  const std::string text = scoreboard_by_board(rows.all());
  CHECK(has(text, "| calm, decode step | RTX 4090 | 8 | 7.5 % | 10.0 % | +2.5 % | 50 % | 100 % |\n"));
  CHECK(has(text, "| calm, decode step | RTX 4090, several | 3 | 50.0 %"));
  CHECK(has(text, "| matrix products | RTX 4090 | 1 | 0.0 %"));
  CHECK(has(text, "14 rows, "));
  CHECK(has(text, "on average: 2 groups with 4 rows.\n"));
  CHECK(has(text, "- calm x 2: 50.0 % (3 rows, bias +50 %)\n"));
  CHECK(has(text, "- TGI: 30.0 % (1 row, bias +30 %)\n"));
  CHECK(!has(text, "- calm, Llama"));
}

TEST_CASE("the summary has a line for each engine of many rows and says which board is furthest off") {
  const Rows rows;
  const std::string text = scoreboard_summary(rows.all());
  // (4 · 10 + 4 · 5 + 3 · 50) / 11
  const std::size_t calm = text.find("| decode step | calm | 11 | 19.1 % | 50.0 % | +15.5 % | 36 % | 73 % | "
                                     "RTX 4090, several: 50.0 % |\n");
  const std::size_t others = text.find("| decode step | others | 2 | 15.0 % | 30.0 % | +15.0 % | 50 % | 50 % | "
                                       "L40S: 30.0 % |\n");
  const std::size_t kernels = text.find("| matrix products | – | 1 | 0.0 %");
  CHECK(calm < others);
  CHECK(others < kernels);
  CHECK(kernels != std::string::npos);
  CHECK(has(text, "14 rows, "));
  CHECK(has(text, "2 groups with 4 rows"));
  CHECK(!has(text, "\n- "));
}

}  // namespace kvroof
