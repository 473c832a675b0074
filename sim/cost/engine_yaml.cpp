// The form of engine files: numbers, flags and lists of a profile, of its earlier versions and of other boards.
#include "sim/cost/engine_profile.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "sim/core/version.hpp"
#include "sim/cost/weight_format.hpp"

namespace kvroof {
namespace {

using P = EngineProfile;

struct Field {
  std::string_view key;
  std::variant<bool P::*, std::uint32_t P::*, double P::*> member;
  double lowest, highest;
};
constexpr double kSecond = 1e6;  // microseconds; nothing of a step takes longer
constexpr Field kFields[] = {
    {"on_cpu", &P::on_cpu, 0, 1},
    {"linears_per_layer", &P::linears_per_layer, 1, 64},
    {"kernels_per_layer", &P::kernels_per_layer, 1, 1024},
    {"small_kernels", &P::small_kernels, 0, 1024},
    {"policy_kernels", &P::policy_kernels, 0, 64},
    {"activation_bytes", &P::activation_bytes, 1, 8},
    {"activation_share", &P::activation_share, 0, 1},
    {"policy_share", &P::policy_share, 0.01, 1},
    {"halves_float32", &P::halves_float32, 0, 1},
    {"bf16_of_float32", &P::bf16_of_float32, 0, 1},
    {"unties_head", &P::unties_head, 0, 1},
    {"quantises_activations", &P::quantises_activations, 0, 1},
    {"quantises_fp4_apart", &P::quantises_fp4_apart, 0, 1},
    {"unpacked_starts", &P::unpacked_starts, 1, 16},
    {"unpacking", &P::unpacking, 0, 16},
    {"column_share", &P::column_share, 0, 1},
    {"unpacked_share", &P::unpacked_share, 0.1, 1},
    {"bytes_per_clock", &P::bytes_per_clock, 0, 1024},
    {"plain_bytes_per_clock", &P::plain_bytes_per_clock, 0, 1024},
    {"routed_kernels", &P::routed_kernels, 0, 64},
    {"native_routed_kernels", &P::native_routed_kernels, 0, 64},
    {"listed_expert_us", &P::listed_expert_us, 0, 100},
    {"experts_us", &P::experts_us, 0, kSecond},
    {"unpacked_experts_us", &P::unpacked_experts_us, 0, 1000},
    {"quantises_experts_apart", &P::quantises_experts_apart, 0, 1},
    {"shared_with_routed", &P::shared_with_routed, 0, 1},
    {"beside_experts_bits", &P::beside_experts_bits, 0, 16},
    {"fused_attention", &P::fused_attention, 0, 1},
    {"probability_copies", &P::probability_copies, 0, 16},
    {"reads_by_query_head", &P::reads_by_query_head, 0, 1},
    {"cache_passes", &P::cache_passes, 0, 64},
    {"expands_latent", &P::expands_latent, 0, 1},
    {"chosen_share", &P::chosen_share, 0.01, 1},
    {"chosen_prompt_share", &P::chosen_prompt_share, 0.01, 1},
    {"short_prompts_whole", &P::short_prompts_whole, 0, 1},
    {"index_us", &P::index_us, 0, kSecond},
    {"choose_rows_us", &P::choose_rows_us, 0, kSecond},
    {"graphs", &P::graphs, 0, 1},
    {"graphs_of_tokens", &P::graphs_of_tokens, 0, 1},
    {"graphs_over_stages", &P::graphs_over_stages, 0, 1},
    {"launch_us", &P::launch_us, 0, kSecond},
    {"eager_launch_us", &P::eager_launch_us, 0, kSecond},
    {"prompt_launch_us", &P::prompt_launch_us, 0, kSecond},
    {"gap_us", &P::gap_us, 0, kSecond},
    {"launch_gap_us", &P::launch_gap_us, 0, kSecond},
    {"step_us", &P::step_us, 0, kSecond},
    {"request_us", &P::request_us, 0, kSecond},
    {"hidden_request_us", &P::hidden_request_us, 0, kSecond},
    {"logits_ns", &P::logits_ns, 0, 1000},
    {"top_p_ns", &P::top_p_ns, 0, 1000},
    {"prompts_first", &P::prompts_first, 0, 1},
    {"prompts_together", &P::prompts_together, 0, 1},
    {"prompt_chunk", &P::prompt_chunk, 1, 1e9},
    {"step_tokens", &P::step_tokens, 0, 1e9},
    {"admits_by_prompt", &P::admits_by_prompt, 0, 1},
    {"largest_batch", &P::largest_batch, 1, 1e9},
    {"arrival_us", &P::arrival_us, 0, kSecond},
    {"prompts_ahead", &P::prompts_ahead, 0, 1000},
    {"settles_ahead", &P::settles_ahead, 0, 1},
    {"waited_steps", &P::waited_steps, 0, 100},
    {"takes_stored_cache", &P::takes_stored_cache, 0, 1},
    {"fills_memory", &P::fills_memory, 0, 1},
    {"paged_cache", &P::paged_cache, 0, 1},
    {"state_pages", &P::state_pages, 0, 1},
    {"float32_states", &P::float32_states, 0, 1},
    {"float32_state_rows", &P::float32_state_rows, 0, 1},
    {"keeps_hidden_rows", &P::keeps_hidden_rows, 0, 1},
    {"evicts_after_prompt", &P::evicts_after_prompt, 0, 1},
    {"beam_copies", &P::beam_copies, 0, 16},
    {"reserve_gib", &P::reserve_gib, 0, 64},
    {"reserve_fraction", &P::reserve_fraction, 0, 0.9},
    {"measured_stages", &P::measured_stages, 0, 1},
    {"measured_groups", &P::measured_groups, 0, 1},
    {"stages_by_default", &P::stages_by_default, 0, 1},
    {"overlaps_stages", &P::overlaps_stages, 0, 1},
    {"short_ends", &P::short_ends, 0, 1},
    {"product_us", &P::product_us, 0, kSecond},
    {"shared_step_us", &P::shared_step_us, 0, kSecond},
    {"sum_us", &P::sum_us, 0, kSecond},
    {"sum_doubling_us", &P::sum_doubling_us, 0, kSecond},
    {"norms_in_sums", &P::norms_in_sums, 0, 1},
    {"second_shot_us", &P::second_shot_us, 0, kSecond},
};

std::string line_of(const YAML::Node& node) { return fmt::format("line {}", node.Mark().line + 1); }

// Why the value is none of the field, or nothing.
std::string read_field(P& profile, const Field& field, const YAML::Node& node) {
  if (const auto* flag = std::get_if<bool P::*>(&field.member)) {
    if (YAML::convert<bool>::decode(node, profile.*(*flag))) return {};
    return fmt::format("{}: {} must be true or false", line_of(node), field.key);
  }
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value) ||
      !(value >= field.lowest && value <= field.highest)) {
    return fmt::format("{}: {} must be a number from {} to {}", line_of(node), field.key, field.lowest, field.highest);
  }
  if (const auto* number = std::get_if<double P::*>(&field.member)) {
    profile.*(*number) = value;
    return {};
  }
  if (value != std::floor(value)) return fmt::format("{}: {} must be a whole number", line_of(node), field.key);
  profile.*std::get<std::uint32_t P::*>(field.member) = static_cast<std::uint32_t>(value);
  return {};
}

