// Decode attention, and attention of a prompt, against plain attention in double precision.
#include "kernels/cuda/attention_plan.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr float kScale = 0.1F;
constexpr double kUnseen = -1e29;

struct Case {
  Stored type = Stored::kBF16;
  std::uint32_t kv_heads = 2, group = 1, head_dim = 128, value_dim = 128;
  std::vector<std::uint32_t> lengths;  // of each sequence
  float softcap = 0;
  std::uint32_t window = 0;
  bool alibi = false;
  bool sinks = false;
  bool latent = false;  // the leading value_dim elements of a row of k are its v

  [[nodiscard]] std::uint32_t heads() const { return kv_heads * group; }
  [[nodiscard]] Json parameters() const {
    return {{"type", name_of(type)}, {"kv_heads", kv_heads},   {"group", group},
            {"head_dim", head_dim},  {"value_dim", value_dim}, {"lengths", lengths},
            {"softcap", softcap},    {"window", window},       {"alibi", alibi},
            {"sinks", sinks},        {"latent", latent}};
  }
};

double finished(const Case& c, double dot, float slope, double distance) {
  double logit = static_cast<double>(kScale) * dot;
  const auto cap = static_cast<double>(c.softcap);
  if (cap > 0) logit = cap * std::tanh(logit / cap);
  if (c.window > 0 && -distance >= c.window) return kUnseen * 10;
  return logit + static_cast<double>(slope) * distance;
}

// Weights in place of logits; returns the logarithm of the sum of their exponentials. A sink is one more logit.
double softmax(std::vector<double>& logits, double sink = kUnseen) {
  double highest = sink;
  for (const double logit : logits) highest = std::max(highest, logit);
  double total = sink <= kUnseen ? 0 : std::exp(sink - highest);
  for (double& logit : logits) total += logit = logit <= kUnseen ? 0 : std::exp(logit - highest);
  for (double& weight : logits) weight /= total;
  return highest + std::log(total);
}

// One launch over a ragged batch, and what it must give.
class DecodeCheck {
 public:
  DecodeCheck(const Case& c, std::uint64_t seed) : c_(c), random_(seed) {
    std::size_t rows = 0;
    for (const std::uint32_t length : c.lengths) {
      first_row_.push_back(rows);
      rows += std::size_t{c.kv_heads} * (length + kSlack);
    }
    keys_ = stored_rows(c.type, rows, c.head_dim, 1, random_);
    if (!c.latent) values_ = stored_rows(c.type, rows, c.value_dim, 1, random_);
    for (std::size_t r = 0; r < rows; ++r) positions_.push_back(static_cast<std::uint32_t>(random_() % kPositions));
    q_ = normal_floats(c.lengths.size() * c.heads() * c.head_dim, 0, random_);
    for (std::uint32_t h = 0; h < c.heads(); ++h) alibi_.push_back(0.001F * static_cast<float>(h + 1));
    for (std::uint32_t h = 0; h < c.heads(); ++h) sinks_.push_back(1.5F * static_cast<float>(h % 5) - 2);
  }

  // {logits, sums, outputs}: the deviations of the kernel from the twin.
  std::array<Deviation, 3> run(const Options& options) {
    Stream& stream = stream_.get();
    const DeviceBuffer keys = uploaded(stream, keys_.bytes), values = uploaded(stream, values_.bytes);
    const DeviceBuffer key_scales = uploaded(stream, keys_.scales), value_scales = uploaded(stream, values_.scales);
    const DeviceBuffer positions = uploaded(stream, positions_), q = uploaded(stream, q_),
                       alibi = uploaded(stream, alibi_), sinks = uploaded(stream, sinks_);
    AttentionPlan plan(c_.kv_heads, c_.group, c_.latent ? kLatentHeads : kMostGroup);
    for (std::size_t s = 0; s < c_.lengths.size(); ++s) {
      std::vector<CacheSlots> heads;
      for (std::uint32_t h = 0; h < c_.kv_heads; ++h) {
        const std::size_t row = row_of(s, h);
        heads.push_back({keys.at(row * keys_.row_bytes), values.at(row * values_.row_bytes),
                         key_scales.at<float>(4 * row), value_scales.at<float>(4 * row),
                         const_cast<std::uint32_t*>(positions.at<std::uint32_t>(4 * row)), nullptr});
      }
      plan.add(heads, query_position(s), std::vector(c_.kv_heads, c_.lengths[s]));
    }
    const unsigned width = c_.latent ? kLatentValue : padded_width(std::max(c_.head_dim, c_.value_dim));
    const unsigned blocks =
        options.device.multiprocessors * resident_attention_blocks(c_.type, width);
    plan.cut(blocks, width, keys_.row_bytes + values_.row_bytes);
    const DeviceBuffer logits = poisoned(stream, plan.logit_floats() * sizeof(float));
    plan.place_logits(logits.at<float>());
    DeviceBuffer tables, splits = poisoned(stream, 1U << 20);
    AttentionArguments a = plan.arguments(stream, tables, splits, width);
    const std::size_t outputs = c_.lengths.size() * c_.heads() * c_.value_dim;
    const DeviceBuffer out = poisoned(stream, outputs * sizeof(float));
    a.key_row_bytes = keys_.row_bytes;
    a.value_row_bytes = values_.row_bytes;
    a.q = q.at<float>();
    a.heads = c_.heads();
    a.head_dim = c_.head_dim;
    a.value_dim = c_.value_dim;
    a.scale = kScale;
    a.softcap = c_.softcap;
    a.window = c_.window;
    a.alibi = c_.alibi ? alibi.at<float>() : nullptr;
    a.sinks = c_.sinks ? sinks.at<float>() : nullptr;
    a.out = out.at<float>();
    // Twice: the second launch meets the counters that the first left.
    for (int i = 0; i < 2; ++i) run_decode_attention(stream, c_.type, a);
    const auto got_out = downloaded<float>(stream, out, outputs);
    const auto got_logits = downloaded<float>(stream, logits, plan.logit_floats());
    std::vector<float> got_sums(plan.units().size() * plan.kernel_group());
    copy_to_host(stream, std::as_writable_bytes(std::span(got_sums)), reinterpret_cast<std::byte*>(a.log_sums));
    return compare(plan, logits.at<float>(), got_logits, got_sums, got_out);
  }

