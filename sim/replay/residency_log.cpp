#include "sim/replay/residency_log.hpp"

#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

AgedRows add(const AgedRows& a, const AgedRows& b, std::uint64_t times) {
  return {a.keys16 + times * b.keys16, a.values16 + times * b.values16, a.packed_keys + times * b.packed_keys,
          a.packed_values + times * b.packed_values};
}

// a + times · b in each count; unsigned counts wrap, which undoes itself.
LayerCounts add(const LayerCounts& a, const LayerCounts& b, std::uint64_t times) {
  LayerCounts sum;
  for (const auto field : kCountFields) sum.*field = a.*field + times * b.*field;
  sum.policy_flops = a.policy_flops + static_cast<double>(times) * b.policy_flops;
  sum.attended_aged = add(a.attended_aged, b.attended_aged, times);
  sum.resident_aged = add(a.resident_aged, b.resident_aged, times);
  sum.converted = add(a.converted, b.converted, times);
  return sum;
}

LayerCounts difference(const LayerCounts& a, const LayerCounts& b) {
  LayerCounts minus = add(a, b, ~std::uint64_t{0});
  minus.policy_flops = a.policy_flops + -1.0 * b.policy_flops;
  return minus;
}

}  // namespace

ResidencyLog::ResidencyLog(Residency head) : head_(std::move(head)), layers_(head_.layers) { head_.cells.clear(); }

void ResidencyLog::append(std::uint32_t layer, const LayerCounts& counts) {
  std::vector<Run>& runs = layers_[layer];
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.length == 1) {
      const LayerCounts increment = difference(counts, last.first);
      if (add(last.first, increment, 1) == counts) {
        last.increment = increment;
        last.length = 2;
        return;
      }
    } else if (add(last.first, last.increment, last.length) == counts) {
      ++last.length;
      return;
    }
  }
  runs.push_back(Run{counts, {}, 1});
}

void ResidencyLog::expand_into(Residency& to, std::uint32_t target, std::uint32_t layer) const {
  std::uint64_t steps = 0;
  for (const Run& run : layers_[layer]) steps += run.length;
  check(steps == std::uint64_t{head_.steps} + 1, "every step of a layer was appended");
  std::uint32_t step = 0;
  for (const Run& run : layers_[layer]) {
    for (std::uint32_t i = 0; i < run.length; ++i) to.at(step++, target) = add(run.first, run.increment, i);
  }
}

Residency ResidencyLog::expand() const {
  Residency full = head_;
  full.cells.resize((std::size_t{head_.steps} + 1) * head_.layers);
  for (std::uint32_t layer = 0; layer < head_.layers; ++layer) expand_into(full, layer, layer);
  return full;
}

Residency ResidencyLog::expand_layer(std::uint32_t layer) const {
  Residency one = head_;
  one.layers = 1;
  if (!head_.layer_windows.empty()) one.layer_windows = {head_.layer_windows[layer]};
  one.cells.resize(std::size_t{head_.steps} + 1);
  expand_into(one, 0, layer);
  return one;
}

std::uint64_t ResidencyLog::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& runs : layers_) sum += runs.capacity() * sizeof(Run);
  return sum;
}

}  // namespace kvroof
