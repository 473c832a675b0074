// What measured runs of servers say of intervals, by hand; and that the shipped ones hold runs of models left out.
#include "analysis/served_rows.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

bool nothing(const Residual& /*row*/) { return false; }

// Residuals of one metric, a table each of so many seconds and logarithms.
std::vector<Residual> tables(const std::vector<std::vector<double>>& errors) {
  std::vector<Residual> residuals;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    for (const double error : errors[i]) {
      Residual residual{{"hbm", "e", "served", "d", {}}, std::to_string(i)};
      residual.log_error = error;
      residual.late = 10 * error;
      residuals.push_back(residual);
    }
  }
  return residuals;
}

TEST_CASE("a table that is drawn anew counts as one, however many rows the others have") {
  // Nine tables of a row each, 0.1 to 0.9, and one of a hundred rows of 0.05. One more table is above all: 80 % of
  // eleven equal parts are 8.8, and the ninth ends at 0.8.
  std::vector<std::vector<double>> errors = {std::vector<double>(100, 0.05)};
  for (int i = 1; i <= 9; ++i) errors.push_back({i / 10.0});
  const RowKind kind{"hbm", "e", "served", "d", {}};
  const IntervalFactors by_table = IntervalTable(tables(errors), {3, true}).factors(kind, nothing);
  CHECK(by_table.error80 == Approx(0.8));
  CHECK(by_table.error95 == Approx(0.9));  // 10.45 parts of eleven: more than the ten that were measured
  CHECK(by_table.late80 == Approx(8));
  // By rows the hundred weigh as ten of 19, one more row of mean weight 0.17, and 80 % are 15.3: up to 0.6.
  CHECK(IntervalTable(tables(errors)).factors(kind, nothing).error80 == Approx(0.6));
}

TEST_CASE("a group is as large as was asked for") {
  const RowKind kind{"hbm", "e", "served", "d", {}};
  const std::vector<Residual> three = tables({{0.1}, {0.2}, {0.3}});
  CHECK(IntervalTable(three, {3, true}).factors(kind, nothing).error80 == Approx(0.3));
  CHECK(IntervalTable(three, {4, true}).factors(kind, nothing).from == "priors");
  CHECK(IntervalTable(three).factors(kind, nothing).from == "priors");
}

TEST_CASE("an interval is no narrower than measured runs err, and reaches as late as they were") {
  const Estimate e{100, 90, 112, 80, 125};
  IntervalFactors errors;
  CHECK(at_least(e, errors).high95 == 125);  // nothing is known
  errors.error80 = std::log(1.25);
  errors.error95 = std::log(1.5);
  errors.late80 = 5;
  errors.late95 = 60;
  const Estimate wider = at_least(e, errors);
  CHECK(wider.low80 == Approx(80));
  CHECK(wider.high80 == Approx(125));
  CHECK(wider.low95 == Approx(100 / 1.5));
  CHECK(wider.high95 == Approx(150));
  errors.wider = 2;  // beyond those rows, on a logarithmic scale
  CHECK(at_least(e, errors).high80 == Approx(156.25));
  CHECK(at_least({100, 50, 200, 40, 250}, errors).high80 == 200);  // it was wider
  const Estimate late = as_late_as(e, errors, 0.5);  // half of 5 and of 60 seconds
  CHECK(late.low80 == 90);
  CHECK(late.low95 == 80);
  CHECK(late.high80 == 112);
  CHECK(late.high95 == 130);
  CHECK(as_late_as(e, errors, 4).high80 == 120);
}

constexpr const char* kHeader =
    "experiment,set,device,engine,model,dtype,tp,rate_per_s,prompt,output,metric,measured_ms,kvroof_ms\n";

