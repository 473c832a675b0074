// The one accounting of all policies, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "sim/traffic/accounting.hpp"

namespace kvroof {

// {kv: {resident_bytes, …}, policy: {…}, prompt: {…}}; docs/replay.md has the keys.
nlohmann::ordered_json accounting_json(const Accounting& a);

struct AccountingLine {
  std::string policy, budget;
  std::uint64_t batch = 1;
  Accounting accounting;
};
// Bytes held, allocated, written and moved, policy state, arithmetic; what prompts cost beside.
std::string accounting_table(std::span<const AccountingLine> lines);

}  // namespace kvroof
