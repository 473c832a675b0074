// Every policy of the table with the words of its parameters, and what each holds row by row.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/core/gumbel.hpp"
#include "tests/support/policy_driver.hpp"

namespace kvroof::test {

inline constexpr Shape kShape = {.query_heads = 4, .kv_heads = 2, .prompt = 48, .decode = 40, .seed = 5};

// Multiples of 1/64 in [−4, 4), so that adding 8 is exact.
inline float random_logit(std::uint32_t h, std::uint32_t t, std::uint32_t j) {
  const float u = uniform_draw({.seed = 99, .layer = h, .query_head = t, .position = j});
  return std::floor(512 * u) / 64 - 4;
}

// Each policy at its defaults, and with each word that its parameters list ("a | b"). Those without a budget also with
// the last word of every parameter at once: at their defaults they may keep all of a short prompt.
inline std::vector<std::string> variants(const PolicyInfo& info) {
  std::vector<std::string> all = {std::string(info.name)};
  std::string at_once(info.name);
  for (const ParamInfo& param : info.params) {
    if (param.values == "FILE") continue;  // that an app reads
    std::string_view rest = param.values;
    std::string last;
    while (!rest.empty()) {
      const std::size_t bar = rest.find(" | ");
      const std::string_view word = rest.substr(0, bar);
      rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 3);
      const std::string variant = fmt::format("{}:{}={}", info.name, param.name, word);
      try {
        const PolicySpec spec = parse_policies(variant).front();
        // The laws are held in the first layer, which such a policy would read in full, and on a short prompt, which
        // kvpress' window would fill.
        const PolicyTraits traits = info.traits(spec);
        const bool fills = traits.rows == RowNeed::kLast && traits.last_rows >= kShape.prompt;
        all.push_back(variant + (traits.dense_layers > 0 ? ":dense=0" : fills ? ":window=32" : ""));
        last = fmt::format(":{}={}", param.name, word);
      } catch (const Error&) {
        // "tokens", "share of k": a kind of value, not a value.
      }
    }
    at_once += last;
  }
  if (!info.takes_budget && at_once != all.back() && all.size() > 1) all.push_back(at_once);
  return all;
}

// All variants of all policies at each budget.
inline std::vector<PolicySpec> specs(std::initializer_list<const char*> budgets) {
  std::vector<PolicySpec> all;
  for (const PolicyInfo& info : policy_table()) {
    for (const std::string& variant : variants(info)) {
      for (const char* budget : budgets) {
        all.push_back(spec_of(info.takes_budget ? fmt::format("{}:{}", variant, budget) : variant));
        if (!info.takes_budget) break;
      }
    }
  }
  return all;
}

inline std::vector<PolicySpec> all_specs() {
  return specs({"budget=0.5", "budget=13", "budget=0.5@current", "compression=0.6", "budget=0.05"});
}

// Every set a policy ever holds (or reads, where it selects): [row][head].
inline std::vector<std::vector<Positions>> history(const PolicySpec& spec, const Shape& shape,
                                                   const LogitFunction& logit) {
  Driver driver(spec, shape, logit);
  const bool selects = driver.policy().traits().selects;
  std::vector<std::vector<Positions>> rows;
  const auto record = [&] {
    std::vector<Positions> heads;
    const std::uint32_t count = selects ? shape.query_heads : driver.policy().storage_heads();
    for (std::uint32_t h = 0; h < count; ++h) heads.push_back(selects ? driver.read(h) : driver.kept(h));
    rows.push_back(std::move(heads));
  };
  driver.prompt();
  record();
  for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
    driver.row(t);
    record();
  }
  return rows;
}

}  // namespace kvroof::test
