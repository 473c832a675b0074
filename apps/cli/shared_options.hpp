// Options that several verbs read in the same way: the model folder, types, the points of a policy sweep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "sim/core/dtype.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// Of one run of an engine.
inline constexpr std::uint32_t kMostSequences = 4096, kMostTokens = 1U << 24;

// --model: a folder, or the name of one that is bundled. Throws Error (usage).
std::filesystem::path model_folder(const Arguments& arguments);

// f32, f16 or bf16 of an option, or nothing when it was not given. Throws Error (usage).
std::optional<DType> float_type_option(const Arguments& arguments, const std::string& option);

// --kv, or nothing when it was not given. Throws Error (usage).
std::optional<KvType> kv_type_option(const Arguments& arguments);
// Why a policy has no cache of this type, with the option; empty: it has. No type: the policy's own.
std::string kv_problem(const PolicySpec& point, std::optional<KvType> type);
// Gives `type`, where there is one, to the points that carry none of their own. Throws Error (usage) with the problem.
void set_kv_type(std::vector<PolicySpec>& points, std::optional<KvType> type);

// `kvroof VERB`, which `kvroof VERB list` means as well, of the verbs that have `kvroof VERB show NAME` beside it.
bool asks_for_list(const Arguments& arguments);
// The refusal of `kvroof VERB word`, where only `kvroof VERB` and `kvroof VERB show NAME` are; suggests the nearest.
Error not_show(const std::string& verb, const std::string& word, std::vector<std::string> names);

// --svg, where a picture goes; empty where none was asked for. Throws Error (usage) for the name of another kind.
std::string svg_file(const Arguments& arguments);

// How many policies --policy names, whether or not they have budgets. Throws Error (usage).
std::size_t named_policies(const Arguments& arguments);

// Of points that a recording is replayed under: throws Error (usage) where one would have the model repeat the prompt,
// for it then needs the scores of a file.
void require_scores(std::span<const PolicySpec> points);

// --policy crossed with --budget, each point once; `fallback` is the budget of policies without one where --budget was
// not given. Throws Error (usage).
std::vector<PolicySpec> policy_points(const Arguments& arguments, const std::optional<Budget>& fallback = {});

}  // namespace kvroof
