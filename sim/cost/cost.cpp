#include "sim/cost/cost.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/cost/cost_parts.hpp"

namespace kvroof {
namespace {

// Relative half-widths (80 %) of what no device file states: priors, see docs/method.md.
constexpr double kChipSpread = 0.05;  // two boards of one product, clocks, temperature
constexpr double kHostSpread = 0.30;
constexpr double kPolicySpread = 0.50;
constexpr double kActivationSpread = 0.30;  // where an engine says what its kernels between products reach
// Clocks under sustained load, launches and sampling of a prompt; and what its attention reaches of the peak.
constexpr double kPrefillSpread = 0.30;
constexpr double kPromptAttentionShare = 0.60;

// Rows that vector products of unpacked weights take one after another; kernels of tiles serve more.
constexpr std::uint64_t kColumns = 8;
constexpr double kUnpackSpread = 0.40;
// Of the activations, what every device of a shared layer reads and writes whole: norms, residuals, inputs of products.
constexpr double kReplicated = 0.4;

Estimate around(double value, double half_width, CostTerm dominated_by) {
  // Multiplicative, so that no bound is ever negative.
  const double h80 = 1 + half_width;
  const double h95 = 1 + half_width * kWidth95;
  return {value, value / h80, value * h80, value / h95, value * h95, dominated_by};
}

// Arithmetic of products and activations of a step that computes for so many times its sequences.
StepTraffic padded_by(double padding, StepTraffic traffic) {
  traffic.flops[static_cast<std::size_t>(KernelFamily::kLinear)].value *= padding;
  const auto activations = static_cast<double>(traffic.bytes[Cause::kActivations]);
  traffic.bytes.add(Cause::kActivations, static_cast<std::uint64_t>((padding - 1) * activations));
  return traffic;
}

}  // namespace

Estimate scaled(const Estimate& e, double factor) {
  return {e.value * factor,  e.low80 * factor, e.high80 * factor, e.low95 * factor,
          e.high95 * factor, e.dominated_by,   e.limit * factor, e.unmeasured, e.is_rate};
}

Estimate throughput(const Estimate& step, double tokens) {
  if (!(step.value > 0)) return {};
  return {tokens / step.value,  tokens / step.high80, tokens / step.low80,
          tokens / step.high95, tokens / step.low95,  step.dominated_by,
          step.limit > 0 ? tokens / step.limit : 0, step.unmeasured, true};
}

// Between two sizes that were measured, by the time a byte takes and the logarithm of the size: what a cache holds of a
// larger set falls little by little.
CostModel::Reading CostModel::reading(const StepTraffic& traffic, std::uint64_t batch, double fill,
                                      double kv_bytes) const {
  if (working_sets_.empty()) return {linear_bandwidth_, attention_bandwidth_};
  const double weights = attention_only(shape_) ? 0 : share_ * read_weights(traffic, batch, fill).bytes;
  const double mib = (weights + kv_bytes) / (1 << 20);
  const auto above = std::find_if(working_sets_.begin(), working_sets_.end(),
                                  [&](const WorkingSet& set) { return set.mib >= mib; });
  const WorkingSet& high = above == working_sets_.end() ? working_sets_.back() : *above;
  const WorkingSet& low = above == working_sets_.begin() || above == working_sets_.end() ? high : *(above - 1);
  const double share = high.mib > low.mib ? std::log(mib / low.mib) / std::log(high.mib / low.mib) : 0;
  const auto between = [&](double WorkingSet::* rate) {
    const double value = 1e9 / ((1 - share) / (low.*rate) + share / (high.*rate));
    return Rate{value, (1 - share) * low.spread + share * high.spread};
  };
  return {between(&WorkingSet::linear_gb_per_s), between(&WorkingSet::attention_gb_per_s)};
}

// The share of the activations that goes through memory: what operators hand on stays in half of the cache.
double CostModel::uncached(std::uint64_t tokens) const {
  const std::uint64_t q_alone = std::max(std::uint64_t{shape_.heads} * shape_.head_dim,
                                         std::uint64_t{shape_.other.heads} * shape_.other.head_dim);
  const std::uint64_t q = q_alone * (shape_.attention_gate || shape_.compressed ? 2 : 1);  // with its gate, or output
  const std::uint64_t state = state_rows(shape_.state, shape_.hidden).widest;
  const std::uint64_t elements = std::max({std::uint64_t{shape_.hidden}, widest_mlp(shape_), q, state});
  const double widest = 4.0 * static_cast<double>(tokens) * static_cast<double>(elements);
  return widest > 0 ? std::max(0.0, 1 - 0.5 * cache_bytes_ / widest) : 0;
}

// Traffic counts activations in fp32.
double CostModel::activation_seconds(const StepTraffic& traffic, std::uint64_t tokens) const {
  const auto bytes = static_cast<double>(traffic.bytes[Cause::kActivations]) * engine_.activation_bytes / 4;
  const double passes = engine_.activation_share > 0 ? 1 / engine_.activation_share : uncached(tokens);
  return (share_ + kReplicated * (1 - share_)) * bytes * passes / linear_bandwidth_.value;
}

// What the weights of a call take, and the parameters among them that are stored in the format: traffic counts all in
// one type.
CostModel::ReadWeights CostModel::read_weights(const StepTraffic& traffic, std::uint64_t tokens, double fill) const {
  const WeightFormat& format = deployment_.weights;
  const auto counted = static_cast<double>(traffic.bytes[Cause::kWeights]);
  const double elements = counted / static_cast<double>(size_of(types_.weights));
  // Of experts that groups of devices share, each group's devices read a part of those that the tokens of all chose.
  const auto read_of = [&](std::uint64_t choosing) {
    return std::round(expected_experts(shape_, choosing)) *
           (shape_.experts > 0 ? static_cast<double>(expert_parameters(shape_)) : 0);
  };
  const double counted_experts = read_of(tokens);
  const std::uint32_t groups = deployment_.data_parallel;
  const auto choosing = static_cast<std::uint64_t>(std::ceil(fill * static_cast<double>(tokens * groups)));
  const double experts = groups > 1 ? read_of(choosing) / groups : counted_experts;
  const auto head = static_cast<double>(head_parameters(shape_));
  const double layers = elements - counted_experts - head;
  const auto packed = [](double count, double bits) { return bits < 16 ? count : 0; };
  return {(layers * format.layer_bits + experts * format.expert_bits + head * format.head_bits) / 8,
          elements - counted_experts + experts,
          packed(experts, format.expert_bits) +
              (unpacks_experts_alone_ ? 0 : packed(layers, format.layer_bits) + packed(head, format.head_bits)),
          experts * format.expert_bits / 8};
}

// What layers of other heads, and MLPs of layers without rows of their own, have more than the others.
static double columns_of_wider_layers(const ModelShape& s) {
  const double theirs = double{1} * s.other.heads * s.other.v_head_dim, most = double{1} * s.heads * s.v_head_dim;
  const double of_heads = static_cast<double>(s.other.layers.size()) * (theirs - most);
  return s.sharing_ffn > 0 ? of_heads + double{1} * s.sharing_layers * (double{1} * s.sharing_ffn - s.ffn) : of_heads;
}

// Columns of the matrices that one device multiplies one after another: those that hold a part of the outputs have all
// columns, those whose outputs are summed over devices a part of them. Routed experts are one call of their own.
double CostModel::walked_columns() const {
  const bool latent_too = !(shape_.latent() && deployment_.weights.plain_latent);
  const double whole = shape_.hidden;
  const std::uint32_t v_dim = shape_.latent() ? shape_.latent_v_dim : shape_.v_head_dim;
  const double attention = latent_too ? whole + share_ * shape_.heads * v_dim : 0;
  const double wider = columns_of_wider_layers(shape_);
  const auto routed = static_cast<double>(shape_.expert_layers());
  const double shared = shape_.shared_expert_ffn > 0 ? whole + share_ * shape_.shared_expert_ffn : 0;
  const auto state_out = static_cast<double>(state_rows(shape_.state, shape_.hidden).out);
  const double states = shape_.state.layers * (whole + share_ * state_out);
  return shape_.layers * attention + states + (shape_.mlps() - routed) * (whole + share_ * shape_.ffn) +
         routed * shared + share_ * wider;
}

void CostModel::add_linears(Parts& parts, const StepTraffic& traffic, std::uint64_t tokens, Rate reading, Rate peak,
                            double fill) const {
  const double layers = shape_.depth();
  const MoreKernels more = more_kernels();
  const double calls = layers * engine_.linears_per_layer + more.products + 1;
  const Rate start{linear_start_.value + more.quantised / calls * quantise_fused_, linear_start_.spread};
  const ReadWeights read = read_weights(traffic, tokens, fill);
  const double unpacking = read.packed * unpack_seconds_;
  if (read.packed > 0) reading.value /= 1 + engine_.column_share * static_cast<double>(std::min(tokens, kColumns) - 1);
  if (unpacking * reading.value > read.bytes) reading = {read.bytes / unpacking, kUnpackSpread};
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, calls, start,
                     share_ * read.bytes, reading,
                     share_ * (traffic[KernelFamily::kLinear].value - (1 - fill) * expert_operations(tokens)), peak,
                     {share_ * read.elements * tile_.value, tile_.spread});
  parts.add(CostTerm::kLinear, Limit::kLaunches, more.expert_calls, start.spread);
  parts.add(CostTerm::kElementwise, Limit::kCompute, fill * expert_row_seconds(tokens), kActivationSpread);
  parts.add(CostTerm::kLinear, Limit::kLaunches, walk_.value > 0 ? walked_columns() * walk_.value : 0, walk_.spread);
  // Two norms are half of the element-wise kernels of a layer, beside a rotation and an activation.
  const double elementwise = engine_.norms_in_sums && deployment_.tensor_parallel > 1 ? 0.5 : 1;
  parts.add(CostTerm::kElementwise, Limit::kLaunches,
            layers * (elementwise * elementwise_start_.value + engine_.small_kernels * kernel_start_.value) +
                more.others * kernel_start_.value,
            elementwise_start_.spread);
}