TEST_CASE("a run's first tokens and answers are residuals, with the sequences that its rate and mean answer make") {
  const auto residuals =
      served_residuals(std::string("# a comment\n") + kHeader +
                           "a,stage,h100-sxm,vllm@0.15.1,llama-3.1-8b,bf16,1,4,500,200,e2e_mean,2000,1600\n"
                           "a,stage,h100-sxm,vllm@0.15.1,llama-3.1-8b,bf16,1,4,500,200,itl_mean,9,8\n"
                           "b,first 300,h100-sxm,vllm,mixtral-8x7b,fp8,2,8,500,200,ttft_p99,1500,75\n"
                           "b,first 300,h100-sxm,vllm,mixtral-8x7b,fp8,2,8,500,200,e2e_mean,5000,4000\n"
                           "c,first 300,h100-sxm,vllm,llama-3.1-8b,bf16,1,8,500,200,ttft_p90,30,60\n"
                           "c,first 300,h100-sxm,vllm,llama-3.1-8b,bf16,1,8,500,200,e2e_mean,2000,2000\n",
                       kCatalog)
          .or_throw("rows");
  REQUIRE(residuals.size() == 5);  // not the gaps
  CHECK(residuals[0].kind.metric == "served answer mean");
  CHECK(residuals[0].kind.engine == "vllm");
  CHECK(residuals[0].kind.memory == "hbm");
  CHECK(residuals[0].kind.weights == "16 bit");
  CHECK_FALSE(residuals[0].kind.experts);
  CHECK(residuals[0].group == "llama-3.1-8b");
  CHECK(residuals[0].kind.reach.sequences == Approx(8));  // 4 a second, 2 seconds each
  CHECK(residuals[0].kind.reach.tokens == 700);
  CHECK(residuals[0].log_error == Approx(std::log(1.25)));
  CHECK(residuals[0].late == Approx(0.4));
  CHECK(residuals[1].kind.metric == "served first token p99 of experts' first minute");
  CHECK(residuals[1].kind.weights == "fp8");
  CHECK(residuals[1].kind.reach.sequences == Approx(40));
  CHECK(residuals[1].kind.reach.devices == 2);
  CHECK(residuals[1].late == Approx(1.425));
  CHECK(residuals[2].kind.metric == "served answer mean of experts' first minute");
  CHECK(residuals[3].kind.metric == "served first token p90 of a first minute");
  CHECK(residuals[3].late == Approx(-0.03));
  CHECK(residuals[3].log_error == Approx(std::log(2)));
  CHECK(residuals[4].kind.metric == "served answer mean");  // of a dense model: as later
}

TEST_CASE("rows of served runs that are none are refused with their line") {
  const auto why = [](const std::string& csv) {
    const auto result = served_residuals(csv, kCatalog);
    REQUIRE_FALSE(result.ok());
    return result.error();
  };
  const std::string header = kHeader, row = "a,stage,h100-sxm,vllm,llama-3.1-8b,bf16,1,4,500,200,ttft_mean,";
  CHECK(why("") == "the file is empty");
  CHECK(why("# c\n" + header.substr(header.find(',') + 1)) == "line 2: the column experiment is missing");
  CHECK(why(header + row + "20\n") == "line 2: 12 fields, but the header has 13");
  CHECK(why("# c\n" + header + row + "20,\n") == "line 3: kvroof_ms is ``, expected a number above 0");
  CHECK(why(header + row + "0,20\n") == "line 2: measured_ms is `0`, expected a number above 0");
  CHECK(why(header + row + "inf,20\n") == "line 2: measured_ms is `inf`, expected a number above 0");
  CHECK(why(header + row + "20,20\n") == "a: it has no row of e2e_mean");
  CHECK(why(header + "\"a, b\"" + row.substr(1) + "20,20\n") == "a, b: it has no row of e2e_mean");
}

// Whether shipped runs lie where those of other models lie: the share of them, and how far the upper ends are.
struct Held {
  double inside80 = 0, inside95 = 0, median80 = 0;
};
Held held_out(bool (*chosen)(const Residual&), bool by_seconds) {
  std::ifstream in(std::string(KVROOF_SOURCE_DIR) + "/validation/serving.csv");
  std::ostringstream text;
  text << in.rdbuf();
  const std::vector<Residual> rows = served_residuals(text.str(), kCatalog).or_throw("serving.csv");
  const IntervalTable table(rows, kServedRuns);
  Held held;
  std::vector<double> ends;
  for (const Residual& row : rows) {
    if (!chosen(row)) continue;
    const IntervalFactors f = table.factors(row.kind, [&](const Residual& r) { return r.group == row.group; });
    const double error = by_seconds ? row.late : row.log_error, wider = by_seconds ? 1 : f.wider;
    const double end80 = wider * (by_seconds ? f.late80 : f.error80);
    const double end95 = wider * (by_seconds ? f.late95 : f.error95);
    held.inside80 += error <= end80 ? 1 : 0;
    held.inside95 += error <= end95 ? 1 : 0;
    ends.push_back(end80);
  }
  REQUIRE_FALSE(ends.empty());
  held.inside80 /= static_cast<double>(ends.size());
  held.inside95 /= static_cast<double>(ends.size());
  std::nth_element(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2), ends.end());
  held.median80 = ends[ends.size() / 2];
  return held;
}

TEST_CASE("intervals of answers hold measured runs whose model is left out, and are not silly") {
  const auto of_running = [](const Residual& r) {
    return r.kind.metric.starts_with("served answer") && !r.kind.metric.ends_with("minute");
  };
  const Held answers = held_out(of_running, false);
  CHECK(answers.inside80 >= 0.70);
  CHECK(answers.inside80 <= 0.95);
  CHECK(answers.inside95 >= 0.85);
  CHECK(answers.median80 <= std::log(1.4));
}

TEST_CASE("first minutes of mixtures of experts end as late as those of other such models, or nearly") {
  const Held cold = held_out([](const Residual& r) { return r.kind.metric.ends_with("experts' first minute"); }, true);
  CHECK(cold.inside80 >= 0.70);
  CHECK(cold.inside95 >= 0.85);
}

}  // namespace
}  // namespace kvroof