// "4", or "8 to 256 by 8"; nothing for other text and for sizes that no engine has.
std::optional<std::array<unsigned, 3>> size_range(const std::string& text) {
  constexpr unsigned kMostSequences = 1U << 16;
  std::istringstream words(text);
  const std::vector<std::string> all(std::istream_iterator<std::string>(words), {});
  const bool several = all.size() == 5 && all[1] == "to" && all[3] == "by";
  if (!several && all.size() != 1) return std::nullopt;
  const auto count = [](const std::string& word) { return parse_number<unsigned>(word).value_or(0); };
  std::array<unsigned, 3> range = {count(all[0]), count(all[several ? 2 : 0]), 1};
  if (several) range[2] = count(all[4]);
  const bool possible = range[0] > 0 && range[1] >= range[0] && range[1] <= kMostSequences && range[2] > 0 &&
                        range[2] <= kMostSequences;
  return possible ? std::optional(range) : std::nullopt;
}

std::string read_graph_sizes(P& profile, const YAML::Node& node) {
  const std::string wrong = fmt::format(
      "{}: graph_sizes must be an ascending list of sizes and ranges such as [1, 2, 4, 8 to 256 by 8]", line_of(node));
  if (!node.IsSequence()) return wrong;
  profile.graph_sizes.clear();
  for (const auto& entry : node) {
    const auto range = entry.IsScalar() ? size_range(entry.Scalar()) : std::nullopt;
    const std::uint32_t before = profile.graph_sizes.empty() ? 0 : profile.graph_sizes.back();
    if (!range || (*range)[0] <= before) return wrong;
    for (unsigned size = (*range)[0]; size <= (*range)[1]; size += (*range)[2]) profile.graph_sizes.push_back(size);
  }
  return {};
}

// As they are written in the file: runs of three and more as ranges.
std::string graph_sizes_text(const std::vector<std::uint32_t>& sizes) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t last = i + 1 < sizes.size() ? i + 1 : i;
    while (last + 1 < sizes.size() && sizes[last + 1] - sizes[last] == sizes[i + 1] - sizes[i]) ++last;
    const bool range = last >= i + 2;
    parts.push_back(range ? fmt::format("{} to {} by {}", sizes[i], sizes[last], sizes[i + 1] - sizes[i])
                          : std::to_string(sizes[i]));
    i = range ? last + 1 : i + 1;
  }
  return join(parts);
}