double CostModel::launch_seconds(double each_us) const {
  const MoreKernels more = more_kernels();
  const double kernels = engine_.kernels_per_layer + (deployment_.devices_of_a_layer() > 1 ? 2 : 0) +
                         (more.products + more.others) / shape_.depth();
  return shape_.depth() * kernels * each_us * 1e-6;
}

// The device waits for the host where launching (without a graph) and what the host does for each sequence while the
// device computes take longer than computing, of the step and of the prompts that share its iteration. Without a graph
// it idles longer between kernels also where they do not. An engine whose graphs are of decode steps alone may take
// longer for a launch of a prompt, shaped anew each time.
void CostModel::add_host(Parts& parts, std::uint64_t batch, std::uint64_t sampled, bool replayed, double launch_us,
                         double beside) const {
  replayed = replayed && (deployment_.stages == 1 || engine_.graphs_over_stages);
  const double launches = launch_seconds(replayed ? 0 : launch_us);
  const double hidden = launches + engine_.hidden_request_us * 1e-6 * static_cast<double>(batch);
  const double idle = std::max(0.0, hidden - parts.total() - beside);
  const double gaps = launch_seconds(engine_.gap_us + (replayed ? 0 : engine_.launch_gap_us));
  const double telling = deployment_.devices_of_a_layer() > 1 ? engine_.shared_step_us : 0;
  const double logit_ns = engine_.logits_ns + (deployment_.top_p ? engine_.top_p_ns : 0);
  const double step = engine_.step_us + telling + engine_.request_us * static_cast<double>(batch) +
                      logit_ns * 1e-3 * shape_.vocab * static_cast<double>(sampled);
  const double host = idle + gaps + step * 1e-6;
  parts.add(CostTerm::kHost, Limit::kLaunches, host, kHostSpread);
}