 private:
  static constexpr std::uint32_t kSlack = 3;  // slots beyond the length
  static constexpr std::uint32_t kPositions = 1000;

  [[nodiscard]] std::size_t row_of(std::size_t sequence, std::uint32_t head) const {
    return first_row_[sequence] + std::size_t{head} * (c_.lengths[sequence] + kSlack);
  }
  [[nodiscard]] float value(std::size_t row, std::uint32_t i) const {
    return c_.latent ? keys_.values[row * c_.head_dim + i] : values_.values[row * c_.value_dim + i];
  }
  [[nodiscard]] static std::uint32_t query_position(std::size_t s) {
    return kPositions + static_cast<std::uint32_t>(s);
  }

  std::array<Deviation, 3> compare(const AttentionPlan& plan, const float* logits_at, std::span<const float> logits,
                                   std::span<const float> sums, std::span<const float> out) const {
    std::array<Deviation, 3> deviations;
    for (std::size_t u = 0; u < plan.units().size(); ++u) {
      const AttentionUnit& unit = plan.units()[u];
      const std::size_t first = row_of(unit.sequence, unit.first_query_head / c_.group);
      const float* unit_logits = logits.data() + (unit.slots.logits - logits_at);
      for (std::uint32_t g = 0; g < unit.query_heads; ++g) {
        const std::size_t head = std::size_t{unit.sequence} * c_.heads() + unit.first_query_head + g;
        std::vector<double> weights = twin_logits(unit, g, first);
        for (std::size_t s = 0; s < weights.size(); ++s) {
          const double got = unit_logits[s * plan.kernel_group() + g];
          if (weights[s] > kUnseen) deviations[0].add(got, weights[s]);
          if (weights[s] <= kUnseen && !(got <= kUnseen)) deviations[0].add(NAN, 0);
        }
        const double sink = c_.sinks ? static_cast<double>(sinks_[unit.first_query_head + g]) : kUnseen;
        deviations[1].add(sums[u * plan.kernel_group() + g], softmax(weights, sink));
        for (std::uint32_t i = 0; i < c_.value_dim; ++i) {
          double sum = 0;
          for (std::size_t s = 0; s < weights.size(); ++s) {
            sum += weights[s] * static_cast<double>(value(first + s, i));
          }
          deviations[2].add(out[head * c_.value_dim + i], sum);
        }
      }
    }
    return deviations;
  }

  [[nodiscard]] std::vector<double> twin_logits(const AttentionUnit& unit, std::uint32_t g, std::size_t first) const {
    const std::uint32_t head = unit.first_query_head + g;
    const float* q = q_.data() + (std::size_t{unit.sequence} * c_.heads() + head) * c_.head_dim;
    std::vector<double> logits(c_.lengths[unit.sequence]);
    for (std::size_t s = 0; s < logits.size(); ++s) {
      double dot = 0;
      for (std::uint32_t i = 0; i < c_.head_dim; ++i) {
        dot += static_cast<double>(q[i]) * static_cast<double>(keys_.values[(first + s) * c_.head_dim + i]);
      }
      const double distance = static_cast<double>(positions_[first + s]) - query_position(unit.sequence);
      logits[s] = finished(c_, dot, c_.alibi ? alibi_[head] : 0.0F, distance);
    }
    return logits;
  }

