// A model as an engine places it on devices that are alike: what one of them has of its layers, heads and weights.
#pragma once

#include <cstdint>

#include "sim/core/units.hpp"
#include "sim/cost/deployment.hpp"
#include "sim/cost/engine_profile.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// How a board multiplies weights of the format that they are stored in.
struct FormatOnBoard {
  bool own = false;                // in products of the format's type, for which inputs are quantised
  bool as_stored = false;          // so, or by wider inputs: nothing is unpacked
  bool experts_as_stored = false;  // the same of routed experts, whose products a board may lack

  // Where products of the other weights' type are the board's own.
  [[nodiscard]] bool unpacks_experts_alone() const { return as_stored && !experts_as_stored; }
};

struct Placement {
  // The deployment has no problem, and the device its achieved fields (find_device fills them).
  Placement(const ModelShape& shape, const Deployment& deployment, const Device& device, const EngineProfile& engine);

  ModelShape shape;       // states in the types that the engine keeps them in
  Deployment deployment;  // weights in the format as this model has it
  EngineProfile engine;
  FormatOnBoard format;
  double share = 1;        // of each layer, on one device
  double stage_share = 1;  // of the layers, on the stage that has most of them
  double kv_share = 1;     // of its cache: devices hold the same heads where there are fewer than devices
  double other_kv_share = 1;  // likewise of layers of other heads (ModelShape::other)
  Bytes weights, capacity;  // of one device

  [[nodiscard]] const TrafficTypes& types() const { return deployment.types; }
  // What one device holds of rows of so many heads that a policy keeps apart: query heads, where each has its own.
  // `others`: what layers of other heads have of the rows.
  [[nodiscard]] double kv_share_of(std::uint32_t storage_heads, double others) const;
  // Of rows that are read, and of those that each token adds.
  [[nodiscard]] double kv_share_of(const ResidencySummary& residency, const LayerCounts& attended) const;
  [[nodiscard]] double written_share_of(const ResidencySummary& residency) const {
    return kv_share_of(residency.storage_heads, others_of_token());
  }
  // What layers of other heads have of the rows of each token.
  [[nodiscard]] double others_of_token() const;
  // The same of so many rows of a sequence of which all heads hold as many tokens, as far as their windows show them.
  [[nodiscard]] double others_of(double rows) const;
  // What drafts for the model, where that is a model too, on the same devices: a layer of the target shares its
  // embedding, and the host has scheduled its steps with the target's.
  [[nodiscard]] Placement of_draft(const Device& device) const;
};

}  // namespace kvroof
