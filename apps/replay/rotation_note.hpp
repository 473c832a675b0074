// What a trace lacks for policies that undo rotary embedding.
#pragma once

#include <span>
#include <string>

#include "sim/policy/spec.hpp"
#include "traces/manifest.hpp"

namespace kvroof {

// Which of the policies turn queries or keys back although nobody told the trace how they were turned; empty: none, or
// an engine wrote it, which knows. Imported models without rotary embedding look the same as those of which it is not
// known; where some layers are turned, the others are known not to be.
std::string rotation_note(const TraceManifest& manifest, std::span<const PolicySpec> policies);

}  // namespace kvroof
