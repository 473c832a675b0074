// How a model is laid out over devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/cost/speculation.hpp"
#include "sim/cost/weight_format.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

// Sequences that pass through all layers together, on the fullest group of devices that attends to sequences of its
// own: the group that all others wait for.
struct Pass {
  std::uint64_t sequences = 0;  // of that group
  double fill = 1;    // mean sequences of a group over those of the fullest: by it scales the work of shared experts
  double beside = 0;  // seconds of device work in the same iteration that hide the host's as well
};

// Types of a model's numbers, and over how many devices it is spread.
struct Deployment {
  // NOLINTNEXTLINE(google-explicit-constructor): plain types on one device are a deployment
  Deployment(TrafficTypes plain) : types(plain), weights(plain_format(plain.weights)) {}
  Deployment(TrafficTypes activations, const WeightFormat& format) : types(activations), weights(format) {}

  TrafficTypes types;  // weights: the type that products without a format of their own are computed in
  WeightFormat weights;
  std::uint32_t tensor_parallel = 1;  // devices that share each layer; divides the query heads
  // Groups of so many devices that each attend to sequences of their own, with attention and dense layers of their own;
  // they share the routed experts, and exchange tokens at each layer of them.
  std::uint32_t data_parallel = 1;
  std::uint32_t expert_parallel = 1;  // groups of all those devices that each hold whole experts; divides their number
  std::uint32_t stages = 1;           // groups of them that each hold a part of the layers, one after the other
  bool top_p = false;                 // tokens are drawn by top-p or top-k; else the most probable, or of all, is taken
  std::optional<Speculation> speculation = {};  // tokens are drafted, and verified by the model

  // That one stage has, and in all.
  [[nodiscard]] std::uint32_t devices_of_a_layer() const { return tensor_parallel * data_parallel; }
  [[nodiscard]] std::uint32_t devices() const { return devices_of_a_layer() * stages; }
  // Tokens of a sequence that a step passes, and those that it is longer by: one where none are drafted.
  [[nodiscard]] StepTokens step_tokens() const { return speculation ? speculation->step_tokens() : StepTokens{}; }
  // How many of `running` sequences a group of devices with sequences of its own has, where they are shared out evenly.
  [[nodiscard]] std::uint64_t of_a_group(std::uint64_t running) const {
    return (running + data_parallel - 1) / data_parallel;
  }
  // The pass of so many sequences, shared out evenly.
  [[nodiscard]] Pass pass_of(std::uint64_t sequences, double beside = 0) const;
};

// How what drafts for a target is laid out beside it, where that is a model: on the same devices, its experts likewise.
Deployment draft_deployment(const Deployment& target);
// Why the model cannot be spread so, or nothing.
std::string deployment_problem(const ModelShape& shape, const Deployment& deployment);

}  // namespace kvroof