  const Case& c_;
  Random random_;
  OpenStream stream_;
  std::vector<std::size_t> first_row_;  // of each sequence
  StoredRows keys_, values_;
  std::vector<std::uint32_t> positions_;
  std::vector<float> q_, alibi_, sinks_;
};

std::vector<Case> decode_cases(bool small) {
  const std::vector<std::uint32_t> ragged =
      small ? std::vector<std::uint32_t>{1, 2, 33}
            : std::vector<std::uint32_t>{1, 2, kItemSlots - 1, kItemSlots, kItemSlots + 1, 777};
  std::vector<Case> cases;
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U}) {
      for (const std::uint32_t group : {1U, 2U, 3U, 4U, 7U, 8U, 16U}) {
        if (small && (dim + group + static_cast<unsigned>(type)) % 5 != 0) continue;
        cases.push_back({.type = type, .group = group, .head_dim = dim, .value_dim = dim, .lengths = ragged});
      }
    }
  }
  const std::uint32_t some = small ? 50 : 500;
  cases.push_back({.head_dim = 96, .value_dim = 64, .lengths = {some, 7}});
  cases.push_back({.group = 2, .lengths = {some, some + 1}, .softcap = 1.5F});
  cases.push_back({.group = 2, .lengths = {some, some + 1}, .alibi = true});
  cases.push_back(
      {.group = 8, .head_dim = 64, .value_dim = 64, .lengths = {some, some + 1}, .window = 500, .sinks = true});
  cases.push_back(
      {.type = Stored::kF16, .group = 4, .lengths = {some, 90}, .softcap = 2, .window = 500, .alibi = true});
  cases.push_back({.kv_heads = 1, .group = 4, .lengths = {small ? 600U : 32768U}});
  if (!small)
    cases.push_back({.kv_heads = 1, .group = 8, .head_dim = 64, .value_dim = 64, .lengths = {32769, 1, 4095}});
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t group : {16U, 20U, 128U}) {
      if (small && group != 20) continue;
      cases.push_back({.type = type, .kv_heads = 1, .group = group, .head_dim = 576, .value_dim = 512,
                       .lengths = ragged, .latent = true});
    }
  }
  return cases;
}

// Relative to the largest: sums in single precision, and fast exponentials; queries and weights that meet latent rows
// are rounded to the factors' 16 bits.
double tolerance_of(const Case& c) {
  if (c.latent) return c.type == Stored::kBF16 ? 1e-2 : 6e-3;
  return 3e-4;
}

}  // namespace

void check_attention(const Options& options, Report& report) {
  std::uint64_t seed = options.seed;
  for (const Case& c : decode_cases(options.small)) {
    ++seed;
    report.guarded("decode_attention", c.parameters(), [&] {
      const auto [logits, sums, outputs] = DecodeCheck(c, seed).run(options);
      const double worst = std::max({logits.relative(), sums.relative(), outputs.relative()});
      report.check("decode_attention", c.parameters(), worst <= tolerance_of(c),
                   results_of({{"logits", logits}, {"log_sums", sums}, {"outputs", outputs}}, tolerance_of(c), seed));
    });
  }
}

