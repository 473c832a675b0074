// Experiments of papers: their files, and what is fitted on which rows.
#include "analysis/papers.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kRoot = KVROOF_SOURCE_DIR;
const std::filesystem::path kCatalog = kRoot / "catalog";

std::string problem(const std::string& tables) {
  const auto paper = paper_from_yaml("name: p\nsource: s\ntables:\n" + tables);
  return paper ? "" : paper.error();
}

constexpr const char* kTable =
    "  - figure: f\n"
    "    metric: step_ms\n"
    "    model: opt-6.7b\n"
    "    device: a100-80g\n"
    "    engine: unfused\n";

Paper planted(double step_ms, double passes, double policy_passes, const std::string& options) {
  std::string text = std::string("name: p\nsource: s\ntables:\n") + kTable + options + "    rows:\n";
  // Values from another pricing of the same rows: cache bytes over the peak are the passes' unit.
  const auto value = [&](const PaperRow& row, double base_ms) {
    const double bytes_a_row = 32.0 * 32 * 2 * 128 * 2;
    const double rows = row.kept > 0 ? std::floor(row.kept * row.prompt) + 1
                                     : row.prompt + (row.output + 1) / 2.0;  // mean of those present
    const double pass_ms = row.batch * rows * bytes_a_row / 2039e9 * 1e3;
    return base_ms + step_ms + pass_ms * (passes + (row.kept > 0 ? policy_passes : 0));
  };
  const auto paper_with = [&](const std::vector<double>& values) {
    std::string rows;
    const std::vector<std::string> runs = {"policy: full, batch: 1, prompt: 1000, output: 9",
                                           "policy: full, batch: 8, prompt: 1000, output: 9",
                                           "policy: full, batch: 4, prompt: 1500, output: 9",
                                           "policy: h2o, kept: 0.5, batch: 8, prompt: 1000, output: 9"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      rows += fmt::format("      - {{{}, value: {}}}\n", runs[i], values.empty() ? 1.0 : values[i]);
    }
    return paper_from_yaml(text + rows).or_throw("planted");
  };
  const Paper plain = paper_with({});
  std::vector<double> values;
  for (const PaperScore& s : score_table(plain, plain.tables[0], kCatalog, {}).rows) {
    values.push_back(value(*s.row, s.unfitted));
  }
  return paper_with(values);
}

}  // namespace

TEST_CASE("constants are fitted on full attention alone, and the policy's own on the other rows") {
  const Paper paper = planted(5, 3, 2, "    fit: true\n    policy_constant: true\n");
  const TableScore score = score_table(paper, paper.tables[0], kCatalog, {});
  CHECK(score.step_seconds * 1e3 == Approx(5).epsilon(1e-3));
  CHECK(score.cache_passes == Approx(3).epsilon(1e-3));
  CHECK(score.policy_passes == Approx(2).epsilon(1e-3));
  REQUIRE(score.rows.size() == 4);
  CHECK(score.rows[0].error() == Approx(0).margin(1e-4));
  CHECK(score.rows[3].error() < -0.05);  // what the policy costs was not there to be fitted
  CHECK(score.rows[3].error_of(*score.rows[3].after) == Approx(0).margin(1e-4));
  CHECK_FALSE(score.rows[0].after.has_value());
  CHECK(score.mean_error(true).value() < 1e-4);
  CHECK(score.mean_error(false).value() == Approx(-score.rows[3].error()));
}

TEST_CASE("rows of a policy change nothing that is fitted on full attention") {
  const Paper a = planted(5, 3, 2, "    fit: true\n"), b = planted(5, 3, 40, "    fit: true\n");
  const TableScore with = score_table(a, a.tables[0], kCatalog, {}), other = score_table(b, b.tables[0], kCatalog, {});
  CHECK(with.cache_passes == Approx(other.cache_passes).epsilon(1e-9));
  CHECK(with.rows[3].predicted == Approx(other.rows[3].predicted).epsilon(1e-9));
}

TEST_CASE("a row outside its band, and a pair in another order, miss their gates") {
  const std::string text = "name: p\nsource: s\ntables:\n  - figure: f\n    metric: kv_gib\n    model: mpt-7b\n"
                           "    order: all\n    rows:\n"
                           "      - {prompt: 1024, batch: 4, value: 2, band: 0}\n"
                           "      - {prompt: 2048, batch: 4, value: 1.5, band: 0.1}\n";
  const Paper paper = paper_from_yaml(text).or_throw("paper");
  const TableScore score = score_table(paper, paper.tables[0], kCatalog, {});
  CHECK(score.rows[0].predicted == 2);
  CHECK(score.rows[1].predicted == 4);
  const auto gates = gates_of(std::vector<TableScore>{score});
  REQUIRE(gates.size() == 2);
  CHECK(gates[0].value == 1);
  CHECK(gates[1].value == 1);
  CHECK_FALSE(gates[0].met());
}

TEST_CASE("the shipped papers are read, and all their gates are met") {
  const std::vector<Paper> papers = read_papers(kRoot / "validation" / "papers");
  REQUIRE(papers.size() == 5);
  std::vector<TableScore> tables;
  std::size_t rows = 0;
  for (const Paper& paper : papers) {
    for (const PaperTable& table : paper.tables) {
      tables.push_back(score_table(paper, table, kCatalog, {}));
      rows += table.rows.size();
    }
  }
  CHECK(rows >= 40);
  for (const Gate& gate : gates_of(tables)) {
    INFO(gate.what << " " << gate.value);
    CHECK(gate.met());
  }
  // A deviation above 10 % says why.
  for (const TableScore& t : tables) {
    for (const PaperScore& s : t.rows) {
      INFO(t.table->figure << " " << s.row->model << " " << s.row->prompt << " " << s.error());
      if (std::abs(s.error()) > 0.1) CHECK(s.row->note.size() > 5);
    }
  }
}

TEST_CASE("a paper's file that says what none has is refused with its line") {
  CHECK(problem(kTable).empty());
  CHECK(problem(std::string(kTable) + "    beam: 4\n") == "line 9: unknown key 'beam'; did you mean beams?");
  CHECK(problem(std::string(kTable) + "    beams: many\n").find("line 9: ") == 0);
  CHECK(problem("  - figure: f\n    metric: speed\n") == "line 4: metric 'speed' is none of those known");
  CHECK(problem("  - figure: f\n    metric: step_ms\n") == "line 4: device and engine are needed");
  CHECK(problem(std::string(kTable) + "    rows:\n      - {prompt: 3}\n") == "line 10: model and value are needed");
  CHECK_FALSE(static_cast<bool>(paper_from_yaml("name: [")));
}

}  // namespace kvroof
