#include "sim/replay/point_layer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/policy/slot_positions.hpp"

namespace kvroof {
namespace {

// Memory of one thread: heads of a point may be served at once.
struct SlotRows {
  std::vector<float> logits, weights, factors;
};
thread_local SlotRows slot_rows;

}  // namespace

ResidentRows& PointLayer::resident_rows() {
  thread_local ResidentRows rows;
  return rows;
}

ResidentRows& PointLayer::noisy_resident_rows() {
  thread_local ResidentRows rows;
  return rows;
}

PointLayer::PointLayer(const PolicySpec& spec, const PolicyContext& context, const LayerTensors& tensors,
                       MeasureOptions measure, PointScratch& scratch)
    : layer_(*tensors.layer),
      prompt_(context.prompt),
      measure_(measure),
      scratch_(scratch),
      policy_(spec, context, layer_.query_heads, layer_.kv_heads),
      own_(policy_.traits().merges ? std::make_unique<OwnRows>(tensors, policy_.storage_heads()) : nullptr),
      tensors_(own_ ? own_->tensors() : tensors, policy_.storage_heads()),
      counts_ages_(spec.kv && spec.kv->by_age()),
      last_read_(policy_.traits().selects ? layer_.query_heads : 0) {
  scratch_.outputs.resize(kept_heads());
  scratch_.output_masses.resize(std::size_t{AttendedOutput::kMostRows} * layer_.query_heads);
}

PointNeeds PointLayer::needs() const {
  const PolicyTraits& t = traits();
  std::uint32_t first = 0;
  while (first < prompt_ && !reads_prompt_row(TokenPos(first))) ++first;
  const bool while_decoding = policy_.observes(TokenPos(prompt_));
  return {first, first < prompt_ && t.needs_weights, while_decoding || t.selects || measure_.recall,
          (while_decoding && t.needs_weights) || measure_.recall, t.tensors.queries};
}

void PointLayer::follow(RecordedEvictions* recorded) {
  policy_.set_review([this, recorded](HeadId head, std::span<const TokenPos> positions, std::vector<SlotId>& victims) {
    const auto gap = [this, head](SlotId a, SlotId b) { return policy_.score_gap(head, a, b); };
    recorded->review(policy_.step_of(position_), head, positions, gap, victims);
  });
}

void PointLayer::observe_prompt(const ExactRows& rows, std::uint32_t first, std::uint32_t count, HeadId head) {
  const std::uint32_t group = policy_.group();
  for (std::uint32_t position = first; position < first + count; ++position) {
    policy_.admit(head, TokenPos(position));
    if (!policy_.observes(TokenPos(position))) continue;
    AttentionRows view{StepId(0), TokenPos(position), policy_.positions(head), group};
    fill_rows(rows, head, view);
    policy_.observe(head, view);
  }
}

void PointLayer::finish_prompt(ResidencyLog& log, std::uint32_t layer) {
  finish_row(prompt_ - 1, nullptr);
  log.append(layer, take_counts());
}

// A policy that streams the prompt and selects is asked what each of its rows reads.
bool PointLayer::reads_prompt_row(TokenPos position) const {
  return policy_.observes(position) || (traits().selects && traits().streams_prompt);
}

void PointLayer::stream_prompt(const ExactRows& rows, std::uint32_t first, std::uint32_t count, ResidencyLog& log,
                               std::uint32_t layer) {
  for (std::uint32_t position = first; position < first + count; ++position) {
    if (reads_prompt_row(TokenPos(position))) {
      step_row(rows, position, nullptr);
    } else {
      step_blind(position);
    }
    if (position + 1 == prompt_) log.append(layer, take_counts());
  }
}

void PointLayer::start_block(const ExactRows* rows, std::uint32_t first, std::uint32_t count, BlockRecord& record) {
  block_ = {rows, first, count, &record};
  decoding_ = true;
  by_head_ = rows != nullptr && policy_.ends_heads() && !own_ && cache_ == nullptr && !counts_ages_;
  std::ranges::fill(sized(scratch_.counts, count), LayerCounts{});
}

void PointLayer::decode(std::uint32_t part) {
  resident_rows().start();
  noisy_resident_rows().start();
  if (by_head_) return decode_head(HeadId(part));
  for (std::uint32_t row = 0; row < block_.count; ++row) {
    if (block_.rows != nullptr) {
      step_row(*block_.rows, block_.first + row, quality_of(row));
    } else {
      step_blind(block_.first + row);
    }
    scratch_.counts[row] = take_counts();
    for (std::uint32_t head = 0; head < kept_heads(); ++head) record_kept(row, head);
  }
  for (std::uint32_t head = 0; head < kept_heads(); ++head) measure_waiting(head);
}

// All rows of one head, so that what it holds stays in the first cache.
void PointLayer::decode_head(HeadId head) {
  thread_local std::vector<LayerCounts> memory;
  const std::span<LayerCounts> counts = sized(memory, block_.count);
  const bool observes = policy_.observes(TokenPos(block_.first));
  for (std::uint32_t row = 0; row < block_.count; ++row) {
    const std::uint32_t position = block_.first + row;
    step_head(*block_.rows, position, head, observes, quality_of(row));
    policy_.finish_head(head, TokenPos(position));
    counts[row] = policy_.take_head_counts(head);
    record_kept(row, head.value);
  }
  measure_waiting(head.value);
  // Whole numbers all, so that their sums do not depend on which head comes first.
  const std::lock_guard lock(counts_mutex_);
  for (std::uint32_t row = 0; row < block_.count; ++row) scratch_.counts[row] += counts[row];
}

void PointLayer::measure_waiting(std::uint32_t kept_head) {
  if (block_.rows == nullptr || !measure_.recall || !measure_.output_error) return;
  const std::uint32_t group = layer_.query_heads / kept_heads();
  measure_outputs(*block_.rows, kept_head * group, group);
}

void PointLayer::end_block(ResidencyLog& log, std::uint32_t layer) {
  for (LayerCounts& counts : std::span(scratch_.counts).first(block_.count)) {
    if (by_head_) policy_.count_allocated(counts);
    log.append(layer, counts);
  }
}

void PointLayer::record_kept(std::uint32_t row, std::uint32_t head) const {
  if (block_.record->wants_kept[row]) kept(head, block_.record->kept[std::size_t{row} * kept_heads() + head]);
}

void PointLayer::step_blind(std::uint32_t position) {
  for (std::uint32_t h = 0; h < storage_heads(); ++h) policy_.admit(HeadId(h), TokenPos(position));
  count_attended(position);
  finish_row(position, nullptr);
}

// Before the row ends, since what it evicts was read.
void PointLayer::count_attended(std::uint32_t position) {
  if (!counts_ages_) return;
  if (traits().selects) {
    // A row is read once for the query heads of a group.
    thread_local std::vector<TokenPos> once;
    once.clear();
    for (std::uint32_t h = 0; h < layer_.query_heads; ++h) {
      once.insert(once.end(), last_read_[h].begin(), last_read_[h].end());
      if ((h + 1) % policy_.group() != 0) continue;
      std::ranges::sort(once);
      const auto repeated = std::ranges::unique(once);
      once.erase(repeated.begin(), repeated.end());
      aged_.attended_aged += aged_rows({once, position});
      once.clear();
    }
    return;
  }
  for (std::uint32_t h = 0; h < storage_heads(); ++h) {
    aged_.attended_aged += aged_rows({policy_.positions(HeadId(h)), position});
  }
}

void PointLayer::count_aged(std::uint32_t position) {
  const bool whole_prompt = !meets_aged(position);
  aged_.resident_aged = {};
  for (std::uint32_t h = 0; h < storage_heads(); ++h) {
    const AgedRowsOf held{policy_.positions(HeadId(h)), std::uint64_t{position} + 1};
    const AgedRows rows = aged_rows(held);
    aged_.resident_aged += rows;
    if (!whole_prompt) {
      aged_.converted += aged_by_last(held);
      continue;
    }
    aged_.converted += {held.positions.size() - rows.keys16, rows.packed_values, rows.packed_keys, rows.packed_values};
    // What stays in the window is copied out of the prompt's buffer.
    if (policy_.packed_prompt()) aged_.converted += {2 * rows.keys16, 2 * rows.values16, 0, 0};
  }
}

LayerCounts PointLayer::take_counts() {
  LayerCounts counts = policy_.take_counts();
  counts.attended_aged = std::exchange(aged_.attended_aged, {});
  counts.resident_aged = aged_.resident_aged;
  counts.converted = std::exchange(aged_.converted, {});
  return counts;
}

void PointLayer::step_row(const ExactRows& rows, std::uint32_t position, HeadQuality* quality) {
  const bool observes = policy_.observes(TokenPos(position));
  for (std::uint32_t h = 0; h < storage_heads(); ++h) step_head(rows, position, HeadId(h), observes, quality);
  count_attended(position);
  finish_row(position, &rows);
}

void PointLayer::step_head(const ExactRows& rows, std::uint32_t position, HeadId head, bool observes,
                           HeadQuality* quality) {
  const std::uint32_t group = policy_.group();
  const SlotId admitted = policy_.admit(head, TokenPos(position));
  const std::uint32_t first_query_head = head.value * group;
  const StepId step = policy_.step_of(TokenPos(position));
  const std::span<const TokenPos> positions = policy_.positions(head);
  AttentionRows view{step, TokenPos(position), positions, group};
  const bool weighs = (observes && traits().needs_weights) || quality != nullptr;
  if (decoding_ && !traits().selects && cache_ == nullptr) {
    const std::span<const SlotMove> moves = policy_.eviction(head).moves;
    const HeldSlots held{head.value, place_of(head), group, positions, admitted, moves};
    if (weighs) resident_rows().show(rows.interleaved(), position, held);
    if (observes && noisy_ != nullptr) noisy_resident_rows().show(noisy_->interleaved(), position, held);
  }
  if (observes || (traits().selects && traits().page == 0)) fill_rows(rows, head, view);
  if (traits().page > 0) view.queries = rows.query(position, first_query_head).data();
  if (traits().selects) {
    for (std::uint32_t g = 0; g < group; ++g) {
      select_row(head, g, view, first_query_head + g);
      if (quality != nullptr)
        measure(rows, position, last_read_[first_query_head + g], first_query_head + g, 1, quality);
    }
  } else if (quality != nullptr) {
    measure(rows, position, view.positions, first_query_head, group, quality);
  }
  if (observes) policy_.observe(head, view);
}

void PointLayer::finish_row(std::uint32_t position, const ExactRows* rows) {
  position_ = TokenPos(position);
  policy_.finish_row(position_, &tensors_);
  if (counts_ages_) count_aged(position);
  if (!own_) return;
  for (std::uint32_t h = 0; h < storage_heads(); ++h) {
    const std::vector<RowMerge>& merges = policy_.eviction(HeadId(h)).merges;
    if (merges.empty()) continue;
    // Outputs that wait are of the values before.
    if (rows != nullptr && position >= prompt_ && measure_.recall && measure_.output_error)
      measure_outputs(*rows, h * policy_.group(), policy_.group());
    own_->merge(HeadId(h), merges);
  }
}

void PointLayer::fill_rows(const ExactRows& rows, HeadId head, AttentionRows& view) const {
  const std::size_t slots = view.slots();
  const std::uint32_t position = view.query.value;
  if (cache_ == nullptr && slots == std::size_t{position} + 1) return fill_whole_rows(rows, head, view);
  const PolicyTraits& t = traits();
  // By resident_rows(), unless a token has other logits than in the exact attention.
  const bool gathered = decoding_ && !t.selects && !own_ && cache_ == nullptr && !policy_.relocates(view.query);
  if (gathered && t.scales_weights && fill_unscaled(rows.interleaved(), resident_rows(), head, view)) return;
  if (gathered && noisy_ != nullptr && fill_unscaled(noisy_->interleaved(), noisy_resident_rows(), head, view)) return;
  const std::span<float> logits = sized(slot_rows.logits, slots * view.group);
  const std::span<float> weights = sized(slot_rows.weights, t.needs_weights ? slots * view.group : 0);
  for (std::uint32_t g = 0; g < view.group; ++g) {
    const std::uint32_t query_head = head.value * view.group + g;
    const std::span<float> of_head = logits.subspan(g * slots, slots);
    const bool shares = gathered && rows.interleaved().shares(position, query_head);
    if (t.reads_logits || !shares) {
      logits_of(rows, view.query, view.positions, query_head, of_head);
    }
    if (!t.needs_weights) continue;
    if (shares) {
      weights_of_exponentials(resident_row(head, g), weights.subspan(g * slots, slots),
                              rows.interleaved().sink(position, query_head));
    } else {
      softmax(of_head, weights.subspan(g * slots, slots), layer_.sink(query_head));
    }
  }
  view.logits = t.reads_logits ? logits.data() : nullptr;
  view.weights = t.needs_weights ? weights.data() : nullptr;
}

// What was gathered as it is; false where the weights are to be made of logits, or are all equal.
bool PointLayer::fill_unscaled(const InterleavedRows& rows, const ResidentRows& resident, HeadId head,
                               AttentionRows& view) const {
  const std::span<float> factors = sized(slot_rows.factors, view.group);
  for (std::uint32_t g = 0; g < view.group; ++g) {
    const std::uint32_t query_head = head.value * view.group + g;
    if (!rows.shares(view.query.value, query_head)) return false;
    const std::optional<float> factor =
        weight_factor(resident.row(place_of(head), g), rows.sink(view.query.value, query_head));
    if (!factor) return false;
    factors[g] = *factor;
  }
  view.unscaled = {resident.row(place_of(head), 0).data(), resident.row_stride(place_of(head)), factors.data()};
  return true;
}

// Nothing ever left: slot s holds token s.
void PointLayer::fill_whole_rows(const ExactRows& rows, HeadId head, AttentionRows& view) const {
  const std::size_t slots = view.slots();
  const std::uint32_t position = view.query.value;
  const std::uint32_t first_query_head = head.value * view.group;
  view.logits = rows.logits(position, first_query_head);
  if (!traits().needs_weights) return;
  if (!decoding_) {
    view.weights = rows.weights(position, first_query_head);
    return;
  }
  const std::span<float> weights = sized(slot_rows.weights, slots * view.group);
  for (std::uint32_t g = 0; g < view.group; ++g) {
    softmax({rows.logits(position, first_query_head + g), slots}, weights.subspan(g * slots, slots),
            layer_.sink(first_query_head + g));
  }
  view.weights = weights.data();
}

void PointLayer::logits_of(const ExactRows& rows, TokenPos query, std::span<const TokenPos> attended,
                           std::uint32_t query_head, std::span<float> logits) const {
  if (cache_ != nullptr) return cache_->logits(query.value, query_head, attended, meets_aged(query.value), logits);
  gather({rows.logits(query.value, query_head), std::size_t{query.value} + 1}, attended, logits);
  if (own_) merged_logits_of(rows, query, attended, query_head, logits);
  if (!policy_.relocates(query)) return;
  relocate_logits({policy_.rotation(), attended, query, rows.query(query.value, query_head), rows.keys_of(query_head),
                   true, {layer_.scale, layer_.softcap},
                   layer_.alibi(query_head)},
                  logits);
}

void PointLayer::merged_logits_of(const ExactRows& rows, TokenPos query, std::span<const TokenPos> attended,
                                  std::uint32_t query_head, std::span<float> logits) const {
  const HeadId head(query_head / policy_.group());
  const RowsView keys = own_->keys(head);
  for (std::size_t s = 0; s < attended.size(); ++s) {
    if (!own_->merged(head, attended[s])) continue;
    const std::span<float> logit = logits.subspan(s, 1);
    compute_logits(rows.query(query.value, query_head), keys.slice(attended[s].value, 1),
                   {layer_.scale, layer_.softcap}, logit);
    if (!layer_.alibi_slopes.empty())
      add_alibi(attended.subspan(s, 1), query, layer_.alibi(query_head), logit);
  }
}

void PointLayer::select_row(HeadId head, std::uint32_t g, const AttentionRows& view, std::uint32_t query_head) {
  scratch_.read.clear();
  policy_.select(head, g, view, scratch_.read, &tensors_);
  std::vector<TokenPos>& read = last_read_[query_head];
  read.clear();
  for (const SlotId slot : scratch_.read) read.push_back(view.positions[slot.value]);
}

void PointLayer::kept(std::uint32_t head, std::vector<TokenPos>& positions) const {
  if (traits().selects) {
    positions = last_read_[head];
  } else {
    const std::span<const TokenPos> held = policy_.positions(HeadId(head));
    positions.assign(held.begin(), held.end());
  }
  std::sort(positions.begin(), positions.end());
}

}  // namespace kvroof