namespace {

struct PromptCase {
  Stored type = Stored::kBF16;
  std::uint32_t tokens = 1, kv_heads = 2, group = 1, head_dim = 128;
  float softcap = 0;
  std::uint32_t window = 0;
  bool alibi = false;
  bool sinks = false;
};

Deviation prompt_deviation(const PromptCase& c, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  const std::uint32_t heads = c.kv_heads * c.group;
  const StoredRows keys = stored_rows(c.type, std::size_t{c.kv_heads} * c.tokens, c.head_dim, 1, random);
  const StoredRows values = stored_rows(c.type, std::size_t{c.kv_heads} * c.tokens, c.head_dim, 1, random);
  // Queries as they meet the keys: rounded to the type of a 16-bit cache.
  const std::vector<float> q = stored_rows(c.type, std::size_t{c.tokens} * heads, c.head_dim, 1, random).values;
  std::vector<float> slopes;
  for (std::uint32_t h = 0; h < heads; ++h) slopes.push_back(0.01F * static_cast<float>(h + 1));
  std::vector<float> sinks;
  for (std::uint32_t h = 0; h < heads; ++h) sinks.push_back(1.5F * static_cast<float>(h % 5) - 2);
  const DeviceBuffer device_keys = uploaded(stream, keys.bytes), device_values = uploaded(stream, values.bytes);
  const DeviceBuffer key_scales = uploaded(stream, keys.scales), value_scales = uploaded(stream, values.scales);
  const DeviceBuffer device_q = uploaded(stream, q), device_slopes = uploaded(stream, slopes);
  const DeviceBuffer device_sinks = uploaded(stream, sinks);
  std::vector<CacheSlots> slots(c.kv_heads);
  for (std::uint32_t h = 0; h < c.kv_heads; ++h) {
    slots[h].keys = device_keys.at(std::size_t{h} * c.tokens * keys.row_bytes);
    slots[h].values = device_values.at(std::size_t{h} * c.tokens * values.row_bytes);
    if (keys.scales.empty()) continue;
    slots[h].key_scales = key_scales.at<float>() + std::size_t{h} * c.tokens;
    slots[h].value_scales = value_scales.at<float>() + std::size_t{h} * c.tokens;
  }
  const DeviceBuffer device_slots = uploaded(stream, slots);
  const DeviceBuffer out = poisoned(stream, q.size() * sizeof(float));
  PromptArguments a;
  a.q = device_q.at<float>();
  a.slots = device_slots.at<CacheSlots>();
  a.key_row_bytes = keys.row_bytes;
  a.value_row_bytes = values.row_bytes;
  a.tokens = c.tokens;
  a.heads = heads;
  a.group = c.group;
  a.head_dim = a.value_dim = c.head_dim;
  a.scale = kScale;
  a.softcap = c.softcap;
  a.window = c.window;
  a.alibi = c.alibi ? device_slopes.at<float>() : nullptr;
  a.sinks = c.sinks ? device_sinks.at<float>() : nullptr;
  a.out = out.at<float>();
  run_prompt_attention(stream, c.type, a);
  const auto got = downloaded<float>(stream, out, q.size());
  const Case rule{.lengths = {}, .softcap = c.softcap, .window = c.window};
  Deviation deviation;
  for (std::uint32_t t = 0; t < c.tokens; ++t) {
    for (std::uint32_t h = 0; h < heads; ++h) {
      const std::size_t at = (std::size_t{t} * heads + h) * c.head_dim;
      const std::size_t first = std::size_t{h / c.group} * c.tokens;
      std::vector<double> weights(t + 1);
      for (std::uint32_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (std::uint32_t i = 0; i < c.head_dim; ++i) {
          dot += static_cast<double>(q[at + i]) * static_cast<double>(keys.values[(first + s) * c.head_dim + i]);
        }
        weights[s] = finished(rule, dot, c.alibi ? slopes[h] : 0.0F, static_cast<double>(s) - t);
      }
      softmax(weights, c.sinks ? static_cast<double>(sinks[h]) : kUnseen);
      for (std::uint32_t i = 0; i < c.head_dim; ++i) {
        double sum = 0;
        for (std::uint32_t s = 0; s <= t; ++s) {
          sum += weights[s] * static_cast<double>(values.values[(first + s) * c.head_dim + i]);
        }
        deviation.add(got[at + i], sum);
      }
    }
  }
  return deviation;
}

std::vector<PromptCase> prompt_cases(bool small) {
  std::vector<PromptCase> cases;
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U}) {
      if (small && dim % 32 != 0) continue;
      const bool integers = type == Stored::kInt8 || type == Stored::kInt4;
      if (integers && dim > kMostQuantisedPrompt) continue;
      for (const std::uint32_t tokens : {1U, 2U, kPromptQueries - 1, kPromptQueries + 1, 200U}) {
        if (small && (dim + tokens) % 5 != 0) continue;
        cases.push_back({type, small ? std::min(tokens, 40U) : tokens, 2, tokens % 3 + 1, dim});
      }
    }
  }
  const std::uint32_t some = small ? 40 : 300;
  cases.push_back({.tokens = some, .softcap = 1.5F});
  cases.push_back({.tokens = some, .group = 2, .window = 17});
  cases.push_back({.tokens = some, .alibi = true});
  cases.push_back({.tokens = some, .group = 8, .head_dim = 64, .window = 128, .sinks = true});
  return cases;
}

}  // namespace

void check_prompt_attention(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 1000;
  for (const PromptCase& c : prompt_cases(options.small)) {
    const Json parameters = {{"type", name_of(c.type)}, {"tokens", c.tokens},     {"kv_heads", c.kv_heads},
                             {"group", c.group},        {"head_dim", c.head_dim}, {"softcap", c.softcap},
                             {"window", c.window},      {"alibi", c.alibi},       {"sinks", c.sinks}};
    ++seed;
    report.guarded("prompt_attention", parameters, [&] {
      // Weights are rounded to the type of 16-bit values on their way through the tensor cores.
      const double tolerance = c.type == Stored::kF16 ? 2e-3 : c.type == Stored::kBF16 ? 1e-2 : 3e-4;
      const Deviation deviation = prompt_deviation(c, seed);
      report.check("prompt_attention", parameters, deviation.relative() <= tolerance,
                   results_of({{"outputs", deviation}}, tolerance, seed));
    });
  }
}

}  // namespace kvroof::suite
