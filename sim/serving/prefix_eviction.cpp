#include "sim/serving/prefix_eviction.hpp"

#include <array>
#include <string>
#include <vector>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::array kEvictions = {
    PrefixEviction{"lru", "the least recently used", "vLLM V1; RadixAttention (Zheng et al., NeurIPS 2024)",
                   [](const BlockHistory&) { return 0.0; }},
    PrefixEviction{"fifo", "the one that came first", "SGLang, --radix-eviction-policy fifo",
                   [](const BlockHistory& b) { return static_cast<double>(b.came); }},
    PrefixEviction{"lfu", "the least often used, of these the least recently",
                   "SGLang, --radix-eviction-policy lfu",
                   [](const BlockHistory& b) { return static_cast<double>(b.uses); }},
    PrefixEviction{"lfu-da", "the least often used, where all that is let go later starts from what went last",
                   "LFU with dynamic aging (Arlitt et al., Performance Evaluation Review 27, 2000)",
                   [](const BlockHistory& b) { return b.age + b.uses; }},
    PrefixEviction{"slru", "those used once before those used again, of each the least recently used",
                   "segmented LRU (Karedla et al., Computer 27, 1994), its segments of any size, as SGLang's slru",
                   [](const BlockHistory& b) { return b.uses > 1 ? 1.0 : 0.0; }},
    PrefixEviction{"belady", "the one whose next use is farthest: with blocks of one size no order finds more",
                   "MIN (Belady, IBM Systems Journal 5, 1966)",
                   [](const BlockHistory& b) { return -static_cast<double>(b.next); }, true},
};

}  // namespace

std::span<const PrefixEviction> prefix_evictions() { return kEvictions; }

Result<const PrefixEviction*> prefix_eviction(std::string_view name, bool foreseeing) {
  std::vector<std::string> names;
  for (const PrefixEviction& eviction : kEvictions) {
    if (eviction.name == name) return &eviction;
    if (foreseeing || !eviction.foresees) names.emplace_back(eviction.name);
  }
  return failure("'{}' is no order of eviction: expected {}{}", name, join(names, " | "), did_you_mean(name, names));
}

}  // namespace kvroof
