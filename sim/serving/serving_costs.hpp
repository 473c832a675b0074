// What serving costs: the time of a step and the memory of a sequence, of a model on a device under an engine and a
// policy; an interface, so that the scheduler can be tested with times that a hand can add up.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/cost/cost.hpp"

namespace kvroof {

// A sequence whose prompt is computed, and of whose answer so many tokens are there: at least 1.
struct Decoding {
  std::uint32_t prompt = 1, generated = 1;  // tokens
};

// Tokens [from, to) of a prompt, which one step computes.
struct PromptPart {
  std::uint32_t from = 0, to = 0;
};

// Where groups of devices share experts: how many tokens of each kind all of them have, as a share of those that they
// would have if each had as many as this one.
struct GroupFill {
  double answers = 1, prompts = 1;
};

class ServingCosts {
 public:
  virtual ~ServingCosts() = default;

  // Seconds of a step, through all stages, that makes one token more of each sequence and computes those parts of
  // prompts. Not both are empty.
  [[nodiscard]] virtual double step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                            GroupFill fill = {}) const = 0;
  // Bytes of one device that the sequence's cache takes, with what the policy keeps beside it.
  [[nodiscard]] virtual double cache_bytes(const Decoding& sequence) const = 0;
  // Bytes of one device that another server needs of a sequence whose prompt is computed here.
  [[nodiscard]] virtual double moved_bytes(std::uint32_t prompt) const { return cache_bytes({prompt, 1}); }
  // The length of prompt that cache_bytes() takes so long a prompt for.
  [[nodiscard]] virtual std::uint32_t taken_for(std::uint32_t prompt) const { return prompt; }
  // Bytes of one device that caches may take together.
  [[nodiscard]] virtual double cache_capacity() const = 0;
};

// What a policy makes of sequences whose prompt has one length.
struct LengthProfile {
  ResidencySummary mean;           // of a mean decode step, and of the prompt; mean.prompt is the length
  // Decode steps in their order, at least one: each of the first 256, then means of 2, of 4 … neighbours, so that one
  // long answer does not blur the ages of short ones.
  std::vector<LayerCounts> steps;
};

// The same from the counts of each decode step.
LengthProfile length_profile(ResidencySummary mean, std::span<const LayerCounts> steps);

// Prompt lengths whose profiles serve for all of `prompts`: neighbours lie within `ratio` of each other, where that
// asks for no more than `most`. Between and below them those of 16, 32, 64 … tokens, for parts of prompts. Ascending.
std::vector<std::uint32_t> profiled_lengths(std::vector<std::uint32_t> prompts, double ratio, std::size_t most);

// What is taken of predictions: their values, an end of their intervals, or of wider ones.
struct TimeReading {
  using Of = std::function<double(const Estimate&)>;
  Of step = [](const Estimate& e) { return e.value; };
  Of prompt = [](const Estimate& e) { return e.value; };
};

// The costs of one deployment, of a batch of one of its groups of devices. A sequence takes the profile of the length
// that is nearest to its prompt.
class DeploymentCosts : public ServingCosts {
 public:
  // Profiles in the order of their lengths, at least one.
  DeploymentCosts(const CostModel& cost, std::span<const LengthProfile> profiles, TimeReading reading);

  [[nodiscard]] double step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                    GroupFill fill = {}) const override;
  [[nodiscard]] double cache_bytes(const Decoding& sequence) const override;
  // The rows that are left after the prompt, without what pages leave empty, and the policy's state of them.
  [[nodiscard]] double moved_bytes(std::uint32_t prompt) const override;
  [[nodiscard]] std::uint32_t taken_for(std::uint32_t prompt) const override {
    return profiles_[profile_of(prompt)].mean.prompt;
  }
  [[nodiscard]] double cache_capacity() const override { return capacity_; }

 private:
  [[nodiscard]] std::size_t profile_of(std::uint32_t prompt) const;
  [[nodiscard]] double part_of_cache(std::size_t profile, std::uint64_t rows) const;
  [[nodiscard]] ResidencySummary summary_of(std::span<const Decoding> sequences) const;
  [[nodiscard]] LayerCounts prompt_counts(std::uint32_t tokens) const;
  [[nodiscard]] ResidencySummary summary_of(std::span<const PromptPart> prompts) const;

  const CostModel& cost_;
  std::span<const LengthProfile> profiles_;
  TimeReading reading_;
  double capacity_ = 0;
  std::vector<std::uint32_t> lengths_;  // of the profiles
  std::vector<double> full_cache_;  // bytes of a sequence of each profile at its largest
  std::vector<std::vector<double>> step_caches_;  // likewise at each of its steps
  double states_ = 0;               // bytes that a sequence holds beside them
};

}  // namespace kvroof
