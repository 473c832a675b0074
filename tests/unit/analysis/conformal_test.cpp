#include "analysis/conformal.hpp"

#include <cmath>

#include "analysis/scoreboard.hpp"
#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

namespace {
// Left out: the intervals are those of the table's own rows.
bool nothing(const Residual& /*measured*/) { return false; }
}  // namespace

TEST_CASE("an unstated load is the interval: what other rows were off by does not multiply it") {
  const Estimate load{10, 5, 40, 4, 50, CostTerm::kLoad};
  CHECK(with_factors(load, {3, 9, "", ""}).high95 == 50);
}

TEST_CASE("intervals hold the share of like rows that they claim, and leave out a row's own table") {
  std::vector<Residual> residuals;
  const RowKind kind{"hbm", "e", "step", "d", {}};
  for (int table = 0; table < 5; ++table) {
    for (int i = 1; i <= 20; ++i) residuals.push_back({kind, std::string(1, static_cast<char>('a' + table)), i / 20.0});
  }
  for (int i = 0; i < 20; ++i) residuals.push_back({kind, "far", 100});
  const IntervalTable table(residuals);
  const auto far = [](const Residual& r) { return r.group == "far"; };
  CHECK(table.factors(kind, far).factor80 == Approx(0.85));  // 81 of 101
  CHECK(table.factors(kind, far).factor95 == Approx(1.0));
  CHECK(table.factors(kind).factor80 == Approx(1.0));  // 17 % of the rows are far
  CHECK(table.factors(kind).factor95 == Approx(100));
  CHECK(table.factors({"gddr", "other", "step", "d", {}}, far).from == "step: 100 rows");
  CHECK(table.factors({"hbm", "e", "memory", "d", {}}).from == "priors");  // times say nothing of bytes
  CHECK(IntervalTable({}).factors(kind).from == "priors");
  const Estimate e{100, 80, 125, 70, 140, CostTerm::kLinear};
  const Estimate twice = with_factors(e, {2, 3, "", ""});
  CHECK(twice.high80 == Approx(100 * 1.25 * 1.25));
  CHECK(twice.low95 == Approx(100 / std::pow(1.25, 3)));
  CHECK(residual_of(kind, "a", e, 156.25).score == Approx(2));
  CHECK(residual_of(kind, "a", e, 64).score == Approx(2));
  CHECK(residual_of(kind, "a", e, 64).log_error == Approx(std::log(100 / 64.0)));
}

TEST_CASE("what measured rows say narrows the width of all but a policy's kernels, and widens all of it") {
  const double w = std::log(1.25);
  Estimate e{100, 80, 125, 100 * std::exp(-w * kWidth95), 100 * std::exp(w * kWidth95), CostTerm::kLinear};
  e.unmeasured = 0.36;  // 0.8 and 0.6 of the width, at right angles
  const Estimate same = with_factors(e, {});
  CHECK(same.high80 == Approx(125));
  CHECK(same.low95 == Approx(e.low95));
  const Estimate narrow = with_factors(e, {0, 0, "", ""});
  CHECK(narrow.high80 == Approx(100 * std::exp(0.6 * w)));
  CHECK(narrow.high95 == Approx(100 * std::exp(0.6 * w * kWidth95)));
  CHECK(with_factors(e, {0.5, 0.5, "", ""}).high80 == Approx(100 * std::exp(std::hypot(0.4, 0.6) * w)));
  const Estimate wide = with_factors(e, {2, 3, "", ""});
  CHECK(wide.low80 == Approx(100 * std::exp(-2 * w)));
  CHECK(wide.high95 == Approx(100 * std::exp(3 * w)));
  IntervalFactors limited{2, 3, "", ""};
  limited.error80 = 0;  // no wider than the prior of what those rows have
  CHECK(with_factors(e, limited).high80 == Approx(125));
}

