// kvroof policies: what the policies do, take and cost, from the table that the simulator itself uses.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/cli/command.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "sim/core/suggest.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/presets.hpp"

namespace kvroof {
namespace {

std::string rows_needed(const PolicyTraits& t) {
  if (t.rows == RowNeed::kNone) return t.page > 0 ? "none: q meets bounds of pages" : t.selects ? "logits" : "none";
  const std::string what = t.needs_weights ? "softmax weights" : "logits";
  if (t.rows == RowNeed::kAll) return what;
  const std::string which =
      t.last_rows == 1 ? "the prompt's last row" : fmt::format("the prompt's last {} rows", t.last_rows);
  return fmt::format("{} of {}{}", what, which, t.schedule == Schedule::kEveryStep ? " and of all decoded ones" : "");
}

std::string tensors_needed(const PolicyTraits& t) {
  std::vector<std::string> rows;
  if (t.tensors.keys) rows.emplace_back("k");
  if (t.tensors.values) rows.emplace_back("v");
  if (t.tensors.queries == TensorNeed::kWholePrompt) {
    rows.emplace_back("q of the prompt");
  } else if (t.tensors.queries > 0) {
    rows.push_back(fmt::format("q of the last {} prompt rows", t.tensors.queries));
  }
  if (rows.empty()) return "none";
  return join(rows) + (t.tensors.once ? ", once for each token" : "");
}

std::string when(const PolicyInfo& info, const PolicyTraits& t) {
  if (!info.takes_budget && !t.selects && t.capacities == Capacities::kBudget) return "never";
  if (t.keeps_all()) return "never: replay only";
  if (t.bound) return "after the prompt and every step: replay only";
  if (t.selects) return "never: reads a part of what is kept";
  if (t.streams_prompt) return "after every row, the prompt's too";
  if (t.repeats > 0) {
    return fmt::format("once after the prompt, which the model first repeats, {} tokens at a time", t.repeats);
  }
  if (t.schedule == Schedule::kPrefillOnly) return "once after the prompt";
  return t.interval == 1 ? "after the prompt and every step"
                         : fmt::format("after the prompt and every {} steps", t.interval);
}

std::string_view storage_unit(const PolicyTraits& t) {
  return t.unit == StorageUnit::kQueryHead ? "query head" : "KV head";
}

std::string state_text(const PolicyTraits& t) {
  if (t.page > 0) return fmt::format("the least and the largest key of every {} tokens", t.page);
  if (t.query_head_state == 0) return fmt::format("{}", t.state_bytes);
  return fmt::format("{} + {} a query head", t.state_bytes, t.query_head_state);
}

// All that can be named: policies, then presets.
std::vector<PolicySpec> listed_specs() {
  std::vector<PolicySpec> specs;
  for (const PolicyInfo& info : policy_table()) specs.push_back(parse_policies(info.name)[0]);
  for (const PolicyPreset& preset : preset_table()) specs.push_back(parse_policies(preset.name)[0]);
  return specs;
}

nlohmann::ordered_json policy_json(const PolicySpec& spec) {
  const PolicyInfo& info = policy_info(spec.name);
  const PolicyTraits t = info.traits(spec);
  nlohmann::ordered_json params = nlohmann::ordered_json::array();
  for (const ParamInfo& p : info.params) {
    params.push_back({{"name", p.name}, {"values", p.values}, {"default", p.fallback}, {"help", p.help}});
  }
  nlohmann::ordered_json kv = spec.kv ? nlohmann::ordered_json(name_of(*spec.kv)) : nullptr;
  return {{"policy", spec.text()},
          {"summary", info.summary},
          {"kv_type", std::move(kv)},
          {"source", info.source},
          {"takes_budget", info.takes_budget},
          {"parameters", std::move(params)},
          {"attention_rows", rows_needed(t)},
          {"tensors_read_to_evict", tensors_needed(t)},
          {"evicts", when(info, t)},
          {"stores_for_each", storage_unit(t)},
          {"state_bytes_per_slot", t.state_bytes},
          {"state_bytes_per_slot_and_query_head", t.query_head_state},
          {"prompt_sum_bytes_per_slot_and_query_head", t.query_head_sums},
          {"page_tokens", t.page},
          {"state_read_bytes_per_slot", t.state_read},
          {"state_written_bytes_per_slot", t.state_written},
          {"evict_read_bytes_per_slot", t.evict_read},
          {"flops_per_slot_and_query_head", t.flops_per_slot},
          {"noise_flops_per_slot_and_query_head", t.noise_flops_per_slot},
          {"noise_flops_per_token_and_query_head", t.noise_flops_per_token}};
}

std::string list_text() {
  constexpr std::size_t kIndent = 24;
  std::string text;
  for (const PolicyInfo& info : policy_table()) {
    text += fmt::format("{:<{}}", info.name, kIndent) +
            format_paragraph(std::string(info.summary), kIndent).substr(kIndent);
  }
  for (const PolicyPreset& preset : preset_table()) {
    const std::string what = fmt::format("{} (--kv {})", preset.summary, name_of(preset.kv));
    text += fmt::format("{:<{}}", preset.name, kIndent) + format_paragraph(what, kIndent).substr(kIndent);
  }
  return text + "\n" +
         format_paragraph(
             "SPEC = name[:key=value]…; budget=0.5 or 50% is a share of the prompt, 512 a count of tokens, 0.5@current "
             "a share of the current length, compression=r keeps int(n·(1 − r)). `kvroof policies show NAME` says "
             "more.",
             0);
}

std::string list_csv() {
  Table table;
  table.columns = {{"policy", "policy", false},
                   {"keeps", "summary", false},
                   {"attention rows", "attention_rows", false},
                   {"evicts", "evicts", false},
                   {"stores for each", "stores_for_each", false},
                   {"state (B a slot)", "state_bytes_per_slot"},
                   {"source", "source", false},
                   {"KV cache", "kv_type", false}};
  for (const PolicySpec& spec : listed_specs()) {
    const PolicyInfo& info = policy_info(spec.name);
    const PolicyTraits t = info.traits(spec);
    table.rows.push_back({spec.text(), std::string(info.summary), rows_needed(t), when(info, t),
                          std::string(storage_unit(t)), std::to_string(t.state_bytes), std::string(info.source),
                          spec.kv ? std::string(name_of(*spec.kv)) : ""});
  }
  return format_csv(table);
}

Table parameter_table(const PolicyInfo& info) {
  Table table;
  table.columns = {{"parameter", "parameter", false},
                   {"values", "values", false},
                   {"default", "default", false},
                   {"meaning", "help", false}};
  if (info.takes_budget) {
    table.rows.push_back({"budget", "share | tokens | share@current", "", "tokens that a head keeps, k"});
    table.rows.push_back({"compression", "share", "", "instead: the share of the prompt that goes"});
  }
  for (const ParamInfo& p : info.params) {
    table.rows.push_back({std::string(p.name), std::string(p.values), std::string(p.fallback), std::string(p.help)});
  }
  return table;
}

std::string show_text(const PolicySpec& spec) {
  const PolicyInfo& info = policy_info(spec.name);
  const PolicyTraits t = info.traits(spec);
  std::string text = fmt::format("{}: {}\nsource: {}\n\n", spec.text(), info.summary, info.source);
  if (spec.kv) text += fmt::format("KV cache             {}\n", name_of(*spec.kv));
  text += fmt::format("reads of attention   {}\n", rows_needed(t));
  text += fmt::format("reads to evict       {}\n", tensors_needed(t));
  text += fmt::format("evicts               {}\n", when(info, t));
  text += fmt::format("stores for each      {}\n", storage_unit(t));
  text += fmt::format("state (B a slot)     {}\n", state_text(t));
  text += fmt::format(
      "state traffic        {} B read and {} B written for each slot of a row, {} B read to choose victims\n",
      t.state_read + t.query_head_state + t.query_head_sums, t.state_written + t.query_head_sums, t.evict_read);
  text += fmt::format("arithmetic           {} flops for each slot and query head\n", t.flops_per_slot);
  if (t.noise_flops_per_slot > 0) {
    text += fmt::format("draws                {} flops for each slot and query head\n", t.noise_flops_per_slot);
  }
  if (t.noise_flops_per_token > 0) {
    text += fmt::format("draws                {} flops for each token and query head, once\n", t.noise_flops_per_token);
  }
  if (info.takes_budget) text += "\nparameters\n";
  for (const auto& row : parameter_table(info).rows) {
    text += fmt::format("  {:<12} {}{}\n", row[0], row[1], row[2].empty() ? "" : ", default " + row[2]);
    text += format_paragraph(row[3], 15);
  }
  return text;
}

int run_policies(const Arguments& arguments) {
  const Format format = format_of(arguments);
  if (asks_for_list(arguments)) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const PolicySpec& spec : listed_specs()) all.push_back(policy_json(spec));
    write_result(arguments, format == Format::kTable  ? list_text()
                            : format == Format::kJson ? all.dump(2) + "\n"
                                                      : list_csv());
    return 0;
  }
  const std::string& word = arguments.positional[0];
  if (word != "show") {
    std::vector<std::string> names;
    for (const PolicyInfo& info : policy_table()) names.emplace_back(info.name);
    for (const PolicyPreset& preset : preset_table()) names.emplace_back(preset.name);
    throw not_show("policies", word, names);
  }
  if (arguments.positional.size() < 2) {
    throw usage_error("policies show: a name is missing").note("`kvroof policies` lists the names");
  }
  const auto specs = parse_policies(arguments.positional[1]);
  if (specs.size() != 1) throw usage_error("policies show: expected one policy");
  write_result(arguments, format == Format::kTable  ? show_text(specs[0])
                          : format == Format::kJson ? policy_json(specs[0]).dump(2) + "\n"
                                                    : format_csv(parameter_table(policy_info(specs[0].name))));
  return 0;
}

}  // namespace

Command policies_command() {
  return {.name = "policies",
          .summary = "eviction policies: parameters, defaults, sources and overhead",
          .usage = "[list | show NAME] [options]",
          .examples =
              "  kvroof policies\n"
              "  kvroof policies show keyformer\n"
              "  kvroof policies show h2o:group=none --format json",
          .describe = [](boost::program_options::options_description_easy_init) {},
          .run = run_policies,
          .max_positional = 2};
}

}  // namespace kvroof