std::string read_names(std::vector<std::string>& names, const std::string& key, const YAML::Node& node) {
  if (!node.IsSequence()) return fmt::format("{}: {} must be a list", line_of(node), key);
  names.clear();  // those of the version after it
  for (const auto& name : node) names.push_back(name.as<std::string>());
  return {};
}

std::string read_formats(std::vector<std::string>& names, const std::string& key, const YAML::Node& node) {
  std::string problem = read_names(names, key, node);
  for (const std::string& name : names) {
    if (!problem.empty() || parse_weight_format(name)) continue;
    problem = fmt::format("{}: {}: no such weight format: {}", line_of(node), key, name);
  }
  return problem;
}

std::string read_cache_types(std::vector<std::string>& names, const std::string& key, const YAML::Node& node) {
  std::string problem = read_names(names, key, node);
  for (const std::string& name : names) {
    if (!problem.empty() || name == name_of(KvType::kFp8) || parse_kv_type(name)) continue;
    problem = fmt::format("{}: {}: no such type of a cache: {}", line_of(node), key, name);
  }
  return problem;
}

// The line and name of a key that the map has twice, of which a reader would take either; or nothing.
std::string repeated_key(const YAML::Node& map) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const auto key = entry.first.as<std::string>();
    if (!seen.insert(key).second) return fmt::format("{}: key '{}' is there twice", line_of(entry.first), key);
  }
  return {};
}

std::string read_entry(P& profile, const std::string& key, const YAML::Node& node) {
  constexpr std::pair<std::string_view, std::string P::*> kTexts[] = {{"name", &P::name}, {"about", &P::about}};
  for (const auto& [text, member] : kTexts) {
    if (key != text) continue;
    if (!node.IsScalar() || node.Scalar().empty()) return fmt::format("{}: {} must be text", line_of(node), key);
    profile.*member = node.Scalar();
    return {};
  }
  if (key == "published_as") return read_names(profile.published_as, key, node);
  if (key == "runs_on") return read_names(profile.runs_on, key, node);
  if (key == "small_cache_with") return read_formats(profile.small_cache_with, key, node);
  if (key == "cache_types") return read_cache_types(profile.cache_types, key, node);
  if (key == "graph_sizes") return read_graph_sizes(profile, node);
  std::vector<std::string> known = {"name",    "about",            "graph_sizes", "published_as",
                                    "earlier", "small_cache_with", "elsewhere",   "cache_types",  "runs_on"};
  for (const Field& field : kFields) {
    if (field.key == key) return read_field(profile, field, node);
    known.emplace_back(field.key);
  }
  return fmt::format("{}: unknown key '{}'{}", line_of(node), key, did_you_mean(key, known));
}

// The versions that an earlier profile is before: stated, readable, and before those of the one above it.
std::string before_problem(const P& older, const P& newer, const YAML::Node& node) {
  if (older.before.empty()) return fmt::format("{}: an earlier version says which it is before", line_of(node));
  for (const std::string& version : older.before) {
    if (!is_version(version)) {
      return fmt::format("{}: before: '{}' is no version; expected one such as {}", line_of(node), version,
                         kVersionExamples);
    }
    for (const std::string& above : newer.before) {
      if (!earlier_version(above, version)) continue;
      return fmt::format("{}: before: {} comes after {}; earlier versions are listed newest first", line_of(node),
                         version, above);
    }
  }
  return {};
}

std::string read_from_gib(double& from_gib, const YAML::Node& node) {
  constexpr double kMost = 1 << 20;
  if (node.IsScalar() && YAML::convert<double>::decode(node, from_gib) && from_gib > 0 && from_gib <= kMost) return {};
  return fmt::format("{}: from_gib must be a number above 0, at most {}", line_of(node), kMost);
}

// An entry of a list reads what is other than in `newer`, which comes without its own lists; before and on as lists.
std::string read_other(P& other, const P& newer, const YAML::Node& node) {
  other = newer;
  other.before.clear();
  other.on.clear();
  other.from_gib = 0;
  if (!node.IsMap()) return fmt::format("{}: expected a map with before or on, and what is other", line_of(node));
  if (const std::string twice = repeated_key(node); !twice.empty()) return twice;
  for (const auto& entry : node) {
    const auto key = entry.first.as<std::string>();
    if (key == "name" || key == "published_as" || key == "earlier" || key == "elsewhere") {
      return fmt::format("{}: {} is of all versions", line_of(node), key);
    }
    const std::string problem = key == "before"     ? read_names(other.before, key, entry.second)
                                : key == "on"       ? read_names(other.on, key, entry.second)
                                : key == "from_gib" ? read_from_gib(other.from_gib, entry.second)
                                                    : read_entry(other, key, entry.second);
    if (!problem.empty()) return problem;
  }
  return {};
}

