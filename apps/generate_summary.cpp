#include "apps/generate_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "kernels/cpu/bandwidth.hpp"

namespace kvroof {
namespace {

std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, kUnits[unit]);
}

double per_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

void print_bytes_per_token(const SessionResult& result) {
  const auto tokens = static_cast<double>(result.decoded_tokens);
  std::string parts;
  for (std::size_t i = 0; i < kCauses; ++i) {
    const std::uint64_t bytes = result.decode_bytes.bytes[i];
    if (bytes > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : " · ", kCauseNames[i],
                           bytes_text(static_cast<double>(bytes) / tokens));
  }
  fmt::print(stderr, "a decoded token moves {}: {}\n",
             bytes_text(static_cast<double>(result.decode_bytes.total()) / tokens), parts);
}

// Activations stay in the caches; what has to come from memory is weights, k and v.
void print_bandwidth(const RunFacts& facts, const SessionResult& result) {
  const double bytes = static_cast<double>(result.decode_bytes[Cause::kWeights] + result.decode_bytes[Cause::kKvRead]);
  const double reached = bytes / result.decode_seconds;
  const unsigned threads = facts.backend == "reference" ? 1 : facts.threads;
  const double host = measure_read_bandwidth(threads);
  fmt::print(stderr, "weights and KV are read at {:.2f} GB/s, {:.0f} % of the {:.1f} GB/s that {} thread{} read here\n",
             reached / 1e9, 100 * reached / host, host / 1e9, threads, threads == 1 ? "" : "s");
}

}  // namespace

void add_counts(nlohmann::json& json, const RunFacts& facts, const SessionResult& result) {
  json["policy"] = facts.policy.text();
  json["budget"] = facts.policy.budget.describe();
  json["backend"] = facts.backend;
  json["weight_type"] = name_of(facts.weight_type);
  json["kv_type"] = name_of(facts.kv_type);
  json["decoded_tokens"] = result.decoded_tokens;
  json["kv_resident_bytes"] = result.last_usage.resident_bytes;
  json["kv_allocated_bytes"] = result.last_usage.allocated_bytes;
  json["kv_peak_bytes"] = result.last_usage.peak_bytes;
  for (std::size_t i = 0; i < kCauses; ++i) {
    json["prefill_bytes"][std::string(kCauseNames[i])] = result.prefill_bytes.bytes[i];
    json["decode_bytes"][std::string(kCauseNames[i])] = result.decode_bytes.bytes[i];
  }
}

void print_summary(const RunFacts& facts, const SessionResult& result, std::uint64_t trace_bytes) {
  fmt::print(stderr, "\npolicy {} ({}), {} back end, weights {}, KV cache {}\n", facts.policy.text(),
             facts.policy.budget.describe(), facts.backend, name_of(facts.weight_type), name_of(facts.kv_type));
  fmt::print(stderr, "prefill {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s\n", result.prompt_tokens,
             per_second(result.prompt_tokens, result.prefill_seconds), result.decoded_tokens,
             per_second(result.decoded_tokens, result.decode_seconds));
  fmt::print(stderr, "KV cache {} resident, {} allocated, {} at the peak\n",
             bytes_text(static_cast<double>(result.last_usage.resident_bytes)),
             bytes_text(static_cast<double>(result.last_usage.allocated_bytes)),
             bytes_text(static_cast<double>(result.last_usage.peak_bytes)));
  if (result.decoded_tokens > 0) {
    print_bytes_per_token(result);
    print_bandwidth(facts, result);
  }
  if (trace_bytes > 0) fmt::print(stderr, "trace {}\n", bytes_text(static_cast<double>(trace_bytes)));
}

}  // namespace kvroof
