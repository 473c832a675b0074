// Layers that hold a state in place of a cache: what their kernels take, and what sequences hold in them.
#include <algorithm>
#include <cmath>

#include "sim/cost/cost_parts.hpp"

namespace kvroof {
namespace {

// Of the rate at which attention reads rows, what kernels that read a state and write it reach. vLLM's update of gated
// delta nets reads and writes 2.55 TB/s on H200 and 3.4 to 3.6 on B200, 0.61 and 0.50 to 0.53 of that rate, with
// states of 16 bits (vllm-project/vllm #31722); one of Mamba-2 in 32 bits was seen at 4.6 TB/s on a B200.
constexpr double kStateShare = 0.60;
constexpr double kStateSpread = 0.25;
// Of the peak, what the chunked kernels of prompts reach, operations counted as in a step: 0.05 of that of attention by
// flash-linear-attention and 0.07 to 0.2 by FlashInfer on H100, half of that on B200 (flashinfer-ai/flashinfer #3866,
// vllm-project/vllm #43273).
constexpr double kPromptShare = 0.05;
constexpr double kPromptSpread = 0.60;

}  // namespace

CostModel::Rate CostModel::state_bandwidth() const {
  return {kStateShare * attention_bandwidth_.value, std::max(kStateSpread, attention_bandwidth_.spread)};
}

// A decode step reads each sequence's state and writes it; of a prompt the arithmetic is most. The update is one
// kernel; the convolution before it is counted with the other launches.
void CostModel::add_states(Parts& parts, const StepTraffic& traffic, bool prompts) const {
  if (shape_.state.layers == 0) return;
  const Rate peak = prompts ? Rate{kPromptShare * attention_peak_.value, kPromptSpread} : attention_peak_;
  parts.add_roofline(CostTerm::kAttention, Limit::kStates, shape_.state.layers, kernel_start_,
                     share_ * static_cast<double>(traffic.state_bytes), state_bandwidth(),
                     share_ * traffic.state_flops.value, peak);
}

Estimate CostModel::state_call(Bytes states) const {
  Parts parts;
  const double bytes = 2 * static_cast<double>(states.value);  // read and written
  parts.add_roofline(CostTerm::kAttention, Limit::kStates, 1, kernel_start_, bytes, state_bandwidth(), 0,
                     attention_peak_);
  parts.least = least_of_call(bytes);
  return estimate_of(parts);
}

double CostModel::held_states() const {
  const double of_draft = draft_ ? draft_->held_states() : 0;
  const double layers = shape_.state.layers;
  if (!(layers > 0)) return of_draft + held_compressors();
  const double of_stage = std::ceil(layers / deployment_.stages) / layers;
  return of_draft + share_ * of_stage * static_cast<double>(state_bytes(shape_, types_.weights).value);
}

// As vLLM has it since it caches hybrids (vllm-project/vllm #24280): a page of attention holds the rows of as many
// tokens as the state of one layer has bytes on a device, in steps of 16; a group of layers, as many as there are of
// the rarer kind, takes its pages together, so that the last group of the other kind may have some for nothing.
std::optional<CostModel::StatePages> CostModel::state_pages() const {
  if (!engine_.state_pages || shape_.state.layers == 0 || types_.kv.by_age()) return std::nullopt;
  constexpr std::uint64_t kStep = 16;
  const double token = kv_share_ * static_cast<double>(shape_.kv_heads * row_bytes(shape_, types_.kv));
  const double state = share_ * static_cast<double>(state_bytes(shape_.state, shape_.hidden, types_.weights));
  const std::uint64_t tokens = kStep * static_cast<std::uint64_t>(std::ceil(state / (kStep * token) - 1e-9));
  const std::uint64_t group = std::min(shape_.layers, shape_.state.layers);
  return StatePages{tokens, static_cast<double>(tokens) * token, (shape_.state.layers + group - 1) / group * group};
}

std::uint64_t CostModel::rows_in_state_pages(const ResidencySummary& residency, std::uint64_t rows) const {
  const auto pages = state_pages();
  if (!pages) return rows;
  const std::uint64_t heads = std::uint64_t{residency.layers} * residency.storage_heads;  // alike in hybrids' layers
  const std::uint64_t of_page = pages->tokens * heads;
  return (rows + of_page - 1) / of_page * of_page;
}

double CostModel::allocated_states() const {
  const auto pages = state_pages();
  if (!pages) return held_states();
  const double of_draft = draft_ ? draft_->allocated_states() : 0;
  const double of_stage = std::ceil(static_cast<double>(pages->states) / deployment_.stages);
  return of_draft + of_stage * pages->bytes;
}

double CostModel::state_products() const {
  double products = 0;
  each_state_product(shape_.state, shape_.hidden, [&](std::uint64_t, std::uint64_t) { ++products; });
  return shape_.state.beside_attention ? products : std::max(0.0, products - 2);
}

}  // namespace kvroof
