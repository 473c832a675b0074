#include "analysis/published_metric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "analysis/published_operator.hpp"
#include "analysis/serving.hpp"
#include "sim/core/names.hpp"
#include "sim/core/version.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostProduct = 1U << 20;  // more than any has: a mistake of the file
// Sequences at once that an open loop of unstated load may have: the middle is predicted, the ends widen the interval.
constexpr std::uint32_t kUnstatedLoad = 16, kLightLoad = 1, kHeavyLoad = 128;
constexpr double kSeconds = 1, kMilliseconds = 1e3, kMicroseconds = 1e6;

Server server_of(const PublishedSetting& s) {
  return {CostModel(s.shape, s.deployment, s.device, s.engine),
          full_attention_summary(s.shape, s.input, std::max(s.output, 2U) - 1),
          full_attention_summary(s.shape, s.input + s.output / 2, 1),
          {s.input, s.output, s.equal_lengths}};
}

constexpr const char* kNoneFits = "not even one sequence fits";

// Wide enough for both ends of the load as well.
Estimate widened(Estimate e, const Estimate& low, const Estimate& high) {
  e.low80 = std::min(e.low80, low.value);
  e.high80 = std::max(e.high80, high.value);
  e.low95 = std::min(e.low95, low.low80);
  e.high95 = std::max(e.high95, high.high80);
  e.dominated_by = CostTerm::kLoad;
  e.limit = low.limit;
  return e;
}

// The tables `generation_attention_perf` of TensorRT-LLM before 1.3.0rc20 were collected with a cache of the kind
// SELFKONLY, where one buffer is both keys and values (ai-dynamo/aiconfigurator @095f58a, collector/trtllm/
// collect_attn.py, and the same file at efcae124). Kernels for grouped heads find the second half of each tile in the
// cache, so they move half of what their tables state; those for as many KV heads as query heads pass it twice.
bool holds_keys_alone(const PublishedRow& row, unsigned heads, unsigned kv_heads) {
  return heads > kv_heads && plain_letters(row.engine) == "tensorrtllm" &&
         row.source.find("generation_attention_perf") != std::string::npos &&
         earlier_version(row.engine_version, "1.3.0rc20");
}

// Times in seconds; the caller brings them to the row's unit.
Result<Estimate> predict_latency(const PublishedRow& row, const PublishedSetting& s) {
  const Server server = server_of(s);
  const std::string& metric = row.metric;
  if (metric == "layer_time") return server.cost().layer(server.residency(), s.batch.value_or(1));
  if (metric == "total_latency" && !s.open_loop) {
    if (!s.batch) return failure("a latency without a batch");
    return server.static_batch(*s.batch);
  }
  if (metric == "first_token_latency") return server.cost().prefill(server.residency(), s.batch.value_or(1));
  for (const char* tail : {"_p9", "_max", "_min"}) {
    if (metric.find(tail) == std::string::npos) continue;
    return failure("a tail is not predicted, means and medians are: {}", metric);
  }
  if (!server.fits()) return failure(kNoneFits);
  const auto pick = [&](const RequestTimes& served) -> std::optional<Estimate> {
    if (metric.starts_with("ttft")) return served.first_token;
    if (metric.starts_with("itl_median") || metric.starts_with("itl_p50")) return served.most_tokens;
    if (metric.starts_with("tpot") || metric.starts_with("itl")) return served.token;
    if (metric.starts_with("e2e") || metric == "total_latency") return served.whole(s.output);
    return std::nullopt;
  };
  const auto at = [&](std::uint32_t clients) { return pick(server.closed_loop(clients)); };
  std::optional<Estimate> e;
  const bool crowded = s.saturated && !s.batch;
  if (row.batch_mode == "static" && s.batch) {
    // Prompts that are computed together, and answers that go on without others' prompts.
    const Estimate step = server.cost().predict(server.residency(), *s.batch).step;
    e = pick({server.cost().prefill(server.residency(), *s.batch), step, step});
  } else if (crowded || (s.open_loop && s.arrivals)) {
    const auto served = crowded ? std::nullopt : server.open_loop(*s.arrivals);
    if (!served && (metric.starts_with("tpot") || metric.starts_with("itl"))) return *pick(server.crowded());
    if (!served) return failure("more requests arrive than are served, so they wait the longer the longer it lasts");
    e = pick(*served);
  } else if (s.open_loop) {
    e = at(kUnstatedLoad);
    if (e) e = widened(*e, *at(kLightLoad), *at(kHeavyLoad));
  } else {
    e = at(s.batch.value_or(1));
  }
  if (!e) return failure("this metric is not predicted: {}", metric);
  return *e;
}

