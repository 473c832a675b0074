// What if a device had other facts: "h200:bandwidth_gb_per_s=8000:l2_mib=2x".
#include "sim/device/changed_device.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

using F = DeviceField;

// Two facts that say the same in other words: one that is not given follows the other.
constexpr std::array<std::pair<F, F>, 5> kFollowing = {{{F::kBandwidthGbPerS, F::kPinMbitPerS},
                                                        {F::kPinMbitPerS, F::kBandwidthGbPerS},
                                                        {F::kBusBits, F::kBandwidthGbPerS},
                                                        {F::kUsableMib, F::kMemoryGb},
                                                        {F::kMemoryGb, F::kUsableMib}}};

const DeviceFieldInfo& info_of(F field) { return device_fields()[static_cast<std::size_t>(field)]; }

const DeviceFieldInfo& field_named(const Device& device, std::string_view key) {
  std::vector<std::string> keys;
  for (const DeviceFieldInfo& info : device_fields()) {
    if (info.key == key) return info;
    keys.emplace_back(info.key);
  }
  throw usage_error(fmt::format("{}: a device has no fact '{}'{}", device.name, key, did_you_mean(key, keys)))
      .note("facts: " + join(keys));
}

// A number, or with an x a multiple of what the device has.
double value_of(const Device& device, const DeviceFieldInfo& info, std::string_view text) {
  const bool multiple = text.ends_with('x');
  const auto number = parse_number<double>(text.substr(0, text.size() - multiple));
  if (!number || !std::isfinite(*number)) {
    throw usage_error(fmt::format("{}: {}='{}': expected a number, or 1.5x for a multiple of what it has", device.name,
                                  info.key, text));
  }
  if (multiple && !device.fact(info.field)) {
    throw usage_error(fmt::format("{}: {}='{}': it has no such fact to multiply; give a number", device.name, info.key,
                                  text));
  }
  const double value = *number * (multiple ? device.value(info.field) : 1);
  if (!(value >= info.lowest && value <= info.highest)) {
    throw usage_error(fmt::format("{}: {}='{}': {} is no value of a device; expected {} to {}", device.name, info.key,
                                  text, value, info.lowest, info.highest));
  }
  return value;
}

class Change {
 public:
  Change(const Device& from, std::string_view changes) : from_(from), to_(from) {
    for (std::size_t at = 0; at <= changes.size();) {
      const std::size_t end = std::min(changes.find(':', at), changes.size());
      apply(changes.substr(at, end - at));
      at = end + 1;
    }
    for (const auto& [given, following] : kFollowing) follow(given, following);
    to_.name = fmt::format("{}:{}", from.name, changes);
    to_.title += fmt::format(" with {}", join(said_, ", "));
  }

  [[nodiscard]] bool given(F field) const { return given_[static_cast<std::size_t>(field)]; }
  // Achieved facts that are not given are those of the silicon, which nobody measured with these facts.
  Device changed(const Device& defaults) {
    for (std::size_t i = static_cast<std::size_t>(F::kLinearFraction); i < kDeviceFieldCount; ++i) {
      if (!given_[i]) to_.facts[i].reset();
    }
    fill_from_silicon(to_, from_, defaults);
    fill_achieved(to_, defaults);
    return std::move(to_);
  }

 private:
  void apply(std::string_view change) {
    const std::size_t equals = change.find('=');
    if (equals == std::string_view::npos) {
      throw usage_error(fmt::format("{}: '{}': expected fact=value, as in bandwidth_gb_per_s=8000", from_.name,
                                    change));
    }
    said_.emplace_back(change);
    const DeviceFieldInfo& info = field_named(from_, change.substr(0, equals));
    if (given(info.field)) throw usage_error(fmt::format("{}: {} is given twice", from_.name, info.key));
    set(info.field, value_of(from_, info, change.substr(equals + 1)));
    given_[static_cast<std::size_t>(info.field)] = true;
    if (info.field == F::kBandwidthGbPerS && !from_.working_sets.empty()) {
      throw usage_error(fmt::format("{}: its bandwidth was measured size by size (working_sets); change its file",
                                    from_.name));
    }
  }

  void follow(F source, F following) {
    if (!given(source) || given(following) || !from_.fact(source) || !from_.fact(following)) return;
    const double value = to_.value(following) * to_.value(source) / from_.value(source);
    set(following, std::clamp(value, info_of(following).lowest, info_of(following).highest));
  }

  void set(F field, double value) { to_.fact(field) = Fact{value, Provenance::kGiven, "what if"}; }

  const Device& from_;
  Device to_;
  std::vector<std::string> said_;
  std::array<bool, kDeviceFieldCount> given_{};
};

}  // namespace

Device changed_device(const Device& device, std::string_view changes, const Device& defaults) {
  return Change(device, changes).changed(defaults);
}

}  // namespace kvroof