// Query heads that share a storage head, as a mean of the rows that decode steps attend to.
static double mean_group(const ModelShape& shape, const ResidencySummary& residency) {
  const double most = static_cast<double>(shape.heads) / std::max(residency.storage_heads, 1U);
  const auto others = static_cast<double>(residency.decode.attended_other);
  if (!(others > 0)) return most;
  const auto all = static_cast<double>(residency.decode.attended);
  const double rows_of_head = static_cast<double>(shape.other.head_dim) / shape.head_dim;
  return most + others / all * (other_group(shape, residency.storage_heads) / rows_of_head - most);
}

CostModel::Parts CostModel::parts_of(const ResidencySummary& residency, const StepTraffic& traffic,
                                     std::uint64_t batch, double fill, StepTokens tokens, double beside) const {
  const auto bytes = [&](Cause c) { return static_cast<double>(traffic.bytes[c]); };
  const bool whole_model = !attention_only(shape_);
  const double layers = shape_.layers;
  const double group = mean_group(shape_, residency);
  const std::uint64_t passed = batch * tokens.passed;
  // One probability, f32, for each attended row and query head.
  const double probabilities = 4 * group * residency.attended_rows() * static_cast<double>(passed);
  const double held = kv_share(residency.storage_heads);
  const Reading read = reading(traffic, passed, fill, held * bytes(Cause::kKvRead));
  Parts parts;
  parts.together = together_;
  if (whole_model) {
    // A graph computes for as many sequences as it was captured for; attention reads the rows of those that are there.
    const std::uint64_t computed = engine_.padded(batch, tokens.passed);
    const StepTraffic padded = padded_by(static_cast<double>(computed) / static_cast<double>(passed), traffic);
    add_linears(parts, padded, passed, read.linear, linear_peak_, fill);
    parts.add(CostTerm::kElementwise, Limit::kCompute, activation_seconds(padded, computed),
              engine_.activation_share > 0 ? kActivationSpread : linear_bandwidth_.spread);
    add_links(parts, computed);
  }
  // Logits and probabilities are each written and read once when attention is not fused.
  const double unfused = engine_.fused_attention ? 0 : 4 * probabilities;
  const double heads_there = static_cast<double>(batch) * kv_share_ * std::max(shape_.kv_heads, 1U);
  // Where each query head reads by itself, the rows that a group shares pass once if the cache holds them for all of
  // it, and as often as it has heads if it holds none: the middle, and a width that holds both.
  double rows_read = held;
  Rate reading_rows = read.attention;
  if (engine_.reads_by_query_head && group > 1) {
    rows_read = 0.5 * (held + share_ * group);
    reading_rows.spread = std::max(reading_rows.spread, 0.8 * (group - 1) / (group + 1));
  }
  rows_read += held * engine_.cache_passes;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, layers, attention_start_,
                     rows_read * (bytes(Cause::kKvRead) - static_cast<double>(traffic.index_bytes)) +
                         held * bytes(Cause::kKvWrite) + share_ * unfused,
                     of_chosen_rows(reading_rows, engine_.chosen_share),
                     head_share() * traffic[KernelFamily::kAttention].value + operations_of(layers * heads_there),
                     of_chosen_rows(attention_peak_, engine_.chosen_share));
  add_wide_queries(parts, passed);
  add_index(parts, traffic, passed, false);
  add_states(parts, traffic, false);
  // Written by attention and read by the policy.
  const double observed = residency.needs_probabilities ? 2 * probabilities : 0;
  const double policy_bytes = held * (bytes(Cause::kScores) + bytes(Cause::kCompaction)) + share_ * observed;
  if (policy_bytes > 0 || traffic[KernelFamily::kPolicy].value > 0) {
    Rate start = kernel_start_, bandwidth = attention_bandwidth_, peak = policy_peak_;
    bandwidth.value *= engine_.policy_share;
    start.spread = bandwidth.spread = peak.spread = kPolicySpread;
    parts.add_roofline(CostTerm::kPolicy, Limit::kKv, layers * engine_.policy_kernels, start, policy_bytes, bandwidth,
                       share_ * traffic[KernelFamily::kPolicy].value, peak);
  }
  if (whole_model) add_host(parts, batch, passed, engine_.replays(batch, tokens.passed), engine_.launch_us, beside);
  parts.least =
      least_seconds(traffic, passed, fill, held * bytes(Cause::kKvRead), static_cast<double>(traffic.state_bytes));
  return parts;
}