// Of one page, one table says that its figures are of one GPU and another says nothing; they are alike.
bool per_device(const std::string& metric) {
  return metric.find("per_gpu") != std::string::npos || metric.find("per GPU") != std::string::npos;
}

Result<Estimate> predict_rate(const PublishedRow& row, const PublishedSetting& s) {
  if (s.open_loop) return failure("a rate of tokens says how many requests arrived, not how fast they were served");
  const Server server = server_of(s);
  // What one replica makes counts so many times.
  const double devices = per_device(row.metric) ? static_cast<double>(s.devices) / s.replicas : 1.0 / s.replicas;
  if (s.saturated) {
    const auto rate = server.saturated();
    if (!rate) return failure(kNoneFits);
    return scaled(*rate, 1 / devices);
  }
  const std::uint32_t batch = s.batch.value_or(1);
  if (row.metric.starts_with("output_tokens_per_s")) {
    if (row.batch_mode.starts_with("continuous")) {
      if (!server.fits()) return failure(kNoneFits);
      return scaled(server.closed_loop_rate(batch), 1 / devices);
    }
    return scaled(throughput(server.static_batch(batch), static_cast<double>(batch) * s.output), 1 / devices);
  }
  if (row.metric == "tokens_per_s" && row.batch_mode == "microbatch_of_prefill") {
    return throughput(server.cost().predict(full_attention_summary(s.shape, s.input / 2 + 1, 1), batch).step, batch);
  }
  if (row.metric == "decode_tokens_per_s") {
    return scaled(server.cost().predict(server.residency(), batch).tokens_per_s, s.replicas);
  }
  return failure("this metric is not predicted: {}", row.metric);
}

// Of one device. Device tools print binary units under decimal names.
Result<Estimate> predict_memory(const PublishedRow& row, const PublishedSetting& s) {
  if (!s.batch) return failure("the batch is not stated");
  const Server server = server_of(s);
  const MemoryLedger ledger = server.cost().memory().ledger(server.residency(), *s.batch);
  if (row.metric == "fits_in_memory") {
    const double fits = ledger.fits() ? 1 : 0;
    return Estimate{fits, fits, fits, fits, fits, CostTerm::kMemory};
  }
  if (const EngineProfile& engine = server.cost().engine(); engine.fills_memory) {
    return failure("{} takes its share of the memory when it starts, whatever sequences hold of it", engine.name);
  }
  return scaled(ledger.needed(), 1 / (row.unit == "MB" || row.unit == "MiB" ? 1 << 20 : kGiB));
}

// Tokens a second, however written; not thousands of them, nor of a minute.
bool of_tokens(const std::string& unit) {
  const std::size_t at = unit.find("tok");
  if (at == std::string::npos) return unit == "t/s";
  const bool one = at == 0 || std::isalnum(static_cast<unsigned char>(unit[at - 1])) == 0;
  const std::string_view time = std::string_view(unit).substr(at);
  const bool second = time.find("/s") != time.npos || time.find("per s") != time.npos || time.find("_s") != time.npos;
  return one && second && unit.find("illion") == std::string::npos && unit.find("housand") == std::string::npos;
}

// What units a row of this metric may have, if its own is none of them.
std::string expected_unit(const PublishedRow& row) {
  const std::string& metric = row.metric;
  const auto starts = [&](std::string_view with) { return metric.starts_with(with); };
  if (metric == "memory_used") {
    constexpr std::array kUnits = {"GB", "GiB", "MB", "MiB"};
    return std::find(kUnits.begin(), kUnits.end(), row.unit) == kUnits.end() ? "GB, GiB, MB or MiB" : "";
  }
  if (metric.find("tokens_per_s") != std::string::npos) return of_tokens(row.unit) ? "" : "tok/s";
  const bool time = starts("ttft") || starts("tpot") || starts("itl") || starts("e2e") || metric.ends_with("latency") ||
                    metric == "layer_time" || metric == "kernel_time";
  return time && !per_second(row.unit) ? "s, ms or us" : "";
}

}  // namespace

