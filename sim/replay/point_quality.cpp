// Recall and output error of a point.
#include <algorithm>
#include <array>

#include "sim/replay/point_layer.hpp"

namespace kvroof {
namespace {

// Below this share of the exact attention the renormalised weights are computed from the logits again: they may have
// become zero. So they are where the logits are not those of the exact attention.
constexpr double kTinyMass = 1e-25;

// Memory of one thread.
struct Measured {
  std::vector<float> attended, difference;
  std::vector<double> masses;
};
thread_local Measured reused;

}  // namespace

void PointLayer::measure(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                         std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality) {
  if (cache_ != nullptr) return measure_cached(rows, position, attended, first_query_head, group, quality);
  const std::size_t tokens = std::size_t{position} + 1;
  const std::size_t slots = attended.size();
  if (slots == rows.visible(position) && !(own_ && own_->changed())) {
    std::fill_n(quality + first_query_head, group, HeadQuality{1, 0, static_cast<std::uint32_t>(slots)});
    return;
  }
  const std::span<float> weights = sized(reused.attended, slots * group);
  const std::span<double> masses = sized(reused.masses, group);
  for (std::uint32_t g = 0; g < group; ++g) {
    const std::uint32_t head = first_query_head + g;
    const std::span<float> of_head = weights.subspan(g * slots, slots);
    if (traits().selects) {
      gather({rows.weights(position, head), tokens}, attended, of_head);
    } else {
      std::ranges::copy(resident_row(HeadId(first_query_head / group), g), of_head.begin());
    }
    masses[g] = sum_of(of_head);
    quality[head].recall = std::min(1.0, masses[g] / rows.mass(position, head));
    quality[head].attended = static_cast<std::uint32_t>(slots);
    if (measure_.output_error && (masses[g] < kTinyMass || own_ || policy_.relocates(TokenPos(position)))) {
      logits_of(rows, TokenPos(position), attended, head, of_head);
      softmax(of_head, of_head, layer_.sink(head));
      masses[g] = 1;
    } else {
      masses[g] += static_cast<double>(rows.sink(position, head));
    }
  }
  if (measure_.output_error) wait_for_output(rows, position, attended, first_query_head, group);
}

// Recall is the exact attention on what is attended; the output is that of the cache's own logits and values.
void PointLayer::measure_cached(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                                std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality) {
  const std::size_t width = layer_.v_width;
  const std::span<float> weights = sized(reused.attended, attended.size());
  const std::span<float> output = sized(reused.difference, width);
  for (std::uint32_t head = first_query_head; head < first_query_head + group; ++head) {
    gather({rows.weights(position, head), std::size_t{position} + 1}, attended, weights);
    const bool all = attended.size() == rows.visible(position);
    quality[head] = {all ? 1.0 : std::min(1.0, sum_of(weights) / rows.mass(position, head)), 0,
                     static_cast<std::uint32_t>(attended.size())};
    if (!measure_.output_error) continue;
    cache_->logits(position, head, attended, meets_aged(position), weights);
    const double sink = static_cast<double>(softmax(weights, weights, layer_.sink(head)));
    cache_->output(position, head, attended, meets_aged(position), weights, output);
    const auto scale = static_cast<float>(1.0 / (sum_of(weights) + sink));
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
  if (!outputs.add(TokenPos(position), attended, reused.attended, group)) {
    measure_outputs(rows, first_query_head, group);
    check(outputs.add(TokenPos(position), attended, reused.attended, group), "there is room when nothing waits");
  }
  const std::size_t row = std::size_t{head} * AttendedOutput::kMostRows + outputs.queries().size() - 1;
  std::copy_n(reused.masses.begin(), group,
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
  const std::span<float> difference = sized(reused.difference, width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t position = queries[i].value;
    for (std::uint32_t head = first_query_head; head < first_query_head + group; ++head, output += width) {
      const auto scale = static_cast<float>(1.0 / *mass++);
      const float* exact = rows.output(position, head);
      for (std::size_t c = 0; c < width; ++c) difference[c] = output[c] * scale - exact[c];
      const double norm = rows.output_norm(position, head);
      const double distance = norm_of(difference);
      HeadQuality& quality = quality_of(position - rows.first())[head];
      quality.output_error = norm > 0 ? distance / norm : (distance > 0 ? 1.0 : 0.0);
    }
  }
}

}  // namespace kvroof
