#include "analysis/scoreboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "sim/traffic/summary.hpp"

namespace kvroof {
namespace {

// Published names of what the catalog has under another.
constexpr std::array<std::array<std::string_view, 2>, 5> kDevices = {{{"A100-SXM4-80GB", "a100-80g"},
                                                                      {"A100-40GB", "a100-40g"},
                                                                      {"H100-SXM-80GB", "h100-sxm"},
                                                                      {"RTX 4090", "rtx-4090"},
                                                                      {"RTX 3090", "rtx-3090"}}};
constexpr std::array<std::array<std::string_view, 2>, 9> kModels = {{{"GPT-J-6B", "gpt-j-6b"},
                                                                     {"Llama-7B", "llama-2-7b"},  // but for the context
                                                                     {"Llama2 7B", "llama-2-7b"},
                                                                     {"Llama3 8B", "llama-3-8b"},
                                                                     {"Llama-3-8B", "llama-3-8b"},
                                                                     {"Llama-3.1-8B", "llama-3.1-8b"},
                                                                     {"Llama-3.1-8B-Instruct", "llama-3.1-8b"},
                                                                     {"Mistral 7B", "mistral-7b"},
                                                                     {"Mistral-7B-Instruct-v0.2", "mistral-7b"}}};

std::string_view renamed(std::span<const std::array<std::string_view, 2>> names, std::string_view published) {
  for (const auto& [from, to] : names) {
    if (from == published) return to;
  }
  return {};
}

// More than any model or run has; a number above it is a mistake of the file.
constexpr unsigned kMostHeads = 1024, kMostWidth = 4096, kMostLayers = 1024;
constexpr std::uint32_t kMostBatch = 1U << 20, kMostTokens = 1U << 20, kMostProduct = 1U << 20;

// A count such as "200", "~4064" or "200(default)"; what a row does not say is nothing.
std::optional<std::uint32_t> count_of(std::string_view text) {
  if (text.starts_with('~')) text.remove_prefix(1);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  return error == std::errc() && (rest.empty() || rest.starts_with('(')) ? std::optional(value) : std::nullopt;
}

std::optional<DType> type_of(std::string_view text) {
  if (text == "fp16" || text == "f16" || text == "F16") return DType::kF16;
  if (text == "bf16") return DType::kBF16;
  return std::nullopt;
}

// "GPT-20B (48 heads x128, 44 layers)": FasterTransformer's own GPT models, with a vocabulary of 51,200 and 1,024
// positions.
std::optional<ModelShape> sized_gpt(const std::string& name) {
  unsigned heads = 0, width = 0, layers = 0;
  const std::size_t open = name.find('(');
  if (open == std::string::npos) return std::nullopt;
  if (std::sscanf(name.c_str() + open, "(%u heads x%u, %u layers)", &heads, &width, &layers) != 3) return std::nullopt;
  if (open == 0 || heads > kMostHeads || width > kMostWidth || layers > kMostLayers) return std::nullopt;
  ModelShape s;
  s.name = name.substr(0, open - 1);
  s.family = "gpt2";
  s.layers = layers;
  s.heads = s.kv_heads = heads;
  s.head_dim = s.v_head_dim = width;
  s.hidden = s.embedding_width = heads * width;
  s.ffn = 4 * s.hidden;
  s.vocab = 51200;
  s.max_positions = s.position_rows = 1024;
  s.position = PositionScheme::kLearned;
  s.mlp = MlpKind::kPlain;
  s.norm = NormKind::kLayer;
  s.norm_bias = s.qkv_bias = s.out_bias = s.mlp_bias = s.tied_head = true;
  return s;
}

Estimate scaled(const Estimate& e, double factor) {
  return {e.value * factor, e.low80 * factor, e.high80 * factor, e.low95 * factor, e.high95 * factor, e.dominated_by};
}
// A rate out of a time: amount / seconds, ends exchanged.
Estimate inverted(const Estimate& e, double amount) {
  return {amount / e.value, amount / e.high80, amount / e.low80, amount / e.high95, amount / e.low95, e.dominated_by};
}
// Times one after the other. Their errors come from the same constants, so the ends add up.
Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.value + b.value,   a.low80 + b.low80,   a.high80 + b.high80,
          a.low95 + b.low95,   a.high95 + b.high95, a.value > b.value ? a.dominated_by : b.dominated_by};
}

