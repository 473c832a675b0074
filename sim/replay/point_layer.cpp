#include "sim/replay/point_layer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/policy/slot_positions.hpp"

namespace kvroof {
namespace {

// Below this share of the exact attention the renormalised weights are computed from the logits again: they may have
// become zero. So they are where the logits are not those of the exact attention.
constexpr double kTinyMass = 1e-25;

// Memory of one thread: heads of a point may be served at once.
struct SlotRows {
  std::vector<float> logits, weights;
};
thread_local SlotRows slot_rows;
thread_local ResidentRows resident_rows;

template <class T>
std::span<T> sized(std::vector<T>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

}  // namespace

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
  while (first < prompt_ && !t.streams_prompt && !policy_.observes(TokenPos(first))) ++first;
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

void PointLayer::stream_prompt(const ExactRows& rows, ResidencyLog& log, std::uint32_t layer) {
  for (std::uint32_t position = rows.first(); position < rows.first() + rows.count(); ++position) {
    step_row(rows, position, nullptr);
    if (position + 1 == prompt_) log.append(layer, take_counts());
  }
}

void PointLayer::decode(const ExactRows* rows, std::uint32_t first, std::uint32_t count, BlockRecord& record,
                        ResidencyLog& log, std::uint32_t layer) {
  block_quality_ = measure_.recall ? record.quality.data() : nullptr;
  decoding_ = true;
  resident_rows.start();
  for (std::uint32_t row = 0; row < count; ++row) {
    if (rows != nullptr) {
      step_row(*rows, first + row, measure_.recall ? block_quality_ + std::size_t{row} * layer_.query_heads : nullptr);
    } else {
      step_blind(first + row);
    }
    log.append(layer, take_counts());
    if (!record.wants_kept[row]) continue;
    for (std::uint32_t head = 0; head < kept_heads(); ++head)
      kept(head, record.kept[std::size_t{row} * kept_heads() + head]);
  }
  if (rows == nullptr || !measure_.recall || !measure_.output_error) return;
  const std::uint32_t group = layer_.query_heads / kept_heads();
  for (std::uint32_t head = 0; head < kept_heads(); ++head) measure_outputs(*rows, head * group, group);
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
    for (const auto& read : last_read_) aged_.attended_aged += aged_rows({read, position});
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
  const std::uint32_t group = policy_.group();
  const bool observes = policy_.observes(TokenPos(position));
  for (std::uint32_t h = 0; h < storage_heads(); ++h) {
    const HeadId head(h);
    const bool moved = !policy_.eviction(head).moves.empty();
    const SlotId admitted = policy_.admit(head, TokenPos(position));
    const std::uint32_t first_query_head = h * group;
    AttentionRows view{policy_.step_of(TokenPos(position)), TokenPos(position), policy_.positions(head), group};
    const bool weighs = (observes && traits().needs_weights) || quality != nullptr;
    if (decoding_ && weighs && !traits().selects && cache_ == nullptr) {
      resident_rows.show(rows, position, {h, group, view.positions, admitted, moved});
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
  count_attended(position);
  finish_row(position, &rows);
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
  // By resident_rows, unless a token has other logits than in the exact attention.
  const bool gathered = decoding_ && !t.selects && !own_ && cache_ == nullptr && !policy_.relocates(view.query);
  const std::span<float> logits = sized(slot_rows.logits, slots * view.group);
  const std::span<float> weights = sized(slot_rows.weights, t.needs_weights ? slots * view.group : 0);
  for (std::uint32_t g = 0; g < view.group; ++g) {
    const std::uint32_t query_head = head.value * view.group + g;
    const std::span<float> of_head = logits.subspan(g * slots, slots);
    const bool shares = gathered && rows.shares_exponentials(position, query_head);
    if (t.reads_logits || !shares) {
      logits_of(rows, view.query, view.positions, query_head, of_head);
    }
    if (!t.needs_weights) continue;
    if (shares) {
      weights_of_exponentials(resident_rows.row(head.value, g), weights.subspan(g * slots, slots));
    } else {
      softmax(of_head, weights.subspan(g * slots, slots));
    }
  }
  view.logits = t.reads_logits ? logits.data() : nullptr;
  view.weights = t.needs_weights ? weights.data() : nullptr;
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
    const std::uint32_t query_head = first_query_head + g;
    const std::span<float> of_head = weights.subspan(g * slots, slots);
    if (rows.shares_exponentials(position, query_head)) {
      weights_of_exponentials({rows.exponentials(position, query_head), slots}, of_head);
    } else {
      softmax({rows.logits(position, query_head), slots}, of_head);
    }
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
                   layer_.alibi_slopes.empty() ? 0 : layer_.alibi_slopes[query_head]},
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
      add_alibi(attended.subspan(s, 1), query, layer_.alibi_slopes[query_head], logit);
  }
}

void PointLayer::select_row(HeadId head, std::uint32_t g, const AttentionRows& view, std::uint32_t query_head) {
  scratch_.read.clear();
  policy_.select(head, g, view, scratch_.read, &tensors_);
  std::vector<TokenPos>& read = last_read_[query_head];
  read.clear();
  for (const SlotId slot : scratch_.read) read.push_back(view.positions[slot.value]);
}

void PointLayer::measure(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                         std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality) {
  if (cache_ != nullptr) return measure_cached(rows, position, attended, first_query_head, group, quality);
  const std::size_t tokens = std::size_t{position} + 1;
  const std::size_t slots = attended.size();
  if (slots == rows.visible(position) && !(own_ && own_->changed())) {
    std::fill_n(quality + first_query_head, group, HeadQuality{});
    return;
  }
  const std::span<float> weights = sized(scratch_.attended, slots * group);
  const std::span<double> masses = sized(scratch_.masses, group);
  for (std::uint32_t g = 0; g < group; ++g) {
    const std::uint32_t head = first_query_head + g;
    const std::span<float> of_head = weights.subspan(g * slots, slots);
    if (traits().selects) {
      gather({rows.weights(position, head), tokens}, attended, of_head);
    } else {
      std::ranges::copy(resident_rows.row(first_query_head / group, g), of_head.begin());
    }
    masses[g] = sum_of(of_head);
    quality[head].recall = std::min(1.0, masses[g] / rows.mass(position, head));
    if (measure_.output_error && (masses[g] < kTinyMass || own_ || policy_.relocates(TokenPos(position)))) {
      logits_of(rows, TokenPos(position), attended, head, of_head);
      softmax(of_head, of_head);
      masses[g] = 1;
    }
  }
  if (measure_.output_error) wait_for_output(rows, position, attended, first_query_head, group);
}

// Recall is the exact attention on what is attended; the output is that of the cache's own logits and values.
void PointLayer::measure_cached(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                                std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality) {
  const std::size_t width = layer_.v_width;
  const std::span<float> weights = sized(scratch_.attended, attended.size());
  const std::span<float> output = sized(scratch_.difference, width);
  for (std::uint32_t head = first_query_head; head < first_query_head + group; ++head) {
    gather({rows.weights(position, head), std::size_t{position} + 1}, attended, weights);
    const bool all = attended.size() == rows.visible(position);
    quality[head] = {all ? 1.0 : std::min(1.0, sum_of(weights) / rows.mass(position, head)), 0};
    if (!measure_.output_error) continue;
    cache_->logits(position, head, attended, meets_aged(position), weights);
    softmax(weights, weights);
    cache_->output(position, head, attended, meets_aged(position), weights, output);
    const auto scale = static_cast<float>(1.0 / sum_of(weights));
    const float* exact = rows.output(position, head);
    for (std::size_t c = 0; c < width; ++c) output[c] = output[c] * scale - exact[c];
    const double norm = rows.output_norm(position, head), distance = norm_of(output);
    quality[head].output_error = norm > 0 ? distance / norm : (distance > 0 ? 1.0 : 0.0);
  }
}

void PointLayer::wait_for_output(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                                 std::uint32_t first_query_head, std::uint32_t group) {
  const std::uint32_t head = first_query_head / group;
  AttendedOutput& outputs = scratch_.outputs[head];
  if (!outputs.add(TokenPos(position), attended, scratch_.attended, group)) {
    measure_outputs(rows, first_query_head, group);
    check(outputs.add(TokenPos(position), attended, scratch_.attended, group), "there is room when nothing waits");
  }
  const std::size_t row = std::size_t{head} * AttendedOutput::kMostRows + outputs.queries().size() - 1;
  std::copy_n(scratch_.masses.begin(), group,
              scratch_.output_masses.begin() + static_cast<std::ptrdiff_t>(row * group));
}

void PointLayer::measure_outputs(const ExactRows& rows, std::uint32_t first_query_head, std::uint32_t group) {
  const std::uint32_t kept_head = first_query_head / group;
  AttendedOutput& outputs = scratch_.outputs[kept_head];
  // Nothing waits: its columns are those of an earlier sequence, which may have had more tokens.
  if (outputs.queries().empty()) return;
  const std::size_t width = layer_.v_width;
  const double* mass = scratch_.output_masses.data() + std::size_t{kept_head} * AttendedOutput::kMostRows * group;
  std::array<TokenPos, AttendedOutput::kMostRows> queries;
  const std::size_t count = outputs.queries().size();
  std::copy_n(outputs.queries().begin(), count, queries.begin());
  const RowsView values = own_ ? own_->values(HeadId(kept_head)) : rows.values_of(first_query_head);
  const float* output = outputs.compute(values).data();
  const std::span<float> difference = sized(scratch_.difference, width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t position = queries[i].value;
    for (std::uint32_t head = first_query_head; head < first_query_head + group; ++head, output += width) {
      const auto scale = static_cast<float>(1.0 / *mass++);
      const float* exact = rows.output(position, head);
      for (std::size_t c = 0; c < width; ++c) difference[c] = output[c] * scale - exact[c];
      const double norm = rows.output_norm(position, head);
      const double distance = norm_of(difference);
      HeadQuality& quality = block_quality_[std::size_t{position - rows.first()} * layer_.query_heads + head];
      quality.output_error = norm > 0 ? distance / norm : (distance > 0 ? 1.0 : 0.0);
    }
  }
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