double CostModel::earlier_bytes(const ResidencySummary& residency) const {
  if (residency.cached == 0) return 0;
  const auto all = static_cast<double>(kv_bytes(shape_, types_.kv, residency.cached).value);
  // Few queries choose fewer of them than there are.
  const double chosen = double{1} * residency.computed_tokens() * shape_.index.tokens;
  const double share = chosen > 0 ? std::min(1.0, chosen / residency.cached) : 1;
  return kv_share_ * share * all;
}

// Prompts are bound by arithmetic; short ones by the weights, which are read once for all of them, and by the rows of
// the tokens before them.
CostModel::Parts CostModel::prefill_parts(const ResidencySummary& residency, std::uint64_t batch, double beside,
                                          double fill) const {
  const std::uint64_t tokens = batch * residency.computed_tokens();
  const LayerCounts computed = residency.computed_prefill();
  const StepTraffic traffic =
      step_traffic(shape_, types_, prompt_work(batch, tokens, residency.storage_heads, batch * computed));
  const auto bytes = [&](Cause c) { return static_cast<double>(traffic.bytes[c]); };
  const double layers = shape_.layers;
  Parts parts;
  parts.together = together_;
  if (!attention_only(shape_)) {
    add_linears(parts, traffic, tokens, linear_bandwidth_, {prompt_share_ * linear_peak_.value, kPrefillSpread}, fill);
    parts.add(CostTerm::kElementwise, Limit::kCompute, activation_seconds(traffic, tokens), kPrefillSpread);
    add_links(parts, tokens);
  }
  const double attention_share = std::min(1.0, kPromptAttentionShare / matmul_fraction_);
  // A policy that looks at the probabilities of a prompt has q · k computed a second time.
  const double passes = residency.needs_probabilities ? 1.5 : 1;
  const double of_heads = heads_beside_latent();
  const bool chosen = chooses(computed);
  const double operations = (chosen ? head_share() : share_ * (engine_.expands_latent ? of_heads : 1)) *
                            traffic[KernelFamily::kAttention].value;
  // Logits and probabilities of 16 bits are each written and read once when attention is not fused.
  const double unfused = engine_.fused_attention ? 0
                                                 : 4.0 * 2 * layers * shape_.heads * static_cast<double>(tokens) *
                                                       static_cast<double>(residency.prompt);
  const double held = kv_share(residency.storage_heads);
  const double earlier = static_cast<double>(batch) * earlier_bytes(residency);
  Rate peak{attention_share * attention_peak_.value, kPrefillSpread};
  if (chosen) peak = of_chosen_rows(peak, engine_.chosen_prompt_share);
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, layers, attention_start_,
                     earlier + held * bytes(Cause::kKvWrite) + share_ * unfused, attention_bandwidth_,
                     passes * operations, peak);
  add_wide_queries(parts, tokens);
  if (chosen) add_index(parts, traffic, tokens, true);
  add_states(parts, traffic, true);
  // Scores are summed up on the chip while the queries of a prompt pass.
  const double compaction = held * bytes(Cause::kCompaction);
  if (const double scoring = share_ * traffic[KernelFamily::kPolicy].value; compaction > 0 || scoring > 0) {
    parts.add_roofline(CostTerm::kPolicy, Limit::kKv, layers * engine_.policy_kernels, kernel_start_, compaction,
                       {attention_bandwidth_.value, kPolicySpread}, scoring, {policy_peak_.value, kPolicySpread});
  }
  const bool replayed = engine_.graphs && engine_.prompt_launch_us == 0;
  const double launch_us = engine_.prompt_launch_us > 0 ? engine_.prompt_launch_us : engine_.launch_us;
  if (!attention_only(shape_)) add_host(parts, batch, batch, replayed, launch_us, beside);
  StepTraffic least = traffic;  // blocks of queries share the rows that they read, by the shorter of both ways
  Flops& attention = least.flops[static_cast<std::size_t>(KernelFamily::kAttention)];
  attention = Flops(std::min(1.0, of_heads) * attention.value);
  parts.least = least_seconds(least, tokens, fill, earlier, 0);
  if (draft_) {
    // The host launches what drafts while the device still computes, once it has launched the target's kernels.
    const double ahead = std::max(0.0, parts.total() - launch_seconds(replayed ? 0 : launch_us));
    parts.add_times(1, draft_->prefill_parts(draft_residency(residency), batch, ahead, fill));
  }
  return parts;
}