// What is the same for every kind of row.
struct Setting {
  ModelShape shape;
  Device device;
  TrafficTypes types;
  std::uint32_t batch = 1, input = 0, output = 0;

  [[nodiscard]] CostModel cost() const { return CostModel(shape, types, device, find_engine_profile("graphs")); }
  // Prompts of a batch, then its decode steps; the first token comes with the prompts.
  [[nodiscard]] Estimate whole_batch() const {
    const ResidencySummary r = full_attention_summary(shape, input, std::max(output, 2U) - 1);
    const Estimate prompts = cost().prefill(r, batch);
    return output < 2 ? prompts : sum(prompts, scaled(cost().predict(r, batch).step, output - 1));
  }
  // A token of a batch under load: its step, and its share of the other sequences' prompts.
  [[nodiscard]] Estimate token_under_load() const {
    const ResidencySummary r = full_attention_summary(shape, input, output);
    return sum(cost().predict(r, batch).step, scaled(cost().prefill(r, 1), (batch - 1.0) / output));
  }
};

// A kernel by itself: its time, and the bytes that it cannot do without.
struct Kernel {
  Estimate seconds;
  Bytes bytes;
};

std::optional<Kernel> kernel_of(const PublishedRow& row, const Setting& s) {
  unsigned m = 0, n = 0, k = 0;
  if (std::sscanf(row.model.c_str(), "GEMM m=%u n=%u k=%u", &m, &n, &k) == 3) {
    if (std::max({m, n, k}) > kMostProduct || std::min({m, n, k}) == 0) return std::nullopt;
    return Kernel{s.cost().product(m, n, k), Bytes(std::uint64_t{n} * k * size_of(s.types.weights))};
  }
  unsigned heads = 0, kv_heads = 0, width = 0;
  if (std::sscanf(row.model.c_str(), "decode attention %uq/%ukv heads x%u", &heads, &kv_heads, &width) == 3) {
    if (kv_heads == 0 || kv_heads > kMostHeads || width == 0 || width > kMostWidth) return std::nullopt;
    const Bytes kv(std::uint64_t{s.batch} * s.input * kv_heads * width * 2 * size_of(s.types.kv));
    return Kernel{s.cost().attention_call(kv), kv};
  }
  return std::nullopt;
}

std::optional<Estimate> predict(const PublishedRow& row, const Setting& s) {
  const std::string& metric = row.metric;
  if (metric == "total_latency") return scaled(s.whole_batch(), 1e3);
  if (metric == "first_token_latency") {
    return scaled(s.cost().prefill(full_attention_summary(s.shape, s.input, 1), s.batch), 1e3);
  }
  if (metric == "output_tokens_per_s_end_to_end") {
    return inverted(s.whole_batch(), static_cast<double>(s.batch) * s.output);
  }
  if (metric == "decode_tokens_per_s" && row.batch_mode == "single_stream") {
    return s.cost().predict(full_attention_summary(s.shape, s.input, s.output), 1).tokens_per_s;
  }
  if (metric == "tpot_mean_or_median") return scaled(s.token_under_load(), 1e3);
  return std::nullopt;
}

std::string group_of(const PublishedRow& row) {
  if (row.metric == "kernel_time") {
    return fmt::format("{}, {}", row.model.starts_with("GEMM") ? "matrix product" : "decode attention", row.gpu);
  }
  const std::string model = row.model.substr(0, row.model.find(" ("));
  std::string group = fmt::format("{} {}, {}, {}", row.engine, row.metric, model, row.gpu);
  if (row.metric == "total_latency") group += ", output " + row.output;
  return group;
}

}  // namespace