TEST_CASE("like rows widen an interval to their errors, and narrow it where their priors were wide") {
  const auto prior = [](double width) {
    return Estimate{100, 100 / width, 100 * width, 100 / (width * width), 100 * width * width, CostTerm::kLinear};
  };
  // A prior interval after 40 rows of engine e, whose priors were `theirs` and which were 20 % off.
  const auto after = [&](double theirs, const char* engine, double own) {
    std::vector<Residual> residuals;
    for (int i = 0; i < 40; ++i) {
      residuals.push_back(residual_of({"hbm", "e", "step", "d", {}}, i < 20 ? "a" : "b", prior(theirs), 120));
    }
    residuals.push_back(residual_of({"gddr", "other", "whole", "d", {}}, "c", prior(1.2), 100));
    return with_factors(prior(own), IntervalTable(residuals).factors({"hbm", engine, "step", "d", {}}, nothing));
  };
  const auto high80 = [&](double theirs, const char* engine, double own) { return after(theirs, engine, own).high80; };
  for (const char* engine : {"e", "other"}) {
    // Priors of 1 %, twenty times too narrow: that multiplies others as narrow, but none of 30 %.
    CHECK(high80(1.01, engine, 1.01) == Approx(120));
    CHECK(high80(1.01, engine, 1.3) == Approx(130));
    CHECK(after(1.01, engine, 1.01).high95 == Approx(120));
    CHECK(after(1.01, engine, 1.3).high95 == Approx(100 * std::pow(1.3, 1.959964 / 1.281552)));  // ends of a normal
    // Priors of 44 %, twice too wide on a log scale: halves another's.
    CHECK(high80(1.44, engine, 1.69) == Approx(130));
  }
}

TEST_CASE("short prompts say nothing of long ones, which are arithmetic, nor these of short ones") {
  std::vector<Residual> residuals;
  for (int i = 0; i < 80; ++i) {
    const bool is_short = i < 40;
    residuals.push_back({{"hbm", "e", prompt_metric(is_short ? 128 : 2048), "d", {}}, i % 2 == 0 ? "a" : "b",
                         is_short ? 3.0 : 0.5, is_short ? 0.6 : 0.1});
  }
  const IntervalTable table(residuals);
  const auto of = [&](double tokens) { return table.factors({"hbm", "e", prompt_metric(tokens), "d", {}}, nothing); };
  CHECK(of(1).factor80 == 3);
  CHECK(of(511).factor80 == 3);
  CHECK(of(512).factor80 == 0.5);
  CHECK(of(32768).factor80 == 0.5);
}

TEST_CASE("an engine without a row, or with rows of another board alone, has wider intervals, never below priors") {
  const Estimate e{100, 80, 125, 64, 156.25, CostTerm::kLinear};
  std::vector<Residual> residuals;
  for (int i = 0; i < 40; ++i) {  // all right: priors were too wide
    for (const char* metric : {"step", "product", "memory"}) {
      residuals.push_back(residual_of({"hbm", "e", metric, "d", {}}, i < 20 ? "a" : "b", e, 101));
    }
  }
  for (const char* device : {"x", "y"}) {
    residuals.push_back(residual_of({"gddr", "elsewhere", "whole", device, {}}, "c", e, 101));
  }
  residuals.push_back(residual_of({"gddr", "once", "whole", "x", {}}, "c", e, 101));
  const IntervalTable table(residuals);
  const auto of = [&](const char* engine, const char* metric, const char* memory = "hbm") {
    return table.factors({memory, engine, metric, "z", {}}, nothing);
  };
  const IntervalFactors never = of("never", "step");
  CHECK(never.wider == kWiderUnseen);
  CHECK(never.beyond == "no measured row of engine never: 1.50 times as wide");
  CHECK(with_factors(e, never).high80 == Approx(100 * std::pow(1.25, 1.5)));
  CHECK(with_factors(e, never).high95 == Approx(100 * std::pow(1.25, 1.5 * 1.959964 / 1.281552)).epsilon(1e-3));
  CHECK(of("once", "step").beyond == "engine once was measured on x alone: 1.50 times as wide");
  CHECK(of("once", "step").never_narrower);
  CHECK(of("elsewhere", "step").wider == 1);
  CHECK(with_factors(e, of("elsewhere", "step")).high80 == Approx(101));
  // Kernels and memory are no engine's alone, and a CPU's engine is calibrated where it runs.
  CHECK(of("never", "product").wider == 1);
  CHECK(of("never", "memory").wider == 1);
  CHECK(of("never", "step", "ddr").wider == 1);
}

