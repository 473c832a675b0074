// Traffic on a device, as time with an interval; memory ledger; largest batch; what limits. Formulas: docs/method.md.
#pragma once

#include <cmath>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/cost/engine_profile.hpp"
#include "sim/cost/speculation.hpp"
#include "sim/cost/weight_format.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/summary.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

// The terms that a step time is the sum of, each with its own uncertainty; and what else is uncertain: one board beside
// another, memory that no ledger foresees, and how many requests there are at once.
enum class CostTerm : std::uint8_t {
  kLinear, kAttention, kElementwise, kPolicy, kHost, kLinks, kBoard, kMemory, kLoad
};
inline constexpr std::size_t kCostTerms = 6;  // those of a time
inline constexpr std::array<std::string_view, 9> kCostTermNames = {
    "linear", "attention", "elementwise", "policy", "host", "links", "board", "memory", "load"};
constexpr std::string_view name_of(CostTerm term) { return kCostTermNames[static_cast<std::size_t>(term)]; }

// A prediction with its interval. The widths of the cost model are priors; measured rows move them (analysis).
struct Estimate {
  double value = 0;
  double low80 = 0;
  double high80 = 0;
  double low95 = 0;
  double high95 = 0;
  CostTerm dominated_by = CostTerm::kLinear;  // what contributes most to the width
  double limit = 0;  // the shortest time, or the highest rate, that the datasheet allows; 0: not known
  double unmeasured = 0;  // share of the squared prior width that is a policy's kernels, which no measured row has
  bool is_rate = false;   // else a time
};

// Of what the best shape reaches (matmul_fraction), what products of any shape of at least 1,024 rows and columns do:
// tables of A100 and H100 fit 0.96 and 0.98 (half of the shapes fitted).
inline constexpr double kAnyShapeShare = 0.97;

// Normal quantiles: 80 % and 95 % of a distribution lie within 1.2816 and 1.9600 deviations.
inline constexpr double kWidth95 = 1.9600 / 1.2816;

// The largest share of a step: reading weights; reading, writing and moving KV; the same of states of layers without a
// cache; arithmetic; start-ups and host; what devices tell each other; or that memory does not suffice.
enum class Limit : std::uint8_t { kWeights, kKv, kStates, kCompute, kLaunches, kLinks, kCapacity };
inline constexpr std::size_t kLimits = 7;
inline constexpr std::array<std::string_view, kLimits> kLimitNames = {"weights",  "KV",    "states",  "compute",
                                                                      "launches", "links", "capacity"};
constexpr std::string_view name_of(Limit limit) { return kLimitNames[static_cast<std::size_t>(limit)]; }

Estimate scaled(const Estimate& estimate, double factor);
// Tokens per second from seconds per step: the fast end of one is the slow end of the other.
Estimate throughput(const Estimate& step, double tokens);

// The number nearest to x that the estimate's limit allows: no shorter time, no higher rate.
double possible(const Estimate& estimate, double x);

// How a model is laid out: types of its numbers, and over how many devices.
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
};

// How what drafts for a target is laid out beside it, where that is a model: on the same devices, its experts likewise.
Deployment draft_deployment(const Deployment& target);
// Why the model cannot be spread so, or nothing.
std::string deployment_problem(const ModelShape& shape, const Deployment& deployment);

// Memory of a batch on one device (of several, on each), at its largest.
struct MemoryLedger {
  Bytes weights;
  Bytes kv_allocated;  // rows that decoding must have room for
  // Parts of kv_allocated where the cache is quantised: scales and minima; a residual window in float16.
  Bytes kv_scales, kv_residual;
  Bytes policy_state;  // scores and counters of those rows, and bounds of their pages
  Bytes states;        // of layers without a cache, one for each token that a step verifies
  Bytes activations;   // the larger of a decode step of the batch and the prefill of one sequence
  // The whole prompt cache of one sequence, or of all whose prompts are computed as one: of one layer when each is
  // compacted at once, else of all; and the probability matrices of an engine that does not fuse attention.
  Bytes prefill_transient;
  Bytes beam_copies;  // of the cache, while beams are put into another order
  Bytes draft_weights, draft_cache;  // of what drafts tokens; its cache is whole, whatever the policy keeps
  Bytes reserve;   // context, graphs, allocator slack
  Bytes capacity;  // usable memory of the device

