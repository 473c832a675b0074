// What a table calls the points of a sweep: short names of policies, and footnotes with the parameters of long ones.
#pragma once

#include <string>
#include <vector>

#include "sim/policy/spec.hpp"

namespace kvroof {

// The name that a user gave: of the preset, where one stood for policy and cache.
const std::string& short_name(const PolicySpec& spec);

// The policy with its parameters, but for the budget: what the points of one line of a sweep share.
std::string name_without_budget(const PolicySpec& spec);

// "–" for a policy without one.
std::string budget_text(const PolicySpec& spec);

// Labels that differ where policies or their parameters do: name_without_budget(), or where that is too wide for a
// table the short name with the number of a footnote.
class PolicyLabels {
 public:
  std::string of(const PolicySpec& spec);
  // "[1] h2o:recent=0.3", in the order in which they were asked for.
  [[nodiscard]] std::vector<std::string> footnotes() const;

 private:
  std::vector<std::string> long_;
};

}  // namespace kvroof
