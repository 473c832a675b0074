// What devices cost: the catalog's listed prices, or those that --usd-per-hour gives.
#pragma once

#include <span>
#include <string>

#include "apps/command.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

// --usd-per-hour, of plan and of compare.
void describe_prices(boost::program_options::options_description_easy_init add);
// Replaces the prices of the devices that it names. Throws Error (usage).
void set_prices(const Arguments& arguments, std::span<Device> devices);

// "2.69 to 4.76", or one number where both are the same.
std::string usd_range(double low, double high);
// "$2.69 to 4.76 an hour and device (2026-03)", "$2 an hour and device (as given)".
std::string price_text(const Price& price);

}  // namespace kvroof
