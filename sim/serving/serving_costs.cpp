#include "sim/serving/serving_costs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace kvroof {
namespace {

constexpr int kSingleBits = 8;  // the first 256 decode steps are kept one by one
constexpr std::uint64_t kShortestPart = 16;  // tokens, a page of most paged caches

// Steps that share a mean have numbers, from 0, that differ in so many of their last bits: at most 1 % of the number.
int shared_bits(std::size_t step) { return std::max(static_cast<int>(std::bit_width(step)) - kSingleBits, 0); }

// Where a profile has the counts of a sequence that has made so many tokens.
std::size_t place_of(const LengthProfile& profile, std::uint32_t generated) {
  const std::size_t step = std::max(generated, 1U) - 1;
  // Each further bit has as many means as the upper half of the single steps.
  const int bits = shared_bits(step);
  const std::size_t i = (step >> bits) + (static_cast<std::size_t>(bits) << (kSingleBits - 1));
  return std::min(i, profile.steps.size() - 1);
}

// Of the target; what drafts holds a row for each token, whatever the policy keeps.
double cache_of(const MemoryLedger& ledger) {
  return static_cast<double>((ledger.kv_allocated + ledger.policy_state).value);
}

}  // namespace

LengthProfile length_profile(ResidencySummary mean, std::span<const LayerCounts> steps) {
  LengthProfile profile{std::move(mean), {}};
  for (std::size_t first = 0; first < steps.size();) {
    const std::size_t count = std::min(std::size_t{1} << shared_bits(first), steps.size() - first);
    profile.steps.push_back(sum_counts(steps.subspan(first, count)) / count);
    first += count;
  }
  return profile;
}

