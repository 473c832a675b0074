// A model under a policy, with prompt and output lengths: what it holds, reads and moves, to be priced on devices.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/prediction/layouts.hpp"
#include "sim/cost/cost.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/policy/spec.hpp"
#include "sim/replay/replay.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

constexpr std::uint32_t kMostPrompt = 1U << 24;  // tokens; no model has as many positions

// What plan and compare are asked about.
struct WorkloadRequest {
  ModelShape model;
  std::vector<Deployment> deployments;  // weight formats × layouts (tp, pp, dp, ep) × ways of drafting; at least one
  std::vector<PolicySpec> points;  // policies × budgets × types of the cache
  bool several_caches = false;     // more than one type of the cache was asked for
  std::uint32_t prompt = 0, output = 0;
  double cached_share = 0;  // of each prompt, that a prefix cache has
  std::array<std::uint32_t, 2> longest{};  // prompt and answer of the longest sequence
  std::optional<std::filesystem::path> trace;  // whose residency is projected; nothing: a nominal one
  std::optional<EngineProfile> engine;         // nothing: the device's own
  std::string stored_format;                   // of a quantised checkpoint, where no --dtype was asked for; or empty
  bool keeps_stored = false;                   // its weights are priced so
  std::string stored_cache;                    // type of the cache that its file states, likewise; or empty
  bool keeps_cache = false;                    // it is taken where no --kv was asked for
  bool default_cache = false;                  // none was
  std::vector<std::string> foreign;            // devices of --device all that the engine does not run on
  std::vector<std::string> left_out;           // layouts that the model cannot be spread over, and why
  bool halved = false;                         // its weights are stored in 32 bits, and the engine runs 16
  std::string unknown_windows;                 // of a GGUF file, which are not counted: a sentence; or empty
  std::optional<double> memory_share;           // of a device's memory, that an engine takes; nothing: its own
  std::optional<std::uint32_t> most_sequences;  // at once; nothing: as many as its scheduler takes
  std::optional<std::uint32_t> step_tokens;     // of prompts and answers in a step; nothing: its own
  std::string engine_version;                  // of it, with an @; empty: today's

  // Whether it is kvroof's own back end that is asked about.
  [[nodiscard]] bool is_own_engine() const { return !engine || engine->name == "kvroof"; }
  // With the cache that the policy names, if it names one.
  [[nodiscard]] Deployment with_cache_of(const PolicySpec& policy, Deployment deployment) const {
    deployment.types.kv = policy.kv.value_or(deployment.types.kv);
    return deployment;
  }
  [[nodiscard]] EngineProfile engine_on(const Device& device) const;
  // Its name and the version that was asked for: vllm@0.2.5.
  [[nodiscard]] std::string engine_text(const Device& device) const { return engine_on(device).name + engine_version; }
  // The policy, with its cache where there are several.
  [[nodiscard]] std::string title(const PolicySpec& policy) const;
};

// Types of a cache below 16 bits that --kv auto tries: the engine's own, or those of kvroof's.
std::vector<KvType> smaller_cache_types(const WorkloadRequest& request);

void describe_workload(boost::program_options::options_description_easy_init add);
// A table of positions has no rows beyond its end. Throws Error (usage).
void require_positions(const ModelShape& model, std::uint32_t prompt, std::uint32_t output);
// Throws Error (usage) with "did you mean". `--prompt max` is the longest that the model's positions allow.
WorkloadRequest workload_request(const Arguments& arguments);

// One policy of a request.
class Workload {
 public:
  Workload(const WorkloadRequest& request, PointResult result, ModelShape recorded);

  [[nodiscard]] const PolicySpec& policy() const { return result_.spec; }
  // A mean decode step, at the lengths of the request or at another prompt.
  [[nodiscard]] const ResidencySummary& mean() const { return mean_; }
  [[nodiscard]] ResidencySummary with_prompt(std::uint32_t prompt) const { return with_lengths(prompt, output_); }
  [[nodiscard]] ResidencySummary with_lengths(std::uint32_t prompt, std::uint32_t output) const;
  // Each decode step of each sequence.
  [[nodiscard]] std::vector<ResidencySummary> steps() const;
  // The counts of each decode step at other lengths, the mean of the recorded sequences: [output].
  [[nodiscard]] std::vector<LayerCounts> step_counts(std::uint32_t prompt, std::uint32_t output) const;

 private:
  ModelShape model_, recorded_;
  std::uint32_t prompt_, output_;
  double cached_share_;
  PointResult result_;
  ResidencySummary mean_;
};

// One for each policy of the request, from a replay of the trace or of a nominal one.
std::vector<Workload> make_workloads(const WorkloadRequest& request, const Arguments& arguments);

// What a reader of the numbers must know, a sentence each.
std::vector<std::string> workload_notes(const WorkloadRequest& request, std::span<const Device* const> devices);
// What is said of a sequence that is longer than the model's positions; empty: it is not.
std::string positions_note(const ModelShape& model, std::uint32_t prompt, std::uint32_t output);
// What plan and compare say who price a mean request: of answers of one token, which have no time per further token,
// and of prompts that are more than a step was given room for.
std::vector<std::string> mean_request_notes(const WorkloadRequest& request);

}  // namespace kvroof
