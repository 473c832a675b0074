#include "apps/generate/generate_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/cli/messages.hpp"
#include "kernels/cpu/bandwidth.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

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
  say("a decoded token moves {}: {}\n",
      bytes_text(static_cast<double>(result.decode_bytes.total()) / tokens), parts);
}

// Sequences that ended before the tokens asked for, and why.
void print_early_stops(const RunFacts& facts, const SessionResult& result) {
  for (const StopReason reason : {StopReason::kEndOfText, StopReason::kContext, StopReason::kInterrupted}) {
    std::vector<std::string> stops;
    for (std::size_t s = 0; s < result.sequences.size(); ++s) {
      if (result.sequences[s].stop != reason) continue;
      const std::string name = result.sequences.size() > 1 ? fmt::format("[{}] ", s) : std::string();
      stops.push_back(fmt::format("{}{}", name, result.sequences[s].ids.size()));
    }
    if (stops.empty()) continue;
    const std::string why = reason == StopReason::kContext
                                ? fmt::format("the context of the model, {} tokens, is full", facts.context)
                            : reason == StopReason::kEndOfText ? "end of text"
                                                               : "interrupted";
    say("stopped after {} of {} new tokens: {}\n", join(stops), facts.max_tokens, why);
  }
}

// ", products by …", where the back end has a choice.
std::string products_text(const RunFacts& facts) {
  if (facts.linear.empty()) return {};
  return ", products by " + (facts.linear == "own" ? "own kernels" : facts.linear);
}

// What a batch of large vocabularies takes of the host between its steps; not said where it hardly counts.
void print_choosing(const SessionResult& result) {
  if (result.choose_seconds < std::max(0.01, 0.05 * result.decode_seconds)) return;
  say("beside its {:.2f} s, choosing the tokens from logits took the host {:.2f} s\n",
      result.decode_seconds, result.choose_seconds);
}

}  // namespace

std::optional<ReadSpeed> measure_read_speed(const RunFacts& facts, const SessionResult& result) {
  if (result.decoded_tokens == 0 || facts.backend == "cuda") return std::nullopt;
  // Activations stay in the caches; what has to come from memory is weights, k and v.
  const std::uint64_t bytes = result.decode_bytes[Cause::kWeights] + result.decode_bytes[Cause::kKvRead];
  const unsigned threads = facts.backend == "reference" ? 1 : facts.threads;
  // Nobody should wait longer for the limit than for the tokens.
  const auto host = measure_read_bandwidth(threads, std::min(0.2, result.decode_seconds));
  if (!host) return std::nullopt;
  return ReadSpeed{static_cast<double>(bytes) / result.decode_seconds, *host, threads, bytes / result.decode_steps,
                   last_level_cache_bytes()};
}

void add_facts(nlohmann::json& json, const RunFacts& facts) {
  json["policy"] = facts.policy.text();
  json["budget"] = facts.policy.budget.describe();
  json["backend"] = facts.backend;
  json["linear"] = facts.linear.empty() ? nlohmann::json() : nlohmann::json(facts.linear);
  json["weight_type"] = name_of(facts.weight_type);
  json["kv_type"] = name_of(facts.kv_type);
  json["max_tokens"] = facts.max_tokens;
  json["notes"] = facts.notes;
}

void add_totals(nlohmann::json& json, const SessionResult& result, const std::optional<ReadSpeed>& speed) {
  json["prompt_tokens"] = result.prompt_tokens;
  json["decoded_tokens"] = result.decoded_tokens;
  json["kv_resident_bytes"] = result.last_usage.resident_bytes;
  json["kv_peak_bytes"] = result.last_usage.peak_resident_bytes;
  json["kv_allocated_bytes"] = result.last_usage.allocated_bytes;
  json["state_bytes"] = result.last_usage.state_bytes;
  json["kv_allocated_peak_bytes"] = result.last_usage.peak_bytes;
  for (std::size_t i = 0; i < kCauses; ++i) {
    json["prefill_bytes"][std::string(kCauseNames[i])] = result.prefill_bytes.bytes[i];
    json["decode_bytes"][std::string(kCauseNames[i])] = result.decode_bytes.bytes[i];
  }
  json["tokens_per_s"]["prefill"] = per_second(result.prompt_tokens, result.prefill_seconds);
  json["tokens_per_s"]["decode"] = per_second(result.decoded_tokens, result.decode_seconds);
  json["choose_seconds"] = result.choose_seconds;
  json["read_bandwidth"] = nullptr;
  if (!speed) return;
  json["read_bandwidth"] = {{"reached_bytes_per_s", speed->reached},
                            {"host_bytes_per_s", speed->host},
                            {"share", speed->reached / speed->host},
                            {"threads", speed->threads},
                            {"step_bytes", speed->step_bytes},
                            {"last_level_cache_bytes", speed->cache_bytes}};
}

void print_summary(const RunFacts& facts, const SessionResult& result, const std::optional<ReadSpeed>& speed,
                   std::uint64_t trace_bytes) {
  say("\npolicy {} ({}), {} back end{}, weights {}, KV cache {}\n", facts.policy.text(),
      facts.policy.budget.describe(), facts.backend, products_text(facts), name_of(facts.weight_type),
      name_of(facts.kv_type));
  say("prefill {}, {:.1f} tokens/s; decode {}, {:.1f} tokens/s\n", counted(result.prompt_tokens, "token"),
      per_second(result.prompt_tokens, result.prefill_seconds), counted(result.decoded_tokens, "token"),
      per_second(result.decoded_tokens, result.decode_seconds));
  print_choosing(result);
  print_early_stops(facts, result);
  const KvUsage& kv = result.last_usage;
  say("KV rows {} resident, {} at their peak; memory for them {} allocated, {} at its peak\n",
      bytes_text(kv.resident_bytes), bytes_text(kv.peak_resident_bytes), bytes_text(kv.allocated_bytes),
      bytes_text(kv.peak_bytes));
  if (kv.state_bytes > 0) say("states of layers without a cache {}\n", bytes_text(kv.state_bytes));
  if (result.decoded_tokens > 0) print_bytes_per_token(result);
  if (speed) {
    say(
        "weights and KV are read at {:.2f} GB/s, {:.0f} % of the {:.1f} GB/s at which {} thread{} read{} memory "
        "here{}\n",
        speed->reached / 1e9, 100 * speed->reached / speed->host, speed->host / 1e9, speed->threads,
        speed->threads == 1 ? "" : "s", speed->threads == 1 ? "s" : "",
        speed->cached() ? fmt::format("; the {} of a step fit in the last-level cache ({}), which is faster",
                                      bytes_text(speed->step_bytes), bytes_text(speed->cache_bytes))
                        : std::string());
  }
  if (trace_bytes == 0) return;
  say("trace {}\n", bytes_text(trace_bytes));
  if (facts.kv_type.quantised()) {
    say("it names the type of its cache, {}, whose bytes a replay has unless --kv names another\n",
        name_of(facts.kv_type));
  }
}

}  // namespace kvroof
