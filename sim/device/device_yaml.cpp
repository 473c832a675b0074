// Reading and writing of device files.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/core/suggest.hpp"
#include "sim/device/calibration_version.hpp"
#include "sim/device/device.hpp"

namespace kvroof {
namespace {

using F = DeviceField;
using Sources = std::map<std::string, std::string>;

// Says why the text was refused; caught in device_from_yaml.
struct Refusal {
  std::string message;
};

template <class... Args>
[[noreturn]] void refuse(const YAML::Node& at, fmt::format_string<Args...> text, Args&&... args) {
  const std::string message = fmt::format(text, std::forward<Args>(args)...);
  const int line = at.Mark().line;
  throw Refusal{line < 0 ? message : fmt::format("line {}: {}", line + 1, message)};
}

void require_keys(const YAML::Node& map, const std::vector<std::string>& known, const std::string& where) {
  if (!map.IsMap()) refuse(map, "{} must be a map of keys to values", where);
  std::vector<std::string> seen;
  for (const auto& entry : map) {
    const auto key = entry.first.as<std::string>();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      refuse(entry.first, "unknown key '{}' in {}{}", key, where, did_you_mean(key, known));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse(entry.first, "key '{}' is there twice", key);
    seen.push_back(key);
  }
}

std::string text_of(const YAML::Node& map, const std::string& key) {
  const YAML::Node node = map[key];
  if (!node) refuse(map, "key '{}' is missing", key);
  if (!node.IsScalar() || node.Scalar().empty()) refuse(node, "'{}' must be text", key);
  return node.Scalar();
}

double number_of(const YAML::Node& map, const std::string& key, const std::string& where, double lowest,
                 double highest) {
  const YAML::Node node = map[key];
  if (!node) refuse(map, "{} has no '{}'", where, key);
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) {
    refuse(node, "'{}' of {} must be a number, found '{}'", key, where,
           node.IsScalar() ? node.Scalar() : "a list or map");
  }
  if (!(value >= lowest && value <= highest)) {
    refuse(node, "{} is {}, which no device has; expected {} to {}", where, value, lowest, highest);
  }
  return value;
}

template <class Enum, std::size_t N>
Enum choice_of(const YAML::Node& map, const std::string& key, const std::array<Enum, N>& values) {
  const std::string text = text_of(map, key);
  std::vector<std::string> names;
  for (const Enum v : values) {
    if (name_of(v) == text) return v;
    names.emplace_back(name_of(v));
  }
  refuse(map[key], "{} is '{}', expected one of {}{}", key, text, join(names), did_you_mean(text, names));
}

std::string source_of(const YAML::Node& map, const Sources& sources) {
  std::string text = text_of(map, "source");
  const auto named = sources.find(text);
  return named == sources.end() ? text : named->second;
}

Fact fact_of(const YAML::Node& node, const DeviceFieldInfo& info, const Sources& sources) {
  const std::string where(info.key);
  require_keys(node, {"value", "provenance", "source", "spread"}, where);
  Fact fact;
  fact.value = number_of(node, "value", where, info.lowest, info.highest);
  fact.provenance = choice_of(node, "provenance", std::array{Provenance::kDatasheet, Provenance::kMeasured,
                                                             Provenance::kPrior, Provenance::kGiven});
  fact.source = source_of(node, sources);
  if (node["spread"]) fact.spread = number_of(node, "spread", "spread of " + where, 0, 2);
  return fact;
}

Price price_of(const YAML::Node& node, const Sources& sources) {
  require_keys(node, {"low_usd_per_hour", "high_usd_per_hour", "date", "source"}, "price");
  Price price;
  price.low_usd_per_hour = number_of(node, "low_usd_per_hour", "price", 0, 1000);
  price.high_usd_per_hour = number_of(node, "high_usd_per_hour", "price", price.low_usd_per_hour, 1000);
  price.date = text_of(node, "date");
  if (price.date.size() != 7 || price.date[4] != '-') {
    refuse(node["date"], "date is '{}', expected YYYY-MM", price.date);
  }
  price.source = source_of(node, sources);
  return price;
}

std::vector<WorkingSet> working_sets_of(const YAML::Node& node) {
  if (!node.IsSequence() || node.size() == 0 || node.size() > kMostWorkingSets) {
    refuse(node, "working_sets must be a list of 1 to {} sizes", kMostWorkingSets);
  }
  std::vector<WorkingSet> sets;
  for (const YAML::Node& entry : node) {
    require_keys(entry, {"mib", "linear_gb_per_s", "attention_gb_per_s", "spread"}, "a working set");
    const auto number = [&](const char* key, double low, double high) {
      return number_of(entry, key, "a working set", low, high);
    };
    sets.push_back({number("mib", 0.001, 1e7), number("linear_gb_per_s", 0.01, 1e5),
                    number("attention_gb_per_s", 0.01, 1e5), number("spread", 0, 2)});
    if (sets.size() > 1 && sets.back().mib <= sets[sets.size() - 2].mib) {
      refuse(entry, "working_sets must ascend in mib, found {} after {}", sets.back().mib, sets[sets.size() - 2].mib);
    }
  }
  return sets;
}

Sources sources_of(const YAML::Node& root) {
  Sources sources;
  const YAML::Node node = root["sources"];
  if (!node) return sources;
  if (!node.IsMap()) refuse(node, "sources must be a map of names to texts");
  for (const auto& entry : node) sources[entry.first.as<std::string>()] = entry.second.as<std::string>();
  return sources;
}

// Facts that contradict each other: a wrong unit, a sparse rate, bits for bytes.
void require_consistent(const Device& d, const YAML::Node& root) {
  const auto at = [&](const char* key) {
    const YAML::Node facts = root["facts"], node = facts[key];
    return node ? node : facts;
  };
  const auto value = [&](F f) { return d.fact(f) ? d.fact(f)->value : 0.0; };
  const double by_bus = value(F::kBusBits) * value(F::kPinMbitPerS) / 8e3;
  const double bandwidth = value(F::kBandwidthGbPerS);
  if (by_bus > 0 && std::abs(by_bus - bandwidth) > 0.05 * bandwidth) {
    refuse(at("bandwidth_gb_per_s"), "bandwidth_gb_per_s is {}, but bus_bits · pin_mbit_per_s / 8000 is {:.0f}",
           bandwidth, by_bus);
  }
  if (d.fact(F::kMemoryGb) && value(F::kUsableMib) > value(F::kMemoryGb) * 1024) {
    refuse(at("usable_mib"), "usable_mib is {}, more than the {} GiB that memory_gb can mean", value(F::kUsableMib),
           value(F::kMemoryGb));
  }
  const double half = std::max(value(F::kPeakBf16Tflops), value(F::kPeakFp16Tflops));
  if (half > 0 && value(F::kPeakTf32Tflops) > 0.55 * half) {
    refuse(at("peak_tf32_tflops"), "peak_tf32_tflops is {}, more than half of the 16-bit rate {}: is it a sparse rate?",
           value(F::kPeakTf32Tflops), half);
  }
  if (half > 0 && value(F::kPeakFp8Tflops) > 2.1 * half) {
    refuse(at("peak_fp8_tflops"), "peak_fp8_tflops is {}, more than twice the 16-bit rate {}: is it a sparse rate?",
           value(F::kPeakFp8Tflops), half);
  }
}

void require_complete(const Device& d, const YAML::Node& root) {
  for (const F f : {F::kUsableMib, F::kBandwidthGbPerS}) {
    if (!d.fact(f)) refuse(root, "facts has no '{}'", device_fields()[static_cast<std::size_t>(f)].key);
  }
  if (!d.fact(F::kPeakFp32Tflops) && !d.fact(F::kPeakBf16Tflops) && !d.fact(F::kPeakFp16Tflops)) {
    refuse(root, "facts has no peak: expected peak_fp32_tflops, peak_fp16_tflops or peak_bf16_tflops");
  }
}

// A file of defaults (memory type) has only achieved facts.
Device read_device(const YAML::Node& root) {
  require_keys(root, {"name", "title", "vendor", "architecture", "driver_names", "kernels_as", "kind", "memory_type",
                      "sources", "facts", "price", "working_sets", "calibration"},
               "a device file");
  if (root["calibration"]) {
    number_of(root, "calibration", "a device file", 0, 1e9);
    const std::string version = root["calibration"].Scalar();
    if (version != "1" && version != std::to_string(kCalibrationVersion)) {
      refuse(root["calibration"], "a calibration of version {}, but this program reads versions 1 and {}: calibrate "
             "again", version, kCalibrationVersion);
    }
  }
  Device d;
  d.name = text_of(root, "name");
  d.title = root["title"] ? text_of(root, "title") : d.name;
  if (root["vendor"]) d.vendor = text_of(root, "vendor");
  if (root["architecture"]) d.architecture = text_of(root, "architecture");
  if (const YAML::Node names = root["driver_names"]) {  // catalog_driver_names() reads them
    if (!names.IsSequence()) refuse(names, "driver_names must be a list of names");
    for (const YAML::Node& name : names) {
      if (!name.IsScalar() || name.Scalar().empty()) refuse(names, "driver_names must be a list of names");
    }
  }
  if (root["kernels_as"]) d.kernels_as = text_of(root, "kernels_as");
  d.kind = choice_of(root, "kind", std::array{DeviceKind::kGpu, DeviceKind::kCpu});
  d.memory_type = choice_of(root, "memory_type", std::array{MemoryType::kHbm, MemoryType::kGddr, MemoryType::kDdr});
  const Sources sources = sources_of(root);
  const YAML::Node facts = root["facts"];
  if (!facts) refuse(root, "key 'facts' is missing");
  std::vector<std::string> known;
  for (const DeviceFieldInfo& info : device_fields()) known.emplace_back(info.key);
  require_keys(facts, known, "facts");
  for (const DeviceFieldInfo& info : device_fields()) {
    const YAML::Node node = facts[std::string(info.key)];
    if (node) d.fact(info.field) = fact_of(node, info, sources);
  }
  if (root["price"]) d.price = price_of(root["price"], sources);
  if (root["working_sets"]) d.working_sets = working_sets_of(root["working_sets"]);
  require_consistent(d, root);
  return d;
}

Result<Device> parse(std::string_view text, bool complete) {
  if (text.size() > (1U << 20)) return failure("a device file has at most 1 MiB, this one has {} bytes", text.size());
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap()) return failure("expected a map with name, kind, memory_type and facts");
    Device device = read_device(root);
    if (complete) require_complete(device, root);
    return device;
  } catch (const Refusal& refusal) {
    return Failure{refusal.message};
  } catch (const YAML::Exception& e) {
    return failure("not a valid YAML file: line {}: {}", e.mark.line + 1, e.msg);
  }
}

}  // namespace

