#include "analysis/published_metric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "analysis/published_operator.hpp"
#include "sim/core/names.hpp"
#include "sim/core/version.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {
namespace {

// More than any product or head count has; a number above it is a mistake of the file.
constexpr unsigned kMostHeads = 1024, kMostWidth = 4096;
constexpr std::uint32_t kMostProduct = 1U << 20;
// Sequences at once that an open loop of unstated load may have: the middle is predicted, the ends widen the interval.
constexpr std::uint32_t kUnstatedLoad = 16, kLightLoad = 1, kHeavyLoad = 128;
constexpr double kSeconds = 1, kMilliseconds = 1e3, kMicroseconds = 1e6;

// Times one after the other. Their errors come from the same constants, so the ends add up.
Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.value + b.value,   a.low80 + b.low80,
          a.high80 + b.high80, a.low95 + b.low95,
          a.high95 + b.high95, a.value > b.value ? a.dominated_by : b.dominated_by,
          a.limit + b.limit};
}
// As wide as where its own ends were off by that share (80 %) as well; it may be any part of what it says.
Estimate unsure(const Estimate& e, double spread) {
  const double w80 = 1 + spread, w95 = 1 + kWidth95 * spread;
  return {e.value, e.low80 / w80, e.high80 * w80, e.low95 / w95, e.high95 * w95, e.dominated_by};
}
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

// What a server does with `batch` sequences at once.
struct Served {
  Estimate first_token, token;  // seconds
  Estimate most_tokens;         // between most tokens: a step alone, unless prompts are in most of them

  [[nodiscard]] Estimate whole(double output) const { return sum(first_token, scaled(token, output - 1)); }
};

constexpr const char* kNoneFits = "not even one sequence fits";

// All loops need room for one sequence (fits).
class Server {
 public:
  explicit Server(const PublishedSetting& s)
      : s_(s), cost_(s.shape, s.deployment, s.device, s.engine),
        residency_(full_attention_summary(s.shape, s.input, std::max(s.output, 2U) - 1)) {}

  [[nodiscard]] const CostModel& cost() const { return cost_; }
  [[nodiscard]] const ResidencySummary& residency() const { return residency_; }
  [[nodiscard]] bool fits() const { return cost_.largest_batch(residency_) > 0; }

  // Prompts of a batch, then its decode steps; the first token comes with the prompts.
  [[nodiscard]] Estimate static_batch(std::uint32_t batch) const {
    const Estimate prompts = cost_.prefill(residency_, batch);
    return s_.output < 2 ? prompts : sum(prompts, scaled(cost_.predict(residency_, batch).step, s_.output - 1));
  }
  // So many clients that each wait for their answer: no more run at once than fit, and a token shares its step with
  // the prompts of the others.
  [[nodiscard]] Served closed_loop(std::uint32_t clients) const {
    const auto most = static_cast<double>(cost_.largest_batch(residency_));
    const double running = std::min<double>(clients, most);
    const Estimate prompt = cost_.prefill(residency_, 1);
    const double others = (running - 1) / s_.output;  // prompts a step
    const auto step = [&](double beside) {
      return cost_.predict(residency_, static_cast<std::uint64_t>(running), beside).step;
    };
    const Estimate beside = beside_step(others);
    Served served;
    served.token = sum(step(beside.value), beside);
    served.most_tokens = others < kInMostSteps ? step(0) : served.token;
    const double ahead = std::min(running - 1, s_.engine.prompts_ahead + kPromptsAheadShare * running);
    served.first_token = sum(sum(prompt, unsure(prompts(ahead), kQueueSpread)), arrival());
    if (clients > running) {  // the others wait for a place
      const double turns = clients / running - 1;
      served.first_token = sum(served.first_token, scaled(served.whole(s_.output), turns));
    }
    return served;
  }
  // Tokens a second of that loop: while each client gets one answer all their prompts and an answer's steps are run.
  [[nodiscard]] Estimate closed_loop_rate(std::uint32_t clients) const {
    const std::uint64_t running = std::min<std::uint64_t>(clients, cost_.largest_batch(residency_));
    const double output = s_.output;
    const Estimate others = scaled(beside_step(static_cast<double>(running) / output), output);
    const Estimate answers = sum(others, scaled(cost_.predict(residency_, running).step, output - 1));
    return throughput(answers, static_cast<double>(running) * s_.output);
  }
  // Requests that arrive so many a second: as many are there as arrive while one is served. Nothing where more arrive
  // than as many as fit can serve: how long they wait depends on how long the load lasts.
  [[nodiscard]] std::optional<Served> open_loop(double arrivals) const {
    const auto most = static_cast<double>(cost_.largest_batch(residency_));
    std::uint32_t running = 1;
    Served served = under_arrivals(running, arrivals);
    for (int round = 0; round < 30; ++round) {
      const double there = arrivals * served.whole(s_.output).value;
      if (there > most && running >= most) return std::nullopt;
      const auto next = static_cast<std::uint32_t>(std::clamp(there, 1.0, most));
      if (next == running) break;
      running = next;
      served = under_arrivals(running, arrivals);
    }
    return served;
  }
  // As many as fit, while others wait.
  [[nodiscard]] Served crowded() const {
    return closed_loop(static_cast<std::uint32_t>(std::min<std::uint64_t>(cost_.largest_batch(residency_), 4096)));
  }
  // Tokens a second with requests waiting: as many run as fit, and each step has its share of new prompts.
  [[nodiscard]] std::optional<Estimate> saturated() const {
    const std::uint64_t batch = cost_.largest_batch(residency_);
    if (batch == 0) return std::nullopt;
    const auto running = static_cast<double>(batch);
    const Estimate beside = beside_step(running / s_.output);
    return throughput(sum(cost_.predict(residency_, batch, beside.value).step, beside), running);
  }

