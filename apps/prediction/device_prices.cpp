#include "apps/prediction/device_prices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/cli/values.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "sim/core/number_text.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr const char* kOption = "usd-per-hour";
constexpr double kLeastUsd = 1e-3, kMostUsd = 10'000;

void give(Device& device, double usd) { device.price = Price{usd, usd, "", "given"}; }

Device& device_named(std::span<Device> devices, const std::string& item, const std::string& name) {
  const auto found = std::ranges::find(devices, name, &Device::name);
  if (found != devices.end()) return *found;
  std::vector<std::string> names;
  for (const Device& device : devices) names.push_back(device.name);
  throw usage_error(fmt::format("--{} {}: no --device has that name{}", kOption, item, did_you_mean(name, names)));
}

}  // namespace

void describe_prices(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  add(kOption, po::value<std::string>(),
      "what you pay for a device, in place of its listed price: 2.5, or a list of h200=2.5 (a number alone: all "
      "others)");
}

void set_prices(const Arguments& arguments, std::span<Device> devices) {
  if (!arguments.has(kOption)) return;
  std::optional<double> others;
  std::vector<std::string> named;
  for (const std::string& item : split_list(kOption, arguments.get<std::string>(kOption))) {
    const std::size_t equals = item.rfind('=');
    const bool of_one = equals != std::string::npos;
    const double usd = number_value(kOption, of_one ? std::string_view(item).substr(equals + 1) : item, kLeastUsd,
                                    kMostUsd);
    const std::string name = of_one ? item.substr(0, equals) : "";
    if (of_one ? std::ranges::find(named, name) != named.end() : others.has_value()) {
      throw usage_error(fmt::format("--{} {}: there are two prices for the same device", kOption, item));
    }
    if (of_one) {
      give(device_named(devices, item, name), usd);
      named.push_back(name);
    } else {
      others = usd;
    }
  }
  if (!others) return;
  for (Device& device : devices) {
    if (std::ranges::find(named, device.name) == named.end()) give(device, *others);
  }
}

std::optional<UsdRange> price_of_hour(const Device& device, std::uint32_t devices) {
  if (!device.price) return std::nullopt;
  return UsdRange{devices * device.price->low_usd_per_hour, devices * device.price->high_usd_per_hour};
}

std::optional<UsdRange> price_of_million_tokens(const std::optional<UsdRange>& hour, double tokens_per_s) {
  if (!hour || tokens_per_s <= 0) return std::nullopt;
  const double hours = 1e6 / tokens_per_s / 3600;
  return UsdRange{hours * hour->low_usd, hours * hour->high_usd};
}

nlohmann::ordered_json price_json(const std::optional<UsdRange>& price) {
  const UsdRange usd = price.value_or(UsdRange{});
  return if_any(price.has_value(), {{"low", usd.low_usd}, {"high", usd.high_usd}});
}

std::string prices_text(std::span<const Device* const> devices) {
  std::string latest;
  bool given = false;
  for (const Device* device : devices) {
    if (!device->price) continue;
    latest = std::max(latest, device->price->date);
    given |= device->price->date.empty();
  }
  std::string text = given ? "at the prices of --usd-per-hour" : "";
  if (!latest.empty()) {
    text += fmt::format("{}at the lowest and the highest listed price{}, the latest of {}", given ? ", else " : "",
                        given ? "" : " of the devices", latest);
  }
  return text;
}

std::string usd_range(double low, double high) {
  return low == high ? number_text(low) : fmt::format("{} to {}", number_text(low), number_text(high));
}

std::string usd_text(const std::optional<UsdRange>& usd) {
  return usd ? usd_range(usd->low_usd, usd->high_usd) : "–";
}

std::string price_text(const Price& price) {
  return fmt::format("${} an hour and device ({})", usd_range(price.low_usd_per_hour, price.high_usd_per_hour),
                     price.date.empty() ? "as given" : price.date);
}

}  // namespace kvroof
