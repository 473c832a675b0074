// Finding device files.
#include <algorithm>

#include "sim/core/files.hpp"
#include "sim/core/names.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "sim/device/changed_device.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostDeviceBytes = 1U << 20;

// "4090" and "RTX 4090" are rtx-4090: what is typed, in small letters, with '-' for a blank.
std::string as_named(std::string typed) {
  std::ranges::replace_if(typed, [](char c) { return c == ' ' || c == '_'; }, '-');
  return lower_case(typed);
}

// "h100" is no typo of "h200", nor "4090" of "a40": both are whole words of names, so these come first.
std::string suggestion(const std::string& typed, const std::vector<std::string>& names) {
  std::vector<std::string> boards;
  const std::string words = "-" + as_named(typed) + "-";
  for (const std::string& name : names) {
    if (("-" + name + "-").find(words) != std::string::npos) boards.push_back(name);
  }
  return boards.empty() ? did_you_mean_any(typed, names) : fmt::format("; did you mean {}?", join(boards, " or "));
}

// "4xh100-sxm".
constexpr const char* kHowMany = "; how many of one there are is said by --tp";
bool counts_devices(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && digits <= 3 && (text.substr(digits).starts_with("x") || text.substr(digits).starts_with(" x"));
}

bool looks_like_a_file(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

}  // namespace

std::vector<std::string> catalog_device_names(const fs::path& catalog) { return yaml_names(catalog / "devices"); }

namespace {

// The board that is meant. Tables of measurements call h100-sxm an H100; who asks for one may mean three.
std::optional<std::string> device_name(const std::string& typed, const std::vector<std::string>& names,
                                       const fs::path& catalog) {
  if (const auto same = same_name(typed, names)) return same;
  const std::string key = device_key(typed);
  const auto is = [&](const std::string& name) { return device_key(name) == key; };
  if (const auto whole = std::ranges::find_if(names, is); whole != names.end()) return *whole;
  const auto begins = [&](const std::string& name) { return device_key(name).starts_with(key); };
  if (std::count_if(names.begin(), names.end(), begins) > 1) return std::nullopt;
  const auto others = other_names(catalog, "devices");
  if (const auto named = name_in_catalog(typed, names, others, device_key)) return named;
  return name_in_catalog(typed, names, others, device_words);
}

// Where the file says whose silicon it has: the message of what is wrong with that.
std::string at_silicon(const fs::path& file, const std::string& text) {
  constexpr std::string_view kKey = "kernels_as";
  std::size_t at = text.starts_with(kKey) ? 0 : text.find("\n" + std::string(kKey));
  if (at == std::string::npos) at = 0;
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at) + 1, '\n') + 1;
  return fmt::format("{}: line {}: {}", file.string(), line, kKey);
}

// What devices with this memory achieve as far as their own files do not say.
Device defaults_of(MemoryType type, const fs::path& catalog) {
  const fs::path priors = catalog / "memory" / fmt::format("{}.yaml", name_of(type));
  return achieved_from_yaml(read_text_file(priors, kMostDeviceBytes).or_throw(priors.string()))
      .or_throw(priors.string(), ExitCode::kUsage);
}

// `above`: the devices that took this one's silicon, one after the other.
Device complete_device(const std::string& name_or_path, const fs::path& catalog, std::vector<std::string> above) {
  const std::vector<std::string> names = catalog_device_names(catalog);
  fs::path file = name_or_path;
  if (!looks_like_a_file(name_or_path)) {
    const auto same = device_name(name_or_path, names, catalog);
    if (!same) {
      throw usage_error(fmt::format("unknown device '{}'{}", name_or_path, suggestion(name_or_path, names)))
          .note(fmt::format("`kvroof devices` lists all of them; or give the path of a YAML file{}",
                            counts_devices(name_or_path) ? kHowMany : ""))
          .note("`kvroof calibrate -o F.yaml` makes such a file of this machine's GPU, with --backend cpu of its CPU; "
                "docs/devices.md says how to write one");
    }
    file = catalog / "devices" / (*same + ".yaml");
  } else if (!fs::is_regular_file(file)) {
    throw usage_error(fmt::format("{}: no such device file", name_or_path));
  }
  const std::string text = read_text_file(file, kMostDeviceBytes).or_throw(file.string(), ExitCode::kUsage);
  Device device = device_from_yaml(text).or_throw(file.string(), ExitCode::kUsage);
  if (!looks_like_a_file(name_or_path)) check_catalog_name(device.name, file);
  const Device defaults = defaults_of(device.memory_type, catalog);
  if (const std::string& silicon = device.kernels_as; !silicon.empty()) {
    if (std::find(names.begin(), names.end(), silicon) == names.end()) {
      throw usage_error(fmt::format("{} names no device of the catalog: '{}'{}", at_silicon(file, text), silicon,
                                    suggestion(silicon, names)));
    }
    above.push_back(name_or_path);
    if (std::find(above.begin(), above.end(), silicon) != above.end()) {
      throw usage_error(fmt::format("{} is '{}', whose silicon is this device's again ({}); name a device that was "
                                    "measured, or take the key out", at_silicon(file, text), silicon,
                                    join(above, " -> ") + " -> " + silicon));
    }
    fill_from_silicon(device, complete_device(silicon, catalog, std::move(above)), defaults);
  }
  fill_achieved(device, defaults);
  return device;
}

}  // namespace

Device find_device(const std::string& name_or_path, const fs::path& catalog) {
  const bool file = fs::is_regular_file(name_or_path);  // which may have a ':' in its name
  const std::size_t folders = name_or_path.rfind('/') + 1;  // 0: none
  const std::size_t changes = file ? std::string::npos : name_or_path.find(':', folders);
  const Device device = complete_device(name_or_path.substr(0, changes), catalog, {});
  if (changes == std::string::npos) return device;
  return changed_device(device, std::string_view(name_or_path).substr(changes + 1),
                        defaults_of(device.memory_type, catalog));
}

}  // namespace kvroof
