// Laws of kept sets, for every policy of the table; tests/support/policy_laws.hpp has the exemptions.
#include "tests/support/policy_laws.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// Logits of a shape in which each KV head comes twice with its queries.
float copied_logit(std::uint32_t h, std::uint32_t t, std::uint32_t j) {
  constexpr std::uint32_t kGroup = kShape.query_heads / kShape.kv_heads;
  return random_logit(h / (2 * kGroup) * kGroup + h % kGroup, t, j);
}

// Shares of the full attention of each query head that lie on what the policy attends to: [decode step][query head].
struct Attended {
  std::size_t slots = 0;  // of one head
  double recall = 0;
};
double recall_of(const Positions& attended, std::uint32_t head, std::uint32_t t) {
  double all = 0;
  double part = 0;
  for (std::uint32_t j = 0; j <= t; ++j) {
    const double e = std::exp(static_cast<double>(random_logit(head, t, j)));
    all += e;
    if (std::ranges::binary_search(attended, j)) part += e;
  }
  return part / all;
}

std::vector<std::vector<Attended>> attended_each_step(const PolicySpec& spec) {
  Driver driver(spec, kShape, random_logit);
  driver.prompt();
  const std::uint32_t group = kShape.query_heads / driver.policy().storage_heads();
  std::vector<std::vector<Attended>> steps;
  for (std::uint32_t t = kShape.prompt; t < kShape.prompt + kShape.decode; ++t) {
    std::vector<Positions> attended;
    for (std::uint32_t q = 0; q < kShape.query_heads; ++q) {
      attended.push_back(driver.kept(q / group));
      attended.back().push_back(t);
    }
    driver.row(t);
    std::vector<Attended> heads;
    for (std::uint32_t q = 0; q < kShape.query_heads; ++q) {
      const Positions& read = driver.policy().traits().selects ? driver.read(q) : attended[q];
      heads.push_back({read.size(), recall_of(read, q, t)});
    }
    steps.push_back(std::move(heads));
  }
  return steps;
}

