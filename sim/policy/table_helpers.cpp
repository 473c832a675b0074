#include "sim/policy/table_helpers.hpp"

#include <algorithm>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {

void evict_oldest(const EvictRequest& request, std::uint32_t sinks, std::vector<SlotId>& victims) {
  const std::span<const TokenPos> positions = request.positions;
  const auto before = static_cast<std::ptrdiff_t>(victims.size());
  for (std::uint32_t s = 0; s < positions.size(); ++s) {
    if (positions[s].value >= sinks) victims.emplace_back(s);
  }
  const auto end = victims.begin() + before + request.excess;
  std::nth_element(victims.begin() + before, end - 1, victims.end(),
                   [&](SlotId a, SlotId b) { return positions[a.value] < positions[b.value]; });
  victims.erase(end, victims.end());
}

std::uint32_t remembered_rows(const PolicySpec& spec, std::string_view key, std::uint32_t fallback) {
  constexpr std::uint32_t kMost = 65536;  // what is kept of each row and slot must fit
  const std::uint32_t rows = spec.count(key, fallback, 1);
  if (rows <= kMost) return rows;
  throw usage_error(fmt::format("policy {}: {}={}: at most {} rows are remembered", spec.name, key, rows, kMost));
}

std::string room_for_sinks_advice(std::uint32_t sinks, const TokensOrShare& recent, std::uint32_t k) {
  const std::uint32_t newest = recent.of(k);
  if (k >= std::uint64_t{sinks} + newest) return {};
  return fmt::format("beside {} recent tokens a budget of {} has no room for {} sinks; the youngest of them stay",
                     newest, k, sinks);
}

void read_schedule(const PolicySpec& spec, PolicyTraits& traits) {
  const std::string_view when = spec.find("when").value_or("every_step");
  if (when == "prefill") {
    traits.schedule = Schedule::kPrefillOnly;
  } else if (!when.empty() && when.find_first_not_of("0123456789") == std::string_view::npos) {
    traits.interval = spec.count("when", 1, 1);
  } else if (when != "every_step") {
    const std::vector<std::string> words = {"every_step", "prefill"};
    throw usage_error(fmt::format("policy {}: when=`{}`: expected every_step, prefill or a number of steps{}",
                                  spec.name, shown(when), did_you_mean(when, words)));
  }
}

namespace {
std::string group_of(const PolicySpec& spec) { return spec.choice("group", {"sum", "mean", "max", "none"}, "sum"); }
}  // namespace

bool reads_slot_positions(const PolicySpec& spec) {
  return spec.choice("positions", {"original", "slot"}, "original") == "slot";
}

StorageUnit group_unit(const PolicySpec& spec) {
  return group_of(spec) == "none" ? StorageUnit::kQueryHead : StorageUnit::kKvHead;
}

StorageUnit mean_or_none_unit(const PolicySpec& spec) {
  return spec.choice("group", {"mean", "none"}, "mean") == "none" ? StorageUnit::kQueryHead : StorageUnit::kKvHead;
}

GroupReduction group_reduction(const PolicySpec& spec) {
  const std::string group = group_of(spec);
  if (group == "mean") return GroupReduction::kMean;
  return group == "max" ? GroupReduction::kMax : GroupReduction::kSum;
}

}  // namespace kvroof
