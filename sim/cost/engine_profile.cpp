#include "sim/cost/engine_profile.hpp"

#include <array>
#include <string>
#include <vector>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::array<EngineProfile, 4> kProfiles = {{
    {.name = "graphs",
     .about =
         "a GPU engine with CUDA graphs and fused attention; sampling 25 us a step and a 0.65 GiB graph pool as logged "
         "for public engines, 0.5 GiB of context and 3 % of slack by judgement",
     .step_us = 25,
     .reserve_gib = 1.15,
     .reserve_fraction = 0.03},
    {.name = "eager",
     .about = "a GPU engine without graphs: 32 us a layer, 126 us a step and 4 us a request, as fitted to vLLM by BLIS",
     .graphs = false,
     .launch_us = 3.2,
     .step_us = 151,
     .request_us = 4,
     .reserve_gib = 0.5,
     .reserve_fraction = 0.03},
    {.name = "unfused",
     .about = "a GPU engine that materialises probabilities, as FlexGen does in the H2O repository's logs: 2.3 live "
              "copies of a layer's prompt matrix fit all seven peaks; launches as in the eager profile, 25 kernels a "
              "layer by judgement",
     .linears_per_layer = 6,
     .kernels_per_layer = 25,
     .graphs = false,
     .fused_attention = false,
     .launch_us = 3.2,
     .step_us = 151,
     .probability_copies = 2.3},
    {.name = "cpu",
     .about = "kvroof's own CPU back ends: one call an operator, no launches; 2 % of slack by judgement",
     .linears_per_layer = 7,
     .kernels_per_layer = 15,
     .policy_kernels = 1,
     .step_us = 50,
     .reserve_gib = 0.05,
     .reserve_fraction = 0.02},
}};

}  // namespace

std::span<const EngineProfile> engine_profiles() { return kProfiles; }

const EngineProfile& find_engine_profile(std::string_view name) {
  std::vector<std::string> names;
  for (const EngineProfile& p : kProfiles) {
    if (p.name == name) return p;
    names.emplace_back(p.name);
  }
  throw usage_error(fmt::format("unknown engine '{}'{}", name, did_you_mean(name, names)))
      .note(fmt::format("known engines: {}", join(names)));
}

const EngineProfile& default_engine_profile(DeviceKind kind) {
  return kind == DeviceKind::kGpu ? kProfiles[0] : kProfiles[3];
}

}  // namespace kvroof