  [[nodiscard]] Bytes total() const {
    return weights + kv_allocated + policy_state + states + activations + prefill_transient + beam_copies +
           draft_weights + draft_cache + reserve;
  }
  [[nodiscard]] bool fits() const { return total() <= capacity; }
  // Bytes in all, with the interval within which published peaks lie.
  [[nodiscard]] Estimate needed() const;
};

struct Prediction {
  std::uint64_t batch = 0;
  bool fits = false;      // when false the times are what they would be with enough memory
  Estimate step;          // seconds of a mean decode step, with its drafts where there are some
  double tokens_a_step = 1;  // that a sequence is longer by after it, on average
  Estimate tokens_per_s;  // of the whole batch
  std::array<Seconds, kCostTerms> terms{};
  Limit limited_by = Limit::kWeights;  // capacity when the batch does not fit
  StepTraffic traffic;                 // of a mean decode pass; of one group that attends to sequences of its own
  Bytes kv_resident;                   // of the batch, mean over decode steps

  // Seconds for a token of each sequence.
  [[nodiscard]] Estimate token() const { return scaled(step, 1 / tokens_a_step); }
};

// One model on one device, or on several alike, under one engine. predict() and ledger() take about a microsecond and,
// but for caches by age, allocate nothing.
class CostModel {
 public:
  // The device must have its achieved fields (find_device fills them). The deployment has no problem.
  CostModel(const ModelShape& shape, const Deployment& deployment, const Device& device, const EngineProfile& engine);

  // A decode step of all sequences, which pass through stages in groups where the engine has these work at once, and
  // the tokens a second of all of them.
  [[nodiscard]] Prediction predict(const ResidencySummary& residency, std::uint64_t batch) const;
  // A pass of `batch` sequences through all layers; `beside`: seconds of prompts that are computed in its iteration,
  // behind which the host works too.
  [[nodiscard]] Estimate step(const ResidencySummary& residency, std::uint64_t batch, double beside = 0) const;
  // The same where the fullest group of devices, for which all wait, has `own` of them, and all groups together have
  // that share `fill` of `own` for each: the experts, which they share, compute no more than these.
  [[nodiscard]] Estimate step_of_groups(const ResidencySummary& residency, std::uint64_t own, double fill,
                                        double beside = 0) const;
  // How many of `running` sequences a group of devices with sequences of its own has, where they are shared out evenly.
  [[nodiscard]] std::uint64_t of_a_group(std::uint64_t running) const {
    return (running + deployment_.data_parallel - 1) / deployment_.data_parallel;
  }
  // What share of as many in each group they are then.
  [[nodiscard]] double fill_of(std::uint64_t running) const {
    const auto all = static_cast<double>(of_a_group(running) * deployment_.data_parallel);
    return all > 0 ? static_cast<double>(running) / all : 1;
  }
  // How many of `running` sequences such a pass has.
  [[nodiscard]] std::uint64_t in_a_pass(std::uint64_t running) const {
    const std::uint64_t groups = engine_.overlaps_stages ? deployment_.stages : 1;
    return (running + groups - 1) / groups;
  }
  // A mean decode step of one layer by itself, without host and head: what a profile of a layer shows.
  [[nodiscard]] Estimate layer(const ResidencySummary& residency, std::uint64_t batch) const;
  // Seconds that the prompts of `batch` sequences take together, up to their first tokens; they are shared out evenly
  // over groups of devices that attend to sequences of their own.
  [[nodiscard]] Estimate prefill(const ResidencySummary& residency, std::uint64_t batch, double beside = 0) const;
  // `own` and `fill` as of step_of_groups().
  [[nodiscard]] Estimate prefill_of_groups(const ResidencySummary& residency, std::uint64_t own, double fill,
                                           double beside = 0) const;
  [[nodiscard]] MemoryLedger ledger(const ResidencySummary& residency, std::uint64_t batch) const;
  // Tokens that a sequence is longer by after a step, on average: 1 where none are drafted.
  [[nodiscard]] double tokens_a_step() const { return step_tokens().kept; }
  // Steps in which an answer makes so many tokens, on average.
  [[nodiscard]] double steps_of(double tokens) const {
    const auto& drafts = deployment_.speculation;
    return drafts ? drafts->steps_of(static_cast<std::uint64_t>(std::llround(tokens))) : tokens;
  }
  // Seconds of a mean step that go to drafts.
  [[nodiscard]] Estimate drafting(const ResidencySummary& residency, std::uint64_t batch) const;
  // Bytes of one device that what drafts holds of a sequence of so many tokens.
  [[nodiscard]] double draft_cache_bytes(double tokens) const;
  // Bytes of one device that the cache of a prompt of so many tokens takes, whole but for what windows hide; with that
  // of what drafts.
  [[nodiscard]] double prompt_bytes(std::uint64_t tokens) const;
  // Likewise the states of one sequence in layers without a cache, also of what drafts, and what makes compressed rows.
  [[nodiscard]] double held_states() const;
  // As many rows of a sequence, in all of its layers, as the pages hold that `rows` take where they share pages with
  // states; elsewhere `rows` itself.
  [[nodiscard]] std::uint64_t rows_in_state_pages(const ResidencySummary& residency, std::uint64_t rows) const;
  // By themselves: one matrix product y[m, n] = x[m, k] · w[k, n]; decode attention over `kv_bytes` of cache, those of
  // so many KV heads of sequences.
  [[nodiscard]] Estimate product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const;
  [[nodiscard]] Estimate attention_call(Bytes kv_bytes, double heads) const;
  // An update of states of so many bytes by itself, which are read and written.
  [[nodiscard]] Estimate state_call(Bytes states) const;
  // A norm, an activation or a rotation of so many elements by itself.
  [[nodiscard]] Estimate elementwise_call(std::uint64_t elements) const;
  // The largest batch whose ledger fits and that the engine takes; 0 when not even one sequence fits. Where `scale` is
  // given, as if every sum of bytes were so many times larger.
  [[nodiscard]] std::uint64_t largest_batch(const ResidencySummary& residency, double scale = 1) const;

