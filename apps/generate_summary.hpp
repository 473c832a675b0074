// The numbers that run and record give beside the text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/engine/session.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

struct RunFacts {
  std::string backend;
  PolicySpec policy;
  DType weight_type = DType::kF32;
  DType kv_type = DType::kF32;
  unsigned threads = 1;
};

// Adds what depends on the input and the seed alone: policy, types, bytes. Speeds are not results; they go to stderr.
void add_counts(nlohmann::json& json, const RunFacts& facts, const SessionResult& result);

// Speeds, KV bytes, bytes per token by cause and the share of this host's read bandwidth (measured now, about 0.3 s),
// on stderr. trace_bytes: 0 when nothing was recorded.
void print_summary(const RunFacts& facts, const SessionResult& result, std::uint64_t trace_bytes);

}  // namespace kvroof
