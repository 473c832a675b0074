#include "sim/replay/residency_log.hpp"

#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {

ResidencyLog::ResidencyLog(Residency head) : head_(std::move(head)), layers_(head_.layers) { head_.cells.clear(); }

void ResidencyLog::append(std::uint32_t layer, const LayerCounts& counts) {
  std::vector<Run>& runs = layers_[layer];
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.length == 1) {
      const LayerCounts increment = counts - last.first;
      if (last.first + increment == counts) {
        last.increment = increment;
        last.length = 2;
        return;
      }
    } else if (last.first + last.length * last.increment == counts) {
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
    for (std::uint32_t i = 0; i < run.length; ++i) to.at(step++, target) = run.first + i * run.increment;
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
  if (!head_.layer_rows.empty()) one.layer_rows = {head_.layer_rows[layer]};
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
