#include "sim/replay/noisy_rows.hpp"

#include <algorithm>

#include "sim/attention/noisy_softmax.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDrawnRows = kInterleavedRows;  // of one task

// No draw is outside: of uniform numbers between 2⁻²⁴ and 1 − 2⁻²⁴, Gumbel's lie in −2.8 … 16.7, normal ones of the
// same mean and deviation in −6.3 … 7.4.
constexpr float kLeastDraw = -6.5F;
constexpr float kMostDraw = 17;

thread_local std::vector<float> drawn;  // with one draw a query: [rows, tokens]

}  // namespace

NoisyRows::NoisyRows(const NoisyScore& score, ThreadPool& pool)
    : score_(score), pool_(pool), draws_(draws_of(score.draw)) {}

void NoisyRows::start_layer(const PolicyContext& context, std::uint32_t query_heads, std::uint32_t tokens,
                            std::uint32_t max_rows) {
  context_ = context;
  heads_ = query_heads;
  tokens_ = tokens;
  interleaved_.start_layer(query_heads, tokens, max_rows);
  while (positions_.size() < tokens) positions_.emplace_back(static_cast<std::uint32_t>(positions_.size()));
  noise_.assign(std::size_t{heads_} * tokens_, 0.0F);
  if (score_.noise != NoiseMode::kPerToken) return;
  pool_.parallel_for(heads_, [&](std::size_t head) {
    draws_(noise_key(context_, static_cast<std::uint32_t>(head)), positions_,
           std::span(noise_).subspan(head * tokens_, tokens_));
  });
}

void NoisyRows::compute(const ExactRows& rows) {
  interleaved_.start_block(rows.first());
  const std::uint32_t chunks = (rows.count() + kDrawnRows - 1) / kDrawnRows;
  pool_.parallel_for(std::size_t{heads_} * chunks, [&](std::size_t task) {
    const std::uint32_t first = rows.first() + static_cast<std::uint32_t>(task % chunks) * kDrawnRows;
    const std::uint32_t last = std::min(first + kDrawnRows, rows.first() + rows.count());
    compute_head(rows, static_cast<std::uint32_t>(task / chunks), first, last);
  });
}

void NoisyRows::compute_head(const ExactRows& rows, std::uint32_t head, std::uint32_t first, std::uint32_t last) {
  drawn.resize(score_.noise == NoiseMode::kPerQuery ? std::size_t{kDrawnRows} * tokens_ : 0);
  NoisyLogits noisy;
  noisy.logits.first = first;
  noisy.logits.last = last;
  noisy.least = kLeastDraw;
  noisy.most = kMostDraw;
  for (std::uint32_t r = 0; r < kDrawnRows; ++r) {
    const std::uint32_t position = std::min(first + r, last - 1);
    const StepId step(position + 1 - context_.prompt);
    noisy.logits.rows[r] = rows.logits(position, head);
    noisy.logits.first_visible[r] = rows.first_visible(position);
    noisy.factors[r] = 1 / score_.temperature.at(step, context_.requested_new_tokens);
    noisy.noise[r] = drawn.empty() ? noise_.data() + std::size_t{head} * tokens_
                                   : draw_for(head, position, drawn.data() + std::size_t{position - first} * tokens_);
  }
  const auto made = interleaved_exponentials(noisy, interleaved_.values(first, head));
  for (std::uint32_t position = first; position < last; ++position) {
    interleaved_.set_made(position, head, made[position - first]);
  }
}

const float* NoisyRows::draw_for(std::uint32_t head, std::uint32_t position, float* out) const {
  NoiseKey key = noise_key(context_, head);
  key.query_position = position;
  draws_(key, std::span(positions_).first(std::size_t{position} + 1), {out, std::size_t{position} + 1});
  return out;
}

void NoisyKinds::add(const PolicyTraits& traits) {
  if (!traits.noisy_rows || of(traits) != nullptr || shared_.size() == kMost) return;
  const auto earlier = std::ranges::find(once_, *traits.noisy_rows);
  if (earlier == once_.end()) {
    once_.push_back(*traits.noisy_rows);
    return;
  }
  shared_.push_back(std::make_unique<NoisyRows>(*traits.noisy_rows, pool_));
}

void NoisyKinds::start_layer(const PolicyContext& context, const TraceLayer& layer, std::uint32_t tokens,
                             std::uint32_t max_rows) {
  for (const auto& rows : shared_) rows->start_layer(context, layer.query_heads, tokens, max_rows);
}

void NoisyKinds::compute(const ExactRows& rows) {
  for (const auto& noisy : shared_) noisy->compute(rows);
}

const NoisyRows* NoisyKinds::of(const PolicyTraits& traits) const {
  if (!traits.noisy_rows) return nullptr;
  const auto found =
      std::ranges::find_if(shared_, [&](const auto& rows) { return rows->score() == *traits.noisy_rows; });
  return found == shared_.end() ? nullptr : found->get();
}

}  // namespace kvroof