// The same with a word more, if the policy takes it.
std::optional<PolicySpec> with(const std::string& name, std::string_view word) {
  try {
    return spec_of(fmt::format("{}{}:{}", name, policy_info(name).takes_budget ? ":budget=20" : "", word));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("exemptions: every exemption from a law is some policy's, is printed with its reason, and documented") {
  std::ifstream file(KVROOF_SOURCE_DIR "/docs/policies.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const Exemption& e : exemptions()) {
    std::set<std::string> whom;
    for (const PolicySpec& spec : specs({"budget=0.5"})) {
      if (e.applies(spec, policy_info(spec.name).traits(spec))) whom.insert(spec.name);
    }
    fmt::print("{}: not {}: {} ({})\n", e.law, e.who, e.reason, fmt::join(whom, ", "));
    INFO(e.law << ": " << e.who);
    CHECK_FALSE(whom.empty());
    const std::string row = fmt::format("| {} | {} | {} |", e.law, e.who, e.reason);
    INFO("docs/policies.md needs the row\n" << row);
    CHECK(document.find(row) != std::string::npos);
  }
}

TEST_CASE("every policy: a head never holds more than k tokens after a row that may evict") {
  for (const PolicySpec& spec : all_specs()) {
    if (spec.budget.kind == Budget::Kind::kUnlimited || !exempt(law::kBudget, spec).empty()) continue;
    INFO(spec.text());
    Driver driver(spec, kShape, random_logit);
    driver.prompt();
    for (std::uint32_t t = kShape.prompt;; ++t) {
      const bool evicts = (t - kShape.prompt) % driver.policy().traits().interval == 0;
      const std::size_t k = spec.budget.tokens(kShape.prompt, t);
      for (std::uint32_t h = 0; h < driver.policy().storage_heads() && evicts; ++h) CHECK(driver.kept(h).size() <= k);
      if (t == kShape.prompt + kShape.decode) break;
      driver.row(t);
    }
  }
}

TEST_CASE("every policy: tokens of which a parameter says that they stay are always there") {
  constexpr std::uint32_t kTokens = 5;
  for (const PolicyInfo& info : policy_table()) {
    for (const ParamInfo& param : info.params) {
      const bool first = param.name == "sinks";
      if (!first && param.name != "recent" && param.name != "window") continue;
      if (param.help.find(" stay") == std::string_view::npos || param.help.find("stays") != std::string_view::npos) {
        continue;
      }
      const auto spec = with(std::string(info.name), fmt::format("{}={}", param.name, kTokens));
      REQUIRE(spec);
      if (!exempt(law::kProtected, *spec).empty()) continue;
      INFO(spec->text());
      const auto sets = history(*spec, kShape, random_logit);
      for (std::uint32_t row = 0; row < sets.size(); ++row) {
        // The rows that decide at the end of the prompt are the prompt's last.
        const bool at_once = policy_info(info.name).traits(*spec).schedule == Schedule::kPrefillOnly;
        const std::uint32_t tokens = kShape.prompt + (at_once && param.name == "window" ? 0 : row);
        for (const Positions& kept : sets[row]) {
          for (std::uint32_t i = 0; i < kTokens; ++i) {
            CHECK(std::ranges::binary_search(kept, first ? i : tokens - 1 - i));
          }
        }
      }
    }
  }
}

TEST_CASE("every policy: permuting the heads permutes the sets and nothing else") {
  // Query heads 2 and 3 come first: the KV heads swap, the query heads of each group keep their order.
  const auto swapped = [](std::uint32_t h, std::uint32_t t, std::uint32_t j) {
    return random_logit((h + 2) % 4, t, j);
  };
  Shape turned = kShape;
  turned.first_head = 2;
  for (const PolicySpec& spec : all_specs()) {
    if (!exempt(law::kHeads, spec).empty()) continue;
    INFO(spec.text());
    const auto sets = history(spec, kShape, random_logit);
    const auto others = history(spec, turned, swapped);
    for (std::size_t row = 0; row < sets.size(); ++row) {
      const std::size_t heads = sets[row].size();
      for (std::size_t h = 0; h < heads; ++h) CHECK(others[row][h] == sets[row][(h + heads / 2) % heads]);
    }
  }
}

TEST_CASE("every policy: a layer decides alike wherever it lies in the model") {
  Shape first = kShape;
  first.layers = 4;
  Shape last = first;
  last.layer = 3;
  for (const PolicySpec& spec : all_specs()) {
    if (!exempt(law::kLayers, spec).empty()) continue;
    INFO(spec.text());
    CHECK(history(spec, first, random_logit) == history(spec, last, random_logit));
  }
}

TEST_CASE("every policy: a KV head that comes twice, with its queries, keeps the same tokens twice") {
  Shape twice = kShape;
  twice.copies = 2;
  twice.query_heads *= 2;
  twice.kv_heads *= 2;
  for (const PolicySpec& spec : specs({"budget=0.5", "budget=13"})) {
    if (!exempt(law::kCopies, spec).empty()) continue;
    INFO(spec.text());
    const auto sets = history(spec, kShape, random_logit);
    const auto copied = history(spec, twice, copied_logit);
    for (std::size_t row = 0; row < sets.size(); ++row) {
      // Storage heads, or query heads where the policy stores or selects so.
      const std::size_t together = sets[row].size() / kShape.kv_heads;
      for (std::size_t h = 0; h < copied[row].size(); ++h) {
        CHECK(copied[row][h] == sets[row][h / (2 * together) * together + h % together]);
      }
    }
  }
}

TEST_CASE("every policy: after the prompt a larger budget keeps what a smaller one keeps") {
  Shape shape = kShape;
  shape.decode = 0;
  const auto smaller = specs({"budget=12"});
  const auto larger = specs({"budget=30"});
  for (std::size_t i = 0; i < smaller.size(); ++i) {
    if (smaller[i].budget.kind == Budget::Kind::kUnlimited || !exempt(law::kNested, smaller[i]).empty()) continue;
    INFO(smaller[i].text());
    const auto few = history(smaller[i], shape, random_logit);
    const auto many = history(larger[i], shape, random_logit);
    for (std::size_t h = 0; h < few.front().size(); ++h) {
      CHECK(std::ranges::includes(many.front()[h], few.front()[h]));
    }
  }
}

TEST_CASE("every policy: at no step a larger budget recalls less") {
  const auto smaller = specs({"budget=12"});
  const auto larger = specs({"budget=20"});
  std::size_t tested = 0;
  for (std::size_t i = 0; i < smaller.size(); ++i) {
    if (smaller[i].budget.kind == Budget::Kind::kUnlimited || !exempt(law::kRecall, smaller[i]).empty()) continue;
    INFO(smaller[i].text());
    const auto few = attended_each_step(smaller[i]);
    const auto many = attended_each_step(larger[i]);
    for (std::size_t step = 0; step < few.size(); ++step) {
      for (std::size_t q = 0; q < few[step].size(); ++q) {
        CHECK(many[step][q].recall >= few[step][q].recall - 1e-12);
      }
    }
    ++tested;
  }
  CHECK(tested > 10);
}

TEST_CASE("every policy: no step recalls more than the oracle with as many slots as the policy attended") {
  std::map<std::size_t, std::vector<std::vector<Attended>>> oracles;  // by slots
  const auto oracle_of = [&](std::size_t slots) -> const auto& {
    auto& steps = oracles[slots];
    // The oracle reads one slot more than its budget.
    if (steps.empty()) steps = attended_each_step(spec_of(fmt::format("oracle:budget={}", slots - 1)));
    return steps;
  };
  for (const PolicySpec& spec : specs({"budget=0.5", "budget=13"})) {
    if (spec.name == "oracle" || spec.name == "full") continue;
    INFO(spec.text());
    const auto steps = attended_each_step(spec);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (std::size_t q = 0; q < steps[step].size(); ++q) {
        const auto [slots, recall] = steps[step][q];
        CHECK(recall >= 0);
        if (slots < 2) continue;
        if (exempt(law::kOracle, spec).empty() && !policy_info(spec.name).traits(spec).selects) {
          CHECK(slots <= spec.budget.tokens(kShape.prompt, kShape.prompt + static_cast<std::uint32_t>(step) + 1) + 1);
        }
        CHECK(recall <= oracle_of(slots)[step][q].recall + 1e-12);
      }
    }
  }
}