 private:
  static constexpr double kChunk = 8192;  // tokens, where the engine states none
  // Prompts that are computed before one's own, of the clients: half of the burst that begins a loop of ten rounds.
  static constexpr double kPromptsAheadShare = 0.05;
  static constexpr double kInMostSteps = 0.5;  // prompts a step
  static constexpr double kQueueSpread = 0.3, kArrivalSpread = 0.3;  // judgement, as of all constants of that kind

  // So many prompts, computed together as far as a chunk holds them.
  [[nodiscard]] Estimate prompts(double count) const {
    const double most = std::max(1.0, std::floor(std::min(s_.engine.prompt_chunk, kChunk) / s_.input));
    const double whole = std::floor(std::clamp(count, 1.0, most));
    const auto of = [&](double together) { return cost_.prefill(residency_, static_cast<std::uint64_t>(together)); };
    if (count <= 1 || whole == most) return scaled(of(whole), count / whole);
    const double share = count - whole;
    return share > 0 ? sum(scaled(of(whole), 1 - share), scaled(of(whole + 1), share)) : of(whole);
  }
  // The prompts of a step, so many on average: those whose places become free in the same step are computed together.
  [[nodiscard]] Estimate beside_step(double arriving) const {
    const double steps = arriving > 0 ? 1 - std::exp(-arriving) : 1;  // that have any
    return scaled(prompts(arriving / steps), steps);
  }

  [[nodiscard]] Served under_arrivals(std::uint32_t running, double arrivals) const {
    const Estimate prompt = cost_.prefill(residency_, 1);
    const double busy = std::min(0.9, arrivals * prompt.value);  // share of time that goes to prompts
    const Estimate step = cost_.predict(residency_, running).step;
    const Estimate first = sum(scaled(prompt, 1 / (1 - busy)), scaled(step, 0.5));
    const Estimate token = scaled(step, 1 / (1 - busy));
    return {sum(first, arrival()), token, arrivals * token.value < kInMostSteps ? step : token};
  }
  // Until a request has its place in a batch.
  [[nodiscard]] Estimate arrival() const {
    const double seconds = s_.engine.arrival_us * 1e-6;
    return unsure({seconds, seconds, seconds, seconds, seconds, CostTerm::kHost}, kArrivalSpread);
  }

  const PublishedSetting& s_;
  CostModel cost_;
  ResidencySummary residency_;
};

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
  const Server server(s);
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
  const auto pick = [&](const Served& served) -> std::optional<Estimate> {
    if (metric.starts_with("ttft")) return served.first_token;
    if (metric.starts_with("itl_median") || metric.starts_with("itl_p50")) return served.most_tokens;
    if (metric.starts_with("tpot") || metric.starts_with("itl")) return served.token;
    if (metric.starts_with("e2e") || metric == "total_latency") return served.whole(s.output);
    return std::nullopt;
  };
  const auto at = [&](std::uint32_t clients) { return pick(server.closed_loop(clients)); };
  std::optional<Estimate> e;
  const bool crowded = s.saturated && !s.batch;
  if (crowded || (s.open_loop && s.arrivals)) {
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
  const Server server(s);
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
  const Server server(s);
  const MemoryLedger ledger = server.cost().ledger(server.residency(), *s.batch);
  if (row.metric == "fits_in_memory") {
    const double fits = ledger.fits() ? 1 : 0;
    return Estimate{fits, fits, fits, fits, fits, CostTerm::kMemory};
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
    return PublishedKernel{cost.product(m, n, k), Bytes(static_cast<std::uint64_t>(bytes)), 2.0 * m * n * k, false};
  }
  unsigned heads = 0, kv_heads = 0, width = 0;
  if (std::sscanf(row.model.c_str(), "decode attention %uq/%ukv heads x%u", &heads, &kv_heads, &width) == 3) {
    if (kv_heads == 0 || kv_heads > kMostHeads || width == 0 || width > kMostWidth || !s.batch) {
      return failure("heads that no model has");
    }
    const unsigned held = holds_keys_alone(row, heads, kv_heads) ? 1 : 2;
    const Bytes kv(std::uint64_t{*s.batch} * s.input * kv_heads * width * held * s.deployment.types.kv.bits() / 8);
    return PublishedKernel{cost.attention_call(kv, static_cast<double>(*s.batch) * kv_heads), kv, 0, true};
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