Estimate CostModel::estimate_of(const Parts& parts) {
  const double total = parts.total();
  const double board = square(kChipSpread * total);
  const double width_squared = board + parts.width_squared_of_all();
  const auto widest = std::max_element(parts.width_squared.begin(), parts.width_squared.end());
  const auto dominated_by =
      *widest > board ? static_cast<CostTerm>(widest - parts.width_squared.begin()) : CostTerm::kBoard;
  Estimate e = around(total, total > 0 ? std::sqrt(width_squared) / total : 0, dominated_by);
  e.limit = parts.least;
  const double policy = parts.width_squared[static_cast<std::size_t>(CostTerm::kPolicy)];
  if (width_squared > 0) e.unmeasured = policy / width_squared;
  return e;
}

Estimate CostModel::prefill(const ResidencySummary& residency, std::uint64_t batch, double beside) const {
  return prefill_of_groups(residency, of_a_group(batch), fill_of(batch), beside);
}

Estimate CostModel::prefill_of_groups(const ResidencySummary& residency, std::uint64_t own, double fill,
                                      double beside) const {
  return estimate_of(prefill_parts(residency, own, beside, fill));
}

Estimate CostModel::step(const ResidencySummary& residency, std::uint64_t batch, double beside) const {
  return step_of_groups(residency, of_a_group(batch), fill_of(batch), beside);
}

