// The numbers that run and record give beside the text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/engine/session.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

struct RunFacts {
  std::string backend;
  std::string linear;              // which kernels make products; empty: the back end has no choice
  PolicySpec policy;
  DType weight_type = DType::kF32;
  KvType kv_type = DType::kF32;
  unsigned threads = 1;
  std::uint32_t max_tokens = 0;    // asked for
  std::uint32_t context = 0;       // tokens that the model's positions reach
  std::vector<std::string> notes;  // on what the policy makes of its parameters
};

// How fast decoding read weights, k and v, beside a plain read of this host's memory by as many threads.
struct ReadSpeed {
  double reached = 0;  // bytes/s
  double host = 0;
  unsigned threads = 1;
  std::uint64_t step_bytes = 0;   // weights, k and v that a step reads, the next one again
  std::uint64_t cache_bytes = 0;  // of the host's caches of the last level

  // Then the memory's speed is no limit.
  [[nodiscard]] bool cached() const { return step_bytes <= cache_bytes; }
};

// Measures the host, for as long as decoding took but at most about 0.3 s; nothing when no token was decoded, or not by
// the host, or where the host has no memory left for it.
std::optional<ReadSpeed> measure_read_speed(const RunFacts& facts, const SessionResult& result);

// Adds how the run was made: policy, types, notes.
void add_facts(nlohmann::json& json, const RunFacts& facts);
// Adds the sums over all sequences: tokens, KV bytes, bytes by cause; and speeds, which alone differ from run to run.
void add_totals(nlohmann::json& json, const SessionResult& result, const std::optional<ReadSpeed>& speed);

// The same for people, on stderr. trace_bytes: 0 when nothing was recorded.
void print_summary(const RunFacts& facts, const SessionResult& result, const std::optional<ReadSpeed>& speed,
                   std::uint64_t trace_bytes);

}  // namespace kvroof
