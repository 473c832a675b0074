// The residency of a sequence under a policy before any of its steps is counted: what the trace and the traits say.
#pragma once

#include "sim/core/residency.hpp"
#include "sim/policy/policy.hpp"
#include "traces/manifest.hpp"

namespace kvroof {

Residency empty_residency(const PolicySpec& spec, const PolicyTraits& traits, const TraceManifest& trace,
                          const TraceSequence& sequence);

}  // namespace kvroof
