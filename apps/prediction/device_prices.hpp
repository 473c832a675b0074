// What devices cost: the catalog's listed prices, or those that --usd-per-hour gives.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "apps/cli/command.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

// --usd-per-hour, of plan, compare and simulate.
void describe_prices(boost::program_options::options_description_easy_init add);
// Replaces the prices of the devices that it names. Throws Error (usage).
void set_prices(const Arguments& arguments, std::span<Device> devices);

// At the lowest and the highest price of a device.
struct UsdRange {
  double low_usd = 0, high_usd = 0;
};
// Of so many devices for an hour; nothing: they have no price.
std::optional<UsdRange> price_of_hour(const Device& device, std::uint32_t devices);
// Of a million generated tokens, of what makes so many tokens/s for so much an hour; nothing: one of both is not known.
std::optional<UsdRange> price_of_million_tokens(const std::optional<UsdRange>& hour, double tokens_per_s);
// {low, high} of a row, without values for nothing.
nlohmann::ordered_json price_json(const std::optional<UsdRange>& price);
// "at the prices of --usd-per-hour", "at the lowest and the highest listed price of the devices, the latest of
// 2026-03"; empty: none has a price.
std::string prices_text(std::span<const Device* const> devices);

// "2.69 to 4.76", or one number where both are the same.
std::string usd_range(double low, double high);
// The same for a table's cell; a dash where there is none.
std::string usd_text(const std::optional<UsdRange>& usd);
// "$2.69 to 4.76 an hour and device (2026-03)", "$2 an hour and device (as given)".
std::string price_text(const Price& price);

}  // namespace kvroof
