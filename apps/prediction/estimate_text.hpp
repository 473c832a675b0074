// Predictions with their intervals, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "sim/cost/cost.hpp"

namespace kvroof {

// "12.3 ±18%": the larger half of the 80 % interval, or "12.3 (5.1 to 31.0)" where that is the value or more; the value
// is multiplied by `scale`.
std::string with_interval(const Estimate& e, double scale);
// "10.4 to 14.5": the 80 % interval; likewise the 95 % one.
std::string interval_text(const Estimate& e, double scale);
std::string interval95_text(const Estimate& e, double scale);
// What takes most of a step, or of a token that takes so many seconds under load: "prompts" of others then.
std::string_view most_of_step(const Prediction& prediction, double token_seconds);
// {value, low80, high80, low95, high95}, each multiplied by `scale`, and dominated_by.
nlohmann::ordered_json interval_json(const Estimate& e, double scale);
// Of a row; its keys without values for nothing.
nlohmann::ordered_json interval_json(const std::optional<Estimate>& e, double scale);

}  // namespace kvroof
