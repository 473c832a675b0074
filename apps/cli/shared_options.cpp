#include "apps/cli/shared_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/token_scores_file.hpp"
#include "apps/cli/values.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"
#include "sim/policy/head_values.hpp"
#include "sim/policy/policy.hpp"

namespace fs = std::filesystem;

namespace kvroof {

fs::path model_folder(const Arguments& arguments) {
  if (!arguments.has("model")) {
    throw usage_error("--model DIR is missing: a Hugging Face folder with config.json and model.safetensors")
        .note("the bundled model is `--model demo`");
  }
  const fs::path given = arguments.get<std::string>("model");
  std::error_code ignored;
  if (fs::exists(given, ignored)) return given;
  const fs::path models = data_folder() / "models";
  const bool plain_name = given == given.filename();
  if (plain_name && fs::is_directory(models / given, ignored)) return models / given;
  std::vector<std::string> known;
  for (const auto& entry : fs::directory_iterator(models, ignored)) known.push_back(entry.path().filename().string());
  throw usage_error(fmt::format("--model {}: no such folder{}", given.string(),
                                plain_name ? did_you_mean(given.string(), known) : std::string()))
      .note("it takes a Hugging Face folder, or the name of a bundled model: " + join(known));
}

std::optional<DType> float_type_option(const Arguments& arguments, const std::string& option) {
  if (!arguments.has(option)) return std::nullopt;
  return float_type_value(option, arguments.get<std::string>(option));
}

std::optional<KvType> kv_type_option(const Arguments& arguments) {
  if (!arguments.has("kv")) return std::nullopt;
  return kv_type_value(arguments.get<std::string>("kv"));
}

std::string kv_problem(const PolicySpec& point, std::optional<KvType> type) {
  if (point.kv && type && *point.kv != *type) {
    return fmt::format("--kv {}: {} has a cache of {} by its name; leave out --kv or name the policy", name_of(*type),
                       point.text(), name_of(*point.kv));
  }
  const std::optional<KvType> taken = point.kv ? point.kv : type;
  if (!taken) return {};
  const PolicyTraits traits = policy_info(point.name).traits(point);
  const bool ages_all = taken->by_age() && traits.keeps_all();
  const bool follows = !traits.merges && !traits.slot_positions() && traits.page == 0;
  if (!ages_all && (follows || !taken->quantised())) return {};
  const char* what = ages_all          ? "chooses anew among all tokens"
                     : traits.merges   ? "merges rows"
                     : traits.page > 0 ? "chooses pages by keys as they were written"
                                       : "has rows stand at other positions than they were stored for";
  return fmt::format("--kv {}: {} {}, which no such cache follows; take f16 or bf16", name_of(*taken), point.text(),
                     what);
}

void set_kv_type(std::vector<PolicySpec>& points, std::optional<KvType> type) {
  for (PolicySpec& point : points) {
    if (const std::string problem = kv_problem(point, type); !problem.empty()) throw usage_error(problem);
    if (!point.kv) point.kv = type;
  }
}

bool asks_for_list(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional;
  return words.empty() || (words.size() == 1 && words.front() == "list");
}

Error not_show(const std::string& verb, const std::string& word, std::vector<std::string> names) {
  for (std::string& name : names) name.insert(0, "show ");
  const auto nearest = nearest_name("show " + word, names);
  const std::vector<std::string> known = {"show"};
  return usage_error(fmt::format("{0} {1}: expected `{0}` or `{0} show NAME`{2}", verb, word,
                                 nearest ? fmt::format("; did you mean `{} {}`?", verb, *nearest)
                                         : did_you_mean(word, known)));
}

std::string svg_file(const Arguments& arguments) {
  const std::string svg = arguments.has("svg") ? arguments.get<std::string>("svg") : "";
  if (svg.ends_with(".png") || svg.ends_with(".pdf")) {
    throw usage_error(fmt::format("--svg {}: the picture is an SVG; give it a name that ends with .svg", svg))
        .note("`rsvg-convert -z 2 F.svg -o F.png` makes a PNG of it");
  }
  return svg;
}

std::size_t named_policies(const Arguments& arguments) {
  std::vector<std::string> names;
  for (const PolicySpec& spec : parse_policies(arguments.get<std::string>("policy"))) {
    const std::string name = spec.text();
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names.size();
}

static bool takes_file(const PolicySpec& spec) {
  return std::ranges::find(policy_info(spec.name).params, std::string_view("file"), &ParamInfo::name) !=
         policy_info(spec.name).params.end();
}

static bool has_model_repeat(const PolicySpec& spec) { return asks_for(spec, HostNeed::kRepetition); }

void require_scores(std::span<const PolicySpec> points) {
  const auto lacking = std::ranges::find_if(points, has_model_repeat);
  if (lacking == points.end()) return;
  throw usage_error(fmt::format("policy {}: file= is missing: a recording has no passes in which the model repeats the "
                                "prompt", lacking->name))
      .note("`kvroof run --policy kvzip:budget=0.5 --dump-scores F`, of the same prompt, writes them");
}

std::vector<PolicySpec> policy_points(const Arguments& arguments, const std::optional<Budget>& fallback) {
  std::vector<PolicySpec> policies = parse_policies(arguments.get<std::string>("policy"));
  std::vector<Budget> budgets;
  if (arguments.has("budget")) {
    for (const std::string& item : split_list("budget", arguments.get<std::string>("budget"))) {
      Result<Budget> budget = parse_budget(item);
      if (!budget) throw usage_error(fmt::format("--budget {}: {}", item, budget.error()));
      budgets.push_back(std::move(budget).value());
    }
  }
  const auto lacks_budget = [](const PolicySpec& spec) {
    return !spec.has_budget && policy_info(spec.name).takes_budget;
  };
  if (fallback && budgets.empty() && std::ranges::any_of(policies, lacks_budget)) budgets.push_back(*fallback);
  constexpr std::size_t kMostBytes = std::size_t{1} << 24;
  std::vector<PolicySpec> points;
  std::map<std::string, std::shared_ptr<const TokenScores>> scores;  // by file
  for (PolicySpec& point : cross_budgets(std::move(policies), budgets)) {
    const std::string heads(point.find("heads").value_or("none"));
    if (heads != "none" && point.head_values.empty()) {
      const std::string what = fmt::format("policy {}: heads={}", point.name, heads);
      const std::string text = read_text_file(heads, kMostBytes).or_throw(what, ExitCode::kUsage);
      point.head_values = parse_head_values(text).or_throw(what, ExitCode::kUsage);
    }
    if (const std::string file(point.find("file").value_or("none")); file != "none") {
      const std::string what = fmt::format("policy {}: file={}", point.name, file);
      auto& read = scores[file];
      if (read == nullptr) read = read_token_scores(file).or_throw(what, ExitCode::kUsage);
      point.token_scores = read;
    } else if (takes_file(point) && !has_model_repeat(point)) {
      throw usage_error(fmt::format("policy {}: file= is missing: expected a safetensors file with a tensor `scores`",
                                    point.name));
    }
    const auto same = [&](const PolicySpec& other) { return other.text() == point.text(); };
    if (std::none_of(points.begin(), points.end(), same)) points.push_back(std::move(point));
  }
  return points;
}

}  // namespace kvroof