  [[nodiscard]] const ModelShape& shape() const { return shape_; }
  [[nodiscard]] TrafficTypes types() const { return types_; }
  [[nodiscard]] const Deployment& deployment() const { return deployment_; }
  [[nodiscard]] const EngineProfile& engine() const { return engine_; }

 private:
  // What a step's time is made of, with the relative half-widths (80 %) of the constants.
  struct Rate {
    double value = 0;
    double spread = 0;
  };
  struct Parts;  // cost_parts.hpp

  [[nodiscard]] Rate rate(const Device& device, DeviceField field, double unit) const;
  [[nodiscard]] Parts parts_of(const ResidencySummary& residency, const StepTraffic& traffic, std::uint64_t batch,
                               double fill, StepTokens tokens, double beside) const;
  [[nodiscard]] Parts prefill_parts(const ResidencySummary& residency, std::uint64_t batch, double beside,
                                    double fill) const;
  static Estimate estimate_of(const Parts& parts);
  static double highest_peak(const Device& device, std::initializer_list<std::optional<DeviceField>> types);
  void set_limits(const Device& device);
  // What a decode step reads its weights and its cache at: the more of them there are, the fewer lie in a cache.
  struct Reading {
    Rate linear, attention;
  };
  // `kv_bytes`: of caches, on this device.
  [[nodiscard]] Reading reading(const StepTraffic& traffic, std::uint64_t batch, double fill, double kv_bytes) const;
  // What this device holds of rows of so many heads that a policy keeps apart: query heads, where each has its own.
  [[nodiscard]] double kv_share(std::uint32_t storage_heads) const;
  // Bytes on this device, in KV heads, of the rows before those tokens of a prompt that are computed: their queries
  // read these.
  [[nodiscard]] double earlier_bytes(const ResidencySummary& residency) const;
  [[nodiscard]] double uncached(std::uint64_t tokens) const;
  // `kv_bytes`: of caches, on this device; `state_bytes`: of layers without one.
  [[nodiscard]] double least_seconds(const StepTraffic& traffic, std::uint64_t tokens, double fill, double kv_bytes,
                                     double state_bytes) const;
  [[nodiscard]] double least_of_call(double bytes) const;
  // What decode attention could compute in the time that so many KV heads of sequences take however short they are.
  [[nodiscard]] double operations_of(double heads) const { return heads * head_seconds_ * attention_peak_.value; }
  [[nodiscard]] double activation_seconds(const StepTraffic& traffic, std::uint64_t tokens) const;
  struct ReadWeights {
    double bytes = 0, elements = 0, packed = 0, routed = 0;  // routed: bytes of experts, as many as are expected
  };
  // `fill` as of step_of_groups().
  [[nodiscard]] ReadWeights read_weights(const StepTraffic& traffic, std::uint64_t tokens, double fill = 1) const;
  // Launches of a model beside those of as many plain layers: experts, latent attention and states.
  struct MoreKernels {
    double products = 0, others = 0;
    double quantised = 0;     // of all products of a step, those whose inputs are quantised for the format
    double expert_calls = 0;  // seconds that calls of experts start later than those products and kernels do
  };
  // cost_drafts.cpp: of what drafts tokens.
  [[nodiscard]] StepTokens step_tokens() const {
    return deployment_.speculation ? deployment_.speculation->step_tokens() : StepTokens{};
  }
  void set_draft(const Device& device);
  [[nodiscard]] ResidencySummary draft_residency(const ResidencySummary& residency) const;
  [[nodiscard]] Parts draft_parts(const ResidencySummary& residency, std::uint64_t batch, double fill) const;
  [[nodiscard]] Parts step_parts(const ResidencySummary& residency, const StepTraffic& traffic, std::uint64_t batch,
                                 double fill, double beside) const;
  [[nodiscard]] double fullest_stage(double all) const;
  // Parts of the constructor, in this order.
  void set_reading(const Device& device);
  [[nodiscard]] bool multiplies_in_format(const Device& device) const;  // of the weights, inputs quantised for it
  void set_products(const Device& device);
  void set_attention(const Device& device);
  void set_experts(bool own_products, bool packed_as_is);
  [[nodiscard]] MoreKernels more_kernels() const;
  [[nodiscard]] double expert_row_seconds(std::uint64_t tokens) const;
  [[nodiscard]] double expert_operations(std::uint64_t tokens) const;  // of routed experts
  // Of one sequence, under an engine that may keep what a layer's window no longer shows.
  [[nodiscard]] KvBytes allocated(const ResidencySummary& residency) const;
  [[nodiscard]] KvBytes allocated_for_tokens(const ResidencySummary& residency) const;
  [[nodiscard]] double walked_columns() const;
  // cost_index.cpp: where an index chooses the tokens that queries read.
  void set_index(const Device& device);
  void add_index(Parts& parts, const StepTraffic& traffic, std::uint64_t queries, bool prompts) const;
  void add_wide_queries(Parts& parts, std::uint64_t queries) const;
  // What attention reaches of this rate where it reads chosen rows; elsewhere the rate itself.
  [[nodiscard]] Rate of_chosen_rows(Rate rate, double share) const;
  // What attention computes on this device, of what all compute.
  [[nodiscard]] double head_share() const;
  // Whether queries of a prompt read the tokens that the index chose.
  [[nodiscard]] bool chooses(const LayerCounts& prompt) const {
    if (shape_.compressed) return true;
    return shape_.index && (prompt.indexed > prompt.attended || !engine_.short_prompts_whole);
  }
  // A latent row is longer than k and v of a head: (rank + rope) + rank to (nope + rope) + v (arXiv:2405.04434, 2.1.2).
  [[nodiscard]] double heads_beside_latent() const {
    const double of_heads = double{1} * shape_.latent_nope_dim + shape_.latent_rope_dim + shape_.latent_v_dim;
    return shape_.latent() ? of_heads / (shape_.head_dim + shape_.v_head_dim) : 1;
  }
  // cost_states.cpp: of layers without a cache.
  void add_states(Parts& parts, const StepTraffic& traffic, bool prompts) const;
  [[nodiscard]] Rate state_bandwidth() const;
  // Where an engine keeps states and rows in pages of one size.
  struct StatePages {
    std::uint64_t tokens = 0;  // whose rows in one layer are a page
    double bytes = 0;          // of a page, on one device
    std::uint64_t states = 0;  // pages that the states of one sequence take, those that fill a group of layers included
  };
  [[nodiscard]] std::optional<StatePages> state_pages() const;
  [[nodiscard]] double allocated_states() const;  // bytes of one sequence on one device, in whole pages
  // Likewise of what makes compressed rows, which no step has several of.
  [[nodiscard]] double held_compressors() const {
    return kv_share_ * stage_share_ * static_cast<double>(compressor_bytes(shape_));
  }
  [[nodiscard]] double state_products() const;  // of one layer, beside the two that a layer of attention has there
  void add_linears(Parts& parts, const StepTraffic& traffic, std::uint64_t tokens, Rate reading, Rate peak,
                   double fill = 1) const;
  void set_links(const Device& device);
  // `domain`: devices that links join; `hosted`: microseconds that a sum starts later where the host passes it on.
  void set_hops(const Device& device, double domain, double hosted);
  void add_links(Parts& parts, std::uint64_t tokens) const;
  void set_exchange(const Device& device);
  [[nodiscard]] double exchange_seconds(std::uint64_t tokens) const;
  // Of all kernels of a step, so many microseconds each.
  [[nodiscard]] double launch_seconds(double each_us) const;
  void add_host(Parts& parts, std::uint64_t batch, std::uint64_t sampled, bool replayed, double launch_us,
                double beside) const;