bool of_kernel(const PublishedRow& row, const PublishedSetting& s) {
  return s.part || (row.level == "kernel" && row.metric != "layer_time");
}

std::optional<double> per_second(const std::string& unit) {
  if (unit == "s") return kSeconds;
  if (unit == "ms") return kMilliseconds;
  if (unit == "us" || unit == "µs") return kMicroseconds;
  return std::nullopt;
}

Result<PublishedKernel> published_kernel(const PublishedRow& row, const PublishedSetting& s) {
  if (s.part) return operator_kernel(s);
  const CostModel cost(s.shape, s.deployment, s.device, s.engine);
  unsigned m = 0, n = 0, k = 0;
  if (std::sscanf(row.model.c_str(), "GEMM m=%u n=%u k=%u", &m, &n, &k) == 3) {
    if (std::max({m, n, k}) > kMostProduct || std::min({m, n, k}) == 0) return failure("a product that no model has");
    const double bytes = static_cast<double>(std::uint64_t{n} * k) * s.deployment.weights.layer_bits / 8;
    return PublishedKernel{cost.product(m, n, k), Bytes(static_cast<std::uint64_t>(bytes)), 2.0 * m * n * k,
                           PublishedKind::kProduct};
  }
  unsigned heads = 0, kv_heads = 0, width = 0;
  if (std::sscanf(row.model.c_str(), "decode attention %uq/%ukv heads x%u", &heads, &kv_heads, &width) == 3) {
    if (kv_heads == 0 || kv_heads > kMostPublishedHeads || width == 0 || width > kMostPublishedWidth || !s.batch) {
      return failure("heads that no model has");
    }
    const unsigned held = holds_keys_alone(row, heads, kv_heads) ? 1 : 2;
    const Bytes kv(std::uint64_t{*s.batch} * s.input * kv_heads * width * held * s.deployment.types.kv.bits() / 8);
    return PublishedKernel{cost.attention_call(kv, static_cast<double>(*s.batch) * kv_heads), kv, 0,
                           PublishedKind::kAttention};
  }
  if (std::sscanf(row.model.c_str(), "state update %u heads x%ux%u", &heads, &kv_heads, &width) == 3) {
    const bool possible = heads <= kMostPublishedHeads && kv_heads <= kMostPublishedWidth &&
                          width <= kMostPublishedWidth && std::min({heads, kv_heads, width}) > 0 && s.batch;
    if (!possible) return failure("states that no model has");
    const Bytes states(std::uint64_t{*s.batch} * heads * kv_heads * width * s.deployment.types.kv.bits() / 8);
    return PublishedKernel{cost.state_call(states), states, 0, PublishedKind::kStates};
  }
  return failure("this kernel is not predicted");
}

Result<Estimate> predict_metric(const PublishedRow& row, const PublishedSetting& s) {
  if (const std::string expected = expected_unit(row); !expected.empty()) {
    return failure("the unit of {} is {}, expected {}", row.metric, row.unit, expected);
  }
  const bool memory = row.metric == "memory_used" || row.metric == "fits_in_memory";
  if (memory) return predict_memory(row, s);
  const auto unit = per_second(row.unit);
  if (!unit) {
    return of_tokens(row.unit) ? predict_rate(row, s) : failure("this metric is not predicted: {}", row.metric);
  }
  if (of_kernel(row, s)) {
    const auto kernel = published_kernel(row, s);
    return kernel ? Result<Estimate>(scaled(kernel.value().seconds, *unit)) : Failure{kernel.error()};
  }
  const Result<Estimate> seconds = predict_latency(row, s);
  if (!seconds) return seconds;
  return scaled(seconds.value(), *unit);
}

}  // namespace kvroof