TEST_CASE("what is none of the table's own rows has wider intervals, for constants were chosen with those in view") {
  const Estimate e{100, 80, 125, 64, 156.25, CostTerm::kLinear};
  std::vector<Residual> residuals;
  for (int i = 0; i < 40; ++i) {
    for (const char* metric : {"step", "product", "memory"}) {
      residuals.push_back(residual_of({"hbm", "e", metric, "d", {}}, i < 20 ? "a" : "b", e, 125));
    }
  }
  const IntervalTable table(residuals);
  const IntervalFactors own = table.factors({"hbm", "e", "step", "d", {}}, nothing);
  const IntervalFactors other = table.factors({"hbm", "e", "step", "d", {}});
  CHECK(with_factors(e, own).high80 == Approx(125));
  CHECK(with_factors(e, other).high80 == Approx(100 * std::pow(1.25, kWiderNew)));
  CHECK(other.beyond == "this is none of the measured rows: 1.50 times as wide");
  for (const char* metric : {"product", "memory"}) CHECK(table.factors({"hbm", "e", metric, "d", {}}).wider == 1);
}

TEST_CASE("rows of the same device come before those of its memory, and those before all others") {
  std::vector<Residual> residuals;
  const auto rows = [&](const char* device, const char* memory, double score, int tables, int each) {
    for (int i = 0; i < tables * each; ++i) {
      const std::string group = std::string(device) + static_cast<char>('a' + i % tables);
      residuals.push_back({{memory, "e", "step", device, {}}, group, score});
    }
  };
  rows("x", "hbm", 3, 2, 10);
  rows("y", "hbm", 5, 2, 10);
  rows("z", "hbm", 7, 1, 5);
  const IntervalTable table(residuals);
  CHECK(table.factors({"hbm", "e", "step", "x", {}}).from == "x, e, step: 20 rows");
  CHECK(table.factors({"hbm", "e", "step", "x", {}}).factor80 == 3);
  CHECK(table.factors({"hbm", "e", "step", "z", {}}).from == "hbm, e, step: 45 rows");  // one table is not enough
  CHECK(table.factors({"gddr", "e", "step", "w", {}}).from == "step: 45 rows");
}

TEST_CASE("rows of a device's family of architectures come before those of other devices with its memory") {
  std::vector<Residual> residuals;
  const auto rows = [&](const char* device, const char* family, double score) {
    for (int i = 0; i < 10; ++i) {
      Residual row{{"hbm", "e", "step", device, {}}, std::string(device) + (i < 5 ? "a" : "b"), score};
      row.kind.family = family;
      residuals.push_back(row);
    }
  };
  rows("x", "CDNA", 3);
  rows("y", "CDNA", 3);
  rows("z", "Hopper", 1);
  const auto of = [&](const char* memory, const char* family) {
    RowKind kind{memory, "e", "step", "new", {}};
    kind.family = family;
    return IntervalTable(residuals).factors(kind);
  };
  CHECK(of("hbm", "CDNA").from == "CDNA (hbm), e, step: 20 rows");
  CHECK(of("hbm", "CDNA").factor80 == 3);
  CHECK(of("hbm", "Hopper").from == "hbm, e, step: 30 rows");  // of one board
  CHECK(of("hbm", "").from == "hbm, e, step: 30 rows");
  CHECK(of("gddr", "CDNA").from == "step: 30 rows");
  CHECK(architecture_family("CDNA4") == "CDNA");
  CHECK(architecture_family("Hopper") == "Hopper");
  CHECK(architecture_family("").empty());
}