  ModelShape shape_;
  TrafficTypes types_;
  Deployment deployment_;
  EngineProfile engine_;
  Bytes weights_, capacity_;  // of one device
  double share_ = 1;          // of each layer, on one device
  double stage_share_ = 1;    // of the layers, on the stage that has most of them
  double kv_share_ = 1;       // of its cache: devices hold the same heads where there are fewer than devices
  Rate linear_bandwidth_, attention_bandwidth_;                             // bytes/s that kernels reach
  Rate linear_peak_, attention_peak_, policy_peak_;                         // operations/s that kernels reach
  Rate linear_start_, attention_start_, elementwise_start_, kernel_start_;  // seconds
  Rate index_peak_ = {1, 0};   // operations/s of the products of an index
  double wide_query_ = 0;      // seconds of a query of 64 heads beside compressed rows, whatever rows it reads
  double index_score_ = 0;     // seconds of one score of a prompt, beside its products
  Rate attention_call_, attention_cold_;                                    // seconds, of a call by itself
  Rate hop_start_, hop_bandwidth_;   // of a hand-over between stages
  Rate sum_start_, link_bandwidth_;  // of a sum over devices that share a layer
  double one_shot_bandwidth_ = 0;  // bytes/s at which a sum reads all others' messages at once; 0: a ring alone
  // Of a layer's tokens on their way to experts and back: seconds, and seconds of a token.
  double exchange_start_ = 0, exchange_token_ = 0;
  double unpack_seconds_ = 0;  // of one parameter
  bool unpacks_experts_alone_ = false;  // where products of the other weights' type are the board's own
  // Bytes/s; operations/s of products with weights and of attention. 0: caches hold models, no limit.
  double datasheet_bandwidth_ = 0, datasheet_peak_ = 0, datasheet_attention_peak_ = 0;
  Rate tile_ = {0, 0};         // seconds of one parameter in a tile of rows; 0: products take the rows that there are
  double prompt_share_ = 1;
  double cache_bytes_ = 0;
  double routed_kernels_ = 0;
  double expert_call_ = 0;   // seconds that the experts of a layer start later
  double head_seconds_ = 0;  // of one KV head of a sequence, however short, spread over the multiprocessors
  bool native_experts_ = false;
  // What a product starts later for its inputs' sake, in a model, and still later by itself.
  double quantise_fused_ = 0, quantise_apart_ = 0;
  Rate walk_ = {0, 0};  // seconds of a column of a product's matrix
  std::vector<WorkingSet> working_sets_;
  bool together_ = false;  // parts of a time are slow together
  double matmul_fraction_ = 1;  // the peaks above are this share of the device's
  std::shared_ptr<const CostModel> draft_;  // of what drafts tokens; nothing: drafts are free, or there are none
};

}  // namespace kvroof
