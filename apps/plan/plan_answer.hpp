// What `kvroof plan` says in sentences: the answer, and what to change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/plan/plan_search.hpp"
#include "sim/core/units.hpp"

namespace kvroof {

// A line of the memory ledger.
struct LedgerLine {
  const char* name;
  const char* key;
  Bytes bytes;
};
std::vector<LedgerLine> lines_of(const MemoryLedger& m);

struct Question {
  const WorkloadRequest& request;
  const Device& device;
  const Goals& goals;
  const std::vector<Plan>& plans;  // of all deployments and caches that were asked for
  std::vector<Remedy> remedies;    // where the best one does not meet the goals
  bool longest_prompt = false;     // asked for, and is the request's
};

// "one sequence", "3 sequences".
std::string sequences_text(std::uint64_t count);
// Of the plan's cache.
KvType kv_type_of(const Question& q, const Plan& plan);
// The first sentence: how many, how fast, and what allows no more.
std::string answer_text(const Question& q, const Plan& plan);
// What would let more sequences in, or the goals be met.
std::string advice_text(const Question& q, const Plan& plan);

}  // namespace kvroof
