// How an engine launches work: kernels a layer, graphs or not, fused attention or not; data beside the device's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/device/device.hpp"

namespace kvroof {

struct EngineProfile {
  std::string_view name;
  std::string_view about;                // one sentence, with the source of its numbers
  std::uint32_t linears_per_layer = 4;   // launches of matrix products in a layer: qkv, o, gate and up, down
  std::uint32_t kernels_per_layer = 10;  // all launches of a layer but the policy's
  std::uint32_t policy_kernels = 2;      // launches of a scoring policy in a layer: update scores; choose and free
  bool graphs = true;                    // launches are replayed from a graph: the host never waits between them
  bool fused_attention = true;           // the probability matrix never exists in memory
  double launch_us = 0;                  // host time of one launch, without graphs
  double step_us = 0;                    // host and sampling time of one step
  double request_us = 0;                 // host time of one sequence in a step
  double reserve_gib = 0;                // context and graph pools
  double reserve_fraction = 0;           // of usable memory: allocator slack
  double probability_copies = 0;  // live copies of one layer's prompt probabilities of the whole batch, without fused
                                  // attention; the prompt's activations are fitted inside
};

std::span<const EngineProfile> engine_profiles();
// The profile of that name; throws Error (usage) with "did you mean".
const EngineProfile& find_engine_profile(std::string_view name);
// Graphs and fused attention on a GPU; kvroof's own back end on a CPU.
const EngineProfile& default_engine_profile(DeviceKind kind);

}  // namespace kvroof