TEST_CASE("rows of one board say how its engine does there, and nothing of the engine on other boards") {
  std::vector<Residual> residuals;
  const auto rows = [&](const char* engine, const char* device, double score) {
    for (int i = 0; i < 20; ++i) {
      residuals.push_back({{"hbm", engine, "step", device, {}}, std::string(device) + (i < 10 ? "a" : "b"), score});
    }
  };
  rows("one", "x", 0.5);
  rows("other", "y", 2);
  const IntervalTable table(residuals);
  CHECK(table.factors({"hbm", "one", "step", "x", {}}).from == "x, one, step: 20 rows");
  CHECK(table.factors({"hbm", "one", "step", "x", {}}, nothing).wider == 1);
  const IntervalFactors elsewhere = table.factors({"hbm", "one", "step", "z", {}}, nothing);
  CHECK(elsewhere.from == "hbm, step: 40 rows");
  CHECK(elsewhere.wider == kWiderUnseen);
  CHECK(elsewhere.never_narrower);
  rows("one", "y", 0.5);
  const IntervalFactors of_two = IntervalTable(residuals).factors({"hbm", "one", "step", "z", {}}, nothing);
  CHECK(of_two.from == "hbm, one, step: 40 rows");
  CHECK(of_two.wider == 1);
  CHECK_FALSE(of_two.never_narrower);
}

TEST_CASE("work beyond the measured one has wider intervals, by its doublings, and the text says why") {
  std::vector<Residual> residuals;
  for (int i = 0; i < 40; ++i) {
    const double batch = i % 2 == 0 ? 1 : 64;
    residuals.push_back({{"hbm", "e", "step", "d", {batch, 1000, 1}}, i % 4 < 2 ? "a" : "b", 1.0});
  }
  const IntervalTable table(residuals);
  const auto at = [&](Reach reach) { return table.factors({"hbm", "e", "step", "d", reach}, nothing); };
  CHECK(at({64, 1000, 1}).wider == 1);
  CHECK(at({64, 1000, 1}).beyond.empty());
  CHECK(at({0, 0, 0}).wider == 1);  // nothing is stated
  CHECK(at({256, 1000, 1}).wider == Approx(1 + 2 * kWiderPerDoubling));
  CHECK(at({256, 1000, 1}).beyond == "256 sequences at once, measured were 1 to 64: 1.40 times as wide");
  CHECK(at({256, 8000, 1}).wider == Approx(1 + 3 * kWiderPerDoubling));  // the farthest axis alone
  CHECK(at({8, 250, 1}).wider == Approx(1 + 2 * kWiderPerDoubling));     // less is beyond as well
  const Estimate e{100, 80, 125, 64, 156.25, CostTerm::kLinear};
  CHECK(with_factors(e, at({512, 1000, 1})).high80 == Approx(100 * std::pow(1.25, 1 + 3 * kWiderPerDoubling)));
}

TEST_CASE("work with weights of a type, or experts, that no like row has gets wider intervals, and the text says why") {
  std::vector<Residual> residuals;
  for (int i = 0; i < 40; ++i) {
    RowKind kind{"hbm", "e", "step", "d", {64, 1000, 1}};
    kind.weights = i < 20 ? "16 bit" : "fp8";
    residuals.push_back({kind, std::string(1, static_cast<char>('a' + i % 4)), 1.0});
  }
  const IntervalTable table(residuals);
  const auto of = [&](const char* weights, bool experts, double batch) {
    return table.factors({"hbm", "e", "step", "d", {batch, 1000, 1}, weights, experts}, nothing);
  };
  CHECK((of("fp8", false, 64).wider == 1 && of("fp8", false, 64).beyond.empty()));
  CHECK(of("nvfp4", false, 64).wider == Approx(kWiderUnseen));
  CHECK(of("nvfp4", false, 64).beyond == "weights in nvfp4, measured were 16 bit, fp8: 1.50 times as wide");
  CHECK(of("", false, 64).wider == 1);  // a kernel that reads none
  CHECK(of("fp8", true, 64).beyond == "a mixture of experts, measured were none: 1.50 times as wide");
  CHECK(of("nvfp4", true, 128).wider == 
        Approx(std::sqrt(2 * kWiderUnseen * kWiderUnseen + std::pow(1 + kWiderPerDoubling, 2) - 2)));
}