std::vector<std::uint32_t> profiled_lengths(std::vector<std::uint32_t> prompts, double ratio, std::size_t most) {
  std::sort(prompts.begin(), prompts.end());
  const std::uint32_t longest = prompts.back();
  std::vector<std::uint32_t> lengths;
  for (;; ratio = std::pow(ratio, 1.5)) {
    lengths.clear();
    for (const std::uint32_t prompt : prompts) {
      if (lengths.empty() || prompt > ratio * lengths.back()) lengths.push_back(prompt);
    }
    if (lengths.back() < longest) lengths.push_back(longest);
    if (lengths.size() <= std::max<std::size_t>(most, 2)) break;
  }
  for (std::uint64_t part = kShortestPart; part < longest; part *= 2) {
    const auto tokens = static_cast<double>(part);
    const bool near = std::any_of(lengths.begin(), lengths.end(), [&](std::uint32_t length) {
      return length <= ratio * tokens && tokens <= ratio * length;
    });
    if (!near) lengths.push_back(static_cast<std::uint32_t>(part));
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

DeploymentCosts::DeploymentCosts(const CostModel& cost, std::span<const LengthProfile> profiles, TimeReading reading)
    : cost_(cost), profiles_(profiles), reading_(std::move(reading)), step_caches_(profiles.size()) {
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    lengths_.push_back(profiles[i].mean.prompt);
    full_cache_.push_back(cache_of(cost.memory().ledger(profiles[i].mean, 1)));
    for (const LayerCounts& counts : profiles[i].steps) {
      const std::uint64_t rows = cost.engine().paged_cache ? counts.allocated_paged : counts.allocated;
      step_caches_[i].push_back(part_of_cache(i, cost.memory().rows_in_state_pages(profiles[i].mean, rows)));
    }
  }
  states_ = static_cast<double>(cost.memory().ledger(profiles.front().mean, 1).states.value);
  // What is not cache is taken at the largest batch of the longest prompt.
  const ResidencySummary& longest = profiles.back().mean;
  const std::uint64_t largest = std::max<std::uint64_t>(cost.memory().largest_batch(longest), 1);
  const MemoryLedger ledger = cost.memory().ledger(longest, largest);
  capacity_ = static_cast<double>(ledger.capacity.value) - static_cast<double>(ledger.total().value) +
              cache_of(ledger) + static_cast<double>((ledger.draft_cache + ledger.states).value);
}

std::size_t DeploymentCosts::profile_of(std::uint32_t prompt) const {
  const auto i = static_cast<std::size_t>(std::ranges::lower_bound(lengths_, prompt) - lengths_.begin());
  if (i == lengths_.size()) return i - 1;
  if (i == 0 || lengths_[i] - prompt < prompt - lengths_[i - 1]) return i;
  return i - 1;
}

// Of what a sequence of profile i takes when it is longest, what it takes with so many rows.
double DeploymentCosts::part_of_cache(std::size_t i, std::uint64_t rows) const {
  const ResidencySummary& mean = profiles_[i].mean;
  const std::uint64_t peak = cost_.engine().paged_cache ? mean.peak_paged_rows : mean.peak_rows;
  const auto most = static_cast<double>(cost_.memory().rows_in_state_pages(mean, peak));
  return full_cache_[i] * (most > 0 ? std::min(static_cast<double>(rows) / most, 1.0) : 1.0);
}

double DeploymentCosts::cache_bytes(const Decoding& sequence) const {
  const std::size_t i = profile_of(sequence.prompt);
  const auto& speculation = cost_.deployment().speculation;
  const double tokens = double{1} * sequence.prompt + sequence.generated + (speculation ? speculation->tokens : 0);
  const double drafts = cost_.memory().draft_cache_bytes(tokens);
  return step_caches_[i][place_of(profiles_[i], sequence.generated)] + drafts + states_;
}

double DeploymentCosts::moved_bytes(std::uint32_t prompt) const {
  const std::size_t i = profile_of(prompt);
  const MemoryModel& memory = cost_.memory();
  return part_of_cache(i, profiles_[i].mean.prefill.resident) + memory.draft_cache_bytes(prompt) + memory.held_states();
}

// The mean of the sequences: the cost model multiplies it by their number.
ResidencySummary DeploymentCosts::summary_of(std::span<const Decoding> sequences) const {
  ResidencySummary mean = profiles_[profile_of(sequences.front().prompt)].mean;
  mean.decode = {};
  double tokens = 0;
  for (const Decoding& sequence : sequences) {
    tokens += double{1} * sequence.prompt + sequence.generated;
    const LengthProfile& profile = profiles_[profile_of(sequence.prompt)];
    mean.decode += profile.steps[place_of(profile, sequence.generated)];
  }
  mean.decode_steps = sequences.size();
  mean.context = tokens / static_cast<double>(sequences.size());
  return mean;
}

// Counts of the first `tokens` tokens of a prompt: a token's lie between those of the profiles around it, as those of
// causal attention, (tokens + 1) / 2 rows, do.
LayerCounts DeploymentCosts::prompt_counts(std::uint32_t tokens) const {
  const auto above = std::lower_bound(profiles_.begin(), profiles_.end(), tokens,
                                      [](const LengthProfile& p, std::uint32_t x) { return p.mean.prompt < x; });
  const ResidencySummary& longer = above == profiles_.end() ? profiles_.back().mean : above->mean;
  const ResidencySummary& shorter = above == profiles_.begin() ? longer : std::prev(above)->mean;
  const double between = double{1} * longer.prompt - shorter.prompt;
  const double share = between > 0 ? (double{1} * tokens - shorter.prompt) / between : 1;
  LayerCounts counts;
  for_each_count(
      [&](std::uint64_t& count, std::uint64_t less, std::uint64_t more) {
        const double of_token = (1 - share) * static_cast<double>(less) / shorter.prompt +
                                share * static_cast<double>(more) / longer.prompt;
        count = static_cast<std::uint64_t>(std::llround(std::max(0.0, of_token * tokens)));
      },
      counts, shorter.prefill, longer.prefill);
  counts.policy_flops = (1 - share) * tokens / shorter.prompt * shorter.prefill.policy_flops +
                        share * tokens / longer.prompt * longer.prefill.policy_flops;
  return counts;
}

// The mean of the parts, likewise.
ResidencySummary DeploymentCosts::summary_of(std::span<const PromptPart> prompts) const {
  std::uint32_t longest = 0;
  std::uint64_t ends = 0, computed = 0;
  LayerCounts whole, before;
  for (const PromptPart& part : prompts) {
    longest = std::max(longest, part.to);
    ends += part.to;
    computed += part.to - part.from;
    whole += prompt_counts(part.to);
    if (part.from > 0) before += prompt_counts(part.from);
  }
  const auto rounded_up = [&](std::uint64_t sum) {
    return static_cast<std::uint32_t>((sum + prompts.size() - 1) / prompts.size());
  };
  ResidencySummary mean = profiles_[profile_of(longest)].mean;
  mean.prompt = rounded_up(ends);
  mean.prefill = nearest_mean(whole, prompts.size());
  mean.cached = mean.prompt - rounded_up(computed);
  mean.cached_prefill = nearest_mean(before, prompts.size());
  return mean;
}

// Answers and parts of prompts pass together. What prompts add to a step is read as prompts are.
double DeploymentCosts::step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                     GroupFill fill) const {
  const Pass answers{sequences.size(), fill.answers}, parts{prompts.size(), fill.prompts};
  if (sequences.empty()) return reading_.prompt(cost_.prefill(summary_of(prompts), parts));
  const ResidencySummary mean = summary_of(sequences);
  const Estimate alone = cost_.step(mean, answers);
  if (prompts.empty()) return reading_.step(alone);
  const Estimate mixed = cost_.mixed(mean, answers, summary_of(prompts), parts);
  const double added = std::max(0.0, mixed.value - alone.value);
  return reading_.step(alone) + reading_.prompt(scaled(mixed, added / mixed.value));
}

}  // namespace kvroof