ScoredRow Scoreboard::score(const PublishedRow& row) const {
  ScoredRow scored{&row, group_of(row), {}, {}};
  const auto refuse = [&](std::string why) {
    scored.refused = std::move(why);
    return scored;
  };
  if (row.level != "kernel" && row.level != "end_to_end") return refuse("no time of a model or kernel");
  if (row.gpus != 1) return refuse("several devices");
  if (row.batch_mode == "continuous_max_load") return refuse("saturated server: no queue is modelled");
  const std::string_view device = renamed(kDevices, row.gpu);
  if (device.empty()) return refuse("no such device in the catalog");
  Setting s{{}, find_device(std::string(device), catalog_), {}};
  const bool kernel = row.level == "kernel";
  const auto weights = type_of(row.weight_precision);
  const auto kv = type_of(row.kv_precision.empty() ? row.weight_precision : row.kv_precision);
  if (!weights && !(kernel && kv)) return refuse("weights are not of 16 bits");
  if (!kv) return refuse("the KV cache is not of 16 bits");
  s.types = {weights.value_or(*kv), *kv};
  if (kernel) {
    s.shape = find_model_shape("llama-2-7b", catalog_);  // any: kernels are priced by themselves
  } else if (const auto gpt = sized_gpt(row.model)) {
    s.shape = *gpt;
    if (!shape_problem(s.shape).empty()) return refuse("no such model in the catalog");
  } else {
    const std::string_view name = renamed(kModels, row.model);
    if (name.empty()) return refuse("no such model in the catalog");
    s.shape = find_model_shape(std::string(name), catalog_);
  }
  const auto batch = count_of(row.batch), input = count_of(row.input), output = count_of(row.output);
  if (!batch || (!kernel && (!input || !output))) return refuse("batch or lengths are not stated");
  if (*batch == 0 || *batch > kMostBatch || input.value_or(0) > kMostTokens || output.value_or(0) > kMostTokens) {
    return refuse("batch or lengths that no run has");
  }
  if (!(row.value > 0)) return refuse("a measurement that is not above 0");
  s.batch = *batch;
  s.input = std::max(input.value_or(1), 1U);
  s.output = std::max(output.value_or(1), 1U);
  if (kernel) {
    const auto priced = kernel_of(row, s);
    if (!priced) return refuse("this kernel is not predicted");
    const double least = static_cast<double>(priced->bytes.value) / s.device.bandwidth().value;
    if (row.value * 1e-6 < least) {
      return refuse("faster than the memory's peak: a warm cache, or another type than stated");
    }
    scored.predicted = scaled(priced->seconds, 1e6);
    return scored;
  }
  scored.predicted = predict(row, s);
  return scored.predicted ? scored : refuse("this metric is not predicted");
}

std::vector<GroupScore> group_scores(std::span<const ScoredRow> rows) {
  std::vector<GroupScore> groups;
  std::vector<std::vector<double>> errors;
  for (const ScoredRow& row : rows) {
    if (!row.predicted) continue;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const GroupScore& g) { return g.group == row.group; });
    if (at == groups.end()) {
      at = groups.insert(groups.end(), GroupScore{row.group});
      errors.emplace_back();
    }
    GroupScore& g = *at;
    g.rows += 1;
    g.mean_error += std::fabs(row.error());
    g.bias += row.error();
    g.covered80 += row.within80() ? 1 : 0;
    g.covered95 += row.within95() ? 1 : 0;
    errors[static_cast<std::size_t>(at - groups.begin())].push_back(std::fabs(row.error()));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupScore& g = groups[i];
    const auto n = static_cast<double>(g.rows);
    std::sort(errors[i].begin(), errors[i].end());
    g.p90_error = errors[i][(9 * g.rows + 9) / 10 - 1];
    for (double* x : {&g.mean_error, &g.bias, &g.covered80, &g.covered95}) *x /= n;
  }
  return groups;
}

}  // namespace kvroof