TEST_CASE("rows of models with states say nothing of models without, and a model with states has wider ones alone") {
  std::vector<Residual> residuals;
  const auto rows = [&](bool states, double score) {
    for (int i = 0; i < 20; ++i) {
      RowKind kind{"hbm", "e", "step", "d", {64, 1000, 1}};
      kind.states = states;
      residuals.push_back({kind, std::string(states ? "s" : "p") + (i < 10 ? "a" : "b"), score});
    }
  };
  const auto of = [&](bool states) {
    RowKind kind{"hbm", "e", "step", "d", {64, 1000, 1}};
    kind.states = states;
    return IntervalTable(residuals).factors(kind, nothing);
  };
  rows(false, 1);
  CHECK(of(true).beyond == "layers with a state, measured were none: 1.50 times as wide");
  rows(true, 9);
  CHECK(of(false).from == "d, e, step: 20 rows");
  CHECK(of(false).factor80 == 1);
  CHECK(of(true).from == "d, e, step: 40 rows");
  CHECK(of(true).factor80 == 9);
  CHECK(of(true).beyond.empty());
}

TEST_CASE("a row's interval is of no row of what is left out: its table, device, engine, or device and engine") {
  PublishedRow measured;
  measured.value = 110;
  std::vector<ScoredRow> rows;
  for (const char* device : {"d1", "d2", "d3"}) {
    for (const char* engine : {"e1", "e2"}) {
      for (int i = 0; i < 40; ++i) {  // of four tables
        ScoredRow row;
        row.row = &measured;
        row.group = std::string(device) + engine + static_cast<char>('a' + i % 4);
        row.predicted = Estimate{100, 80, 125, 64, 156.25, CostTerm::kLinear};
        row.kind = {"hbm", engine, "step", device, {}};
        rows.push_back(row);
      }
    }
  }
  const IntervalTable table = interval_table(rows);
  const auto from = [&](LeftOut left_out) {
    std::vector<ScoredRow> moved = rows;
    set_intervals(moved, table, left_out);
    return moved.front().width_from;
  };
  CHECK(from(LeftOut::kNothing) == "d1, e1, step: 40 rows");
  CHECK(from(LeftOut::kTable) == "d1, e1, step: 30 rows");
  CHECK(from(LeftOut::kDeviceAndEngine) == "hbm, e1, step: 80 rows");  // of the other devices
  CHECK(from(LeftOut::kDevice) == "hbm, e1, step: 80 rows");
  CHECK(from(LeftOut::kEngine) == "hbm, step: 120 rows");
}

TEST_CASE("the largest batch has the interval of the memory that it needs") {
  const std::filesystem::path catalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
  const CostModel cost(find_model_shape("llama-3-8b", catalog), TrafficTypes{DType::kBF16, DType::kBF16},
                       find_device("h100-sxm", catalog), find_engine_profile("graphs", catalog));
  const ResidencySummary r = full_attention_summary(cost.shape(), 4096, 256);
  const Estimate e = largest_batch_estimate(cost, r, {1, 1.5, "", ""});
  CHECK(e.value == static_cast<double>(cost.memory().largest_batch(r)));
  CHECK(e.low95 < e.low80);
  CHECK(e.low80 < e.value);
  CHECK(e.high95 > e.high80);
  // The batch at the low end is the largest whose sum of bytes fits when it is 8 % more.
  const double capacity = static_cast<double>(cost.memory().ledger(r, 1).capacity.value);
  const auto needed = [&](double batch) {
    return 1.08 * static_cast<double>(cost.memory().ledger(r, static_cast<std::uint64_t>(batch)).total().value);
  };
  CHECK(needed(e.low80) <= capacity);
  CHECK(needed(e.low80 + 1) > capacity);
  CHECK(name_of(e.dominated_by) == "memory");
}

}  // namespace
}  // namespace kvroof