bool lists(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Gives the profile the chain of its earlier versions on an architecture, "" for those that no entry names.
std::string read_earlier(P& profile, const YAML::Node& list, std::string_view architecture) {
  std::vector<P> versions = {profile};
  for (const auto& node : list) {
    P older;
    std::string problem = read_other(older, versions.back(), node);
    if (problem.empty()) problem = before_problem(older, versions.back(), node);
    if (!problem.empty()) return problem;
    if (older.from_gib > 0) return fmt::format("{}: from_gib is of what an engine is elsewhere", line_of(node));
    if (!older.on.empty() && !lists(older.on, architecture)) continue;
    versions.push_back(std::move(older));
  }
  for (; versions.size() > 1; versions.pop_back()) versions[versions.size() - 2].earlier = {versions.back()};
  profile = std::move(versions.front());
  return {};
}

// An architecture ("": those that no entry names), and the memory from which on its boards are meant.
using Board = std::pair<std::string, double>;

// The boards that entries of both lists name: each architecture without a memory too.
std::set<Board> named_boards(const YAML::Node& root) {
  std::set<Board> boards;
  for (const char* list : {"elsewhere", "earlier"}) {
    for (const auto& entry : root[list]) {
      if (!entry.IsMap() || !entry["on"] || !entry["on"].IsSequence()) continue;
      double from_gib = 0;
      if (entry["from_gib"]) (void)read_from_gib(from_gib, entry["from_gib"]);
      for (const auto& name : entry["on"]) {
        for (const double from : {0.0, from_gib}) boards.insert({name.as<std::string>(), from});
      }
    }
  }
  return boards;
}

// Makes the profile what the engine is on one of those boards.
std::string read_lists(P& there, const YAML::Node& root, const Board& board) {
  const auto& [architecture, memory] = board;
  for (const auto& node : root["elsewhere"]) {
    P other;
    const std::string problem = read_other(other, there, node);
    if (!problem.empty()) return problem;
    if (other.on.empty()) return fmt::format("{}: elsewhere says which architectures it is on", line_of(node));
    if (lists(other.on, architecture) && memory >= other.from_gib) there = std::move(other);
  }
  there.on.assign(architecture.empty() ? 0 : 1, architecture);
  there.from_gib = memory;
  return root["earlier"] ? read_earlier(there, root["earlier"], architecture) : "";
}

}  // namespace

Result<EngineProfile> engine_from_yaml(std::string_view text) {
  if (text.size() > 1U << 16) return failure("an engine file has at most 64 KiB, this one has {} bytes", text.size());
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap()) return failure("expected a map with name, about and numbers");
    if (const std::string twice = repeated_key(root); !twice.empty()) return Failure{twice};
    EngineProfile profile;
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      const bool list = key == "earlier" || key == "elsewhere";
      const std::string problem = !list                         ? read_entry(profile, key, entry.second)
                                  : entry.second.IsSequence() ? ""
                                                              : fmt::format("{}: {} must be a list",
                                                                            line_of(entry.second), key);
      if (!problem.empty()) return Failure{problem};
    }
    std::vector<P> elsewhere;
    for (const Board& board : named_boards(root)) {
      elsewhere.push_back(profile);
      const std::string problem = read_lists(elsewhere.back(), root, board);
      if (!problem.empty()) return Failure{problem};
    }
    const std::string problem = read_lists(profile, root, {});
    if (!problem.empty()) return Failure{problem};
    profile.elsewhere = std::move(elsewhere);
    if (profile.name.empty() || profile.about.empty()) return failure("name and about are needed");
    return profile;
  } catch (const YAML::Exception& e) {
    return failure("not a valid YAML file: line {}: {}", e.mark.line + 1, e.msg);
  }
}

std::vector<EngineFact> engine_facts(const EngineProfile& profile) {
  std::vector<EngineFact> facts;
  for (const Field& field : kFields) {
    const auto text = [&](auto member) { return fmt::format("{}", profile.*member); };
    facts.push_back({field.key, std::visit(text, field.member)});
  }
  facts.push_back({"graph_sizes", graph_sizes_text(profile.graph_sizes)});
  facts.push_back({"small_cache_with", join(profile.small_cache_with)});
  facts.push_back({"cache_types", join(profile.cache_types)});
  facts.push_back({"runs_on", join(profile.runs_on)});
  return facts;
}

}  // namespace kvroof