Estimate CostModel::step_of_groups(const ResidencySummary& residency, std::uint64_t own, double fill,
                                   double beside) const {
  const StepTraffic traffic = mean_decode_traffic(shape_, types_, residency, own, step_tokens());
  return estimate_of(step_parts(residency, traffic, own, fill, beside));
}

Prediction CostModel::predict(const ResidencySummary& residency, std::uint64_t batch) const {
  const std::uint64_t in_pass = in_a_pass(batch), passing = of_a_group(in_pass);
  const auto sequences = static_cast<double>(batch);
  Prediction p;
  p.batch = batch;
  p.fits = ledger(residency, batch).fits();
  p.traffic = mean_decode_traffic(shape_, types_, residency, passing, step_tokens());
  p.kv_resident = Bytes(
      static_cast<std::uint64_t>(std::llround(residency.resident_bytes(shape_, types_.kv) * sequences)));
  const Parts parts = step_parts(residency, p.traffic, passing, fill_of(in_pass), 0);
  for (std::size_t i = 0; i < kCostTerms; ++i) p.terms[i] = Seconds(parts.seconds[i]);
  p.step = estimate_of(parts);
  p.tokens_a_step = tokens_a_step();
  p.tokens_per_s = throughput(p.step, sequences * p.tokens_a_step);
  const auto largest = std::max_element(parts.limits.begin(), parts.limits.end());
  p.limited_by = p.fits ? static_cast<Limit>(largest - parts.limits.begin()) : Limit::kCapacity;
  return p;
}

}  // namespace kvroof