Result<Device> device_from_yaml(std::string_view text) { return parse(text, true); }

Result<Device> achieved_from_yaml(std::string_view text) { return parse(text, false); }

std::string device_to_yaml(const Device& device) {
  YAML::Emitter out;
  const auto put = [&](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    out << YAML::Key << std::string(key) << YAML::Value << YAML::DoubleQuoted << std::string(value);
  };
  const auto number = [&](std::string_view key, double value) {
    out << YAML::Key << std::string(key) << YAML::Value << fmt::format("{}", value);
  };
  out << YAML::BeginMap;
  put("name", device.name);
  put("title", device.title);
  put("vendor", device.vendor);
  put("architecture", device.architecture);
  put("kernels_as", device.kernels_as);
  put("kind", name_of(device.kind));
  put("memory_type", name_of(device.memory_type));
  out << YAML::Key << "facts" << YAML::Value << YAML::BeginMap;
  for (const DeviceFieldInfo& info : device_fields()) {
    const std::optional<Fact>& fact = device.fact(info.field);
    if (!fact) continue;
    out << YAML::Key << std::string(info.key) << YAML::Value << YAML::BeginMap;
    number("value", fact->value);
    put("provenance", name_of(fact->provenance));
    put("source", fact->source);
    if (fact->spread > 0) number("spread", fact->spread);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  if (device.price) {
    out << YAML::Key << "price" << YAML::Value << YAML::BeginMap;
    number("low_usd_per_hour", device.price->low_usd_per_hour);
    number("high_usd_per_hour", device.price->high_usd_per_hour);
    put("date", device.price->date);
    put("source", device.price->source);
    out << YAML::EndMap;
  }
  if (!device.working_sets.empty()) {
    out << YAML::Key << "working_sets" << YAML::Value << YAML::BeginSeq;
    for (const WorkingSet& set : device.working_sets) {
      out << YAML::Flow << YAML::BeginMap;
      number("mib", set.mib);
      number("linear_gb_per_s", set.linear_gb_per_s);
      number("attention_gb_per_s", set.attention_gb_per_s);
      number("spread", set.spread);
      out << YAML::EndMap;
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace kvroof
