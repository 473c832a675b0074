#include "sim/attention/attention.hpp"

#include <cmath>

#include "sim/attention/portable_math.hpp"
#include "sim/attention/vector.hpp"
#include "sim/core/error.hpp"
#include "sim/core/gumbel.hpp"

namespace kvroof {

void compute_logits(std::span<const float> q, const RowsView& keys, const LogitRule& rule, std::span<float> logits) {
  check(q.size() == keys.width && logits.size() == keys.count, "sizes of query, keys and logits agree");
  vector::scaled_dots(q.data(), keys, rule.scale, logits.data());
  if (rule.softcap > 0) {
    for (float& x : logits) x = rule.softcap * portable::tanh(x / rule.softcap);
  }
}

void add_alibi(std::span<const TokenPos> positions, TokenPos query, float slope, std::span<float> logits) {
  check(positions.size() == logits.size(), "a position for each logit");
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto distance = static_cast<std::int32_t>(positions[i].value - query.value);
    logits[i] += slope * static_cast<float>(distance);
  }
}

float softmax(std::span<const float> logits, std::span<float> weights) {
  check(!logits.empty() && logits.size() == weights.size(), "a weight for each logit, and at least one");
  float largest = 0;
  float sum = 0;
  vector::softmax(logits.data(), weights.data(), logits.size(), largest, sum);
  return largest + portable_log(sum);
}

void softmax_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                        std::span<float> weights) {
  check(!logits.empty() && logits.size() == weights.size(), "a weight for each logit, and at least one");
  check(noise.empty() || noise.size() == logits.size(), "a draw for each logit, or none");
  const float factor = 1 / tau;
  if (noise.empty()) {
    for (std::size_t i = 0; i < logits.size(); ++i) weights[i] = logits[i] * factor;
  } else {
    for (std::size_t i = 0; i < logits.size(); ++i) weights[i] = (logits[i] + noise[i]) * factor;
  }
  float largest = 0;
  float sum = 0;
  vector::softmax(weights.data(), weights.data(), weights.size(), largest, sum);
}

void weighted_sum(std::span<const float> weights, const RowsView& values, std::span<float> out) {
  check(weights.size() == values.count && out.size() == values.width, "sizes of weights, values and output agree");
  vector::weighted_sum(weights.data(), values, out.data());
}

float portable_exp(float x) { return portable::exp_of_negative(x); }

void gather(std::span<const float> from, std::span<const TokenPos> index, std::span<float> out) {
  check(index.size() == out.size(), "an index for each element");
  // Four at a time, so that the loads need not wait for the stores.
  const std::size_t count = out.size();
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const float a = from[index[i].value];
    const float b = from[index[i + 1].value];
    const float c = from[index[i + 2].value];
    const float d = from[index[i + 3].value];
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
  }
  for (; i < count; ++i) out[i] = from[index[i].value];
}

}  // namespace kvroof
