#include "kernels/cuda/step_plan.hpp"

#include <algorithm>
#include <bit>

namespace kvroof::cuda {
namespace {

// A row this long is planned for; an eighth more at most, so that a growing cache seldom needs a new plan.
std::uint32_t planned_length(std::uint32_t length, std::uint32_t capacity) {
  const std::uint32_t step = std::max(std::uint32_t{256}, std::bit_ceil(length / 8));
  return std::max(length, std::min(capacity, (length + step - 1) / step * step));
}

}  // namespace

ScoreArguments score_arguments(const AttentionPlan& plan, const AttentionArguments& attention, DeviceBuffer& memory) {
  ScoreArguments a;
  static_cast<KvSchedule&>(a) = plan.schedule(kScoreBlocks);
  a.items = attention.items;
  a.units = attention.units;
  a.query = attention.query;
  a.passes = plan.passes();
  a.group = plan.group();
  a.kernel_group = plan.kernel_group();
  a.storage_heads = plan.storage_heads();
  a.sequences = static_cast<std::uint32_t>(plan.units().size()) / (a.storage_heads * a.passes);
  a.log_sums = attention.log_sums;
  for (const AttentionUnit& unit : plan.units()) {
    a.row_splits = std::max(a.row_splits, (unit.length + kRowSlots - 1) / kRowSlots);
  }
  const std::size_t splits = plan.units().size() * a.most_splits;
  const std::size_t victims = std::max(splits, std::size_t{a.sequences} * a.row_splits);
  memory.reserve(victims * sizeof(Victim) + splits * 2 * plan.kernel_group() * sizeof(float));
  a.victims = memory.at<Victim>();
  a.noisy_max = memory.at<float>(victims * sizeof(Victim));
  a.noisy_sum = a.noisy_max + splits * plan.kernel_group();
  return a;
}

bool scores_with_attention(const ScoreRule& rule, const ScoreArguments& planned, std::uint32_t longest) {
  constexpr std::uint64_t kMostSlots = 8 * 640;
  const bool can = rule.kind != ScoreKind::kLastRow && rule.noise != ScoreNoise::kPerQuery && planned.passes == 1 &&
                   planned.kernel_group <= kMostGroup;
  return can && std::uint64_t{longest} * (3 + planned.group) / 4 <= kMostSlots;
}

bool StepPlan::serves(std::span<const StepRow> rows) const {
  return rows.size() == limits_.size() &&
         std::equal(rows.begin(), rows.end(), limits_.begin(),
                    [](const StepRow& row, std::uint32_t limit) { return row.length <= limit; });
}

void StepPlan::build(const Shape& shape, std::span<const DeviceCache* const> caches, std::span<const StepRow> rows) {
  forget();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    limits_.push_back(planned_length(rows[i].length, caches[i]->capacity()));
  }
  const std::size_t batch = rows.size() / shape.layers;
  std::vector<AttentionPlan> plans(shape.layers, {shape.storage_heads, shape.group, shape.unit_heads});
  std::vector<std::vector<CacheSlots>> slots(shape.layers);
  // Memory that all layers share is made before any table points into it.
  for (std::uint32_t l = 0; l < shape.layers; ++l) {
    for (std::size_t i = l * batch; i < (l + 1) * batch; ++i) {
      caches[i]->append_slots(slots[l]);
      const std::vector<std::uint32_t> lengths(shape.storage_heads, limits_[i]);
      plans[l].add(std::span(slots[l]).last(shape.storage_heads), 0, lengths);
    }
    plans[l].cut(shape.blocks, shape.width, shape.slot_bytes);
    parts_.reserve(plans[l].split_bytes(shape.width));
    score_arguments(plans[l], {}, scores_);
    if (shape.scores) logits_.reserve(plans[l].logit_floats() * sizeof(float));
  }
  const std::size_t heads = batch * shape.storage_heads;
  rows_.reserve(rows.size_bytes());
  evicted_.reserve(shape.layers * heads * sizeof(std::uint32_t));
  const std::vector<unsigned> zeros(heads * plans[0].passes(), 0);
  DeviceTables finished(stream_, finished_);
  finished.add(std::span<const unsigned>(zeros));
  finished.send();
  layers_.assign(shape.layers, {});
  tables_.resize(shape.layers);
  slot_tables_.resize(shape.layers);
  for (std::uint32_t l = 0; l < shape.layers; ++l) {
    StepLayer& layer = layers_[l];
    if (shape.scores) plans[l].place_logits(logits_.at<float>());
    layer.attention = plans[l].arguments(stream_, tables_[l], parts_, shape.width);
    layer.rows = rows_.at<StepRow>() + l * batch;
    layer.attention.rows = layer.rows;
    layer.longest = *std::max_element(limits_.begin() + static_cast<std::ptrdiff_t>(l * batch),
                                      limits_.begin() + static_cast<std::ptrdiff_t>((l + 1) * batch));
    layer.scores = score_arguments(plans[l], layer.attention, scores_);
    layer.scores.rows = layer.rows;
    layer.scores.finished = finished_.at<unsigned>();
    layer.scores.evicted = evicted_.at<std::uint32_t>() + l * heads;
    DeviceTables table(stream_, slot_tables_[l]);
    table.add(std::span<const CacheSlots>(slots[l]));
    table.send();
    layer.slots = slot_tables_[l].at<CacheSlots>();
  }
}

}  // namespace kvroof::cuda
