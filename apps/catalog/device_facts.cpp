#include "apps/catalog/device_facts.hpp"

#include <fmt/format.h>

namespace kvroof {

Table device_facts(const Device& d) {
  Table table;
  table.columns = {{"fact", "fact", false},
                   {"value", "value"},
                   {"kind", "provenance", false},
                   {"±80 %", "relative_spread80"},
                   {"source", "source", false}};
  for (const DeviceFieldInfo& info : device_fields()) {
    if (!d.fact(info.field)) continue;
    const Fact& fact = *d.fact(info.field);
    const std::string value = fmt::format("{}", fact.value);
    const std::string kind(name_of(fact.provenance));
    const std::string spread = fact.spread > 0 ? fmt::format("{:.0f} %", 100 * fact.spread) : "";
    table.rows.push_back({std::string(info.label), value, kind, spread, fact.source});
    table.raw_rows.push_back({std::string(info.key), value, kind, fmt::format("{}", fact.spread), fact.source});
  }
  for (const WorkingSet& set : d.working_sets) {
    const std::string source = d.fact(DeviceField::kLinearFraction) ? d.fact(DeviceField::kLinearFraction)->source : "";
    const std::string spread = fmt::format("{:.0f} %", 100 * set.spread), raw_spread = fmt::format("{}", set.spread);
    const auto add = [&](std::string_view label, std::string_view key, double rate) {
      const std::string value = fmt::format("{}", rate), kind(name_of(Provenance::kMeasured));
      table.rows.push_back({fmt::format("{} of {:g} MiB (GB/s)", label, set.mib), value, kind, spread, source});
      table.raw_rows.push_back({fmt::format("working_set_{:g}_mib_{}", set.mib, key), value, kind, raw_spread, source});
    };
    add("products, working set", "linear_gb_per_s", set.linear_gb_per_s);
    add("attention, working set", "attention_gb_per_s", set.attention_gb_per_s);
  }
  if (d.price) {
    const std::string source = fmt::format("{}, {}", d.price->source, d.price->date);
    const std::string low = fmt::format("{}", d.price->low_usd_per_hour);
    const std::string high = fmt::format("{}", d.price->high_usd_per_hour);
    table.rows.push_back({"price, lowest ($/h)", low, "listed", "", source});
    table.raw_rows.push_back({"price_low_usd_per_hour", low, "listed", "", source});
    table.rows.push_back({"price, highest ($/h)", high, "listed", "", source});
    table.raw_rows.push_back({"price_high_usd_per_hour", high, "listed", "", source});
  }
  return table;
}

}  // namespace kvroof
