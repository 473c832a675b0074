// kvroof analyze: a trace → the attention statistics of the papers, as tables, JSON, CSV and pictures.
#include <fmt/format.h>

#include <optional>

#include "analysis/analysis.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/replay/analyze_output.hpp"
#include "apps/replay/rotation_note.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

// Examples, then the analyses there are.
std::string_view examples() {
  static const std::string text = [] {
    std::string lines =
        "  kvroof analyze run.kvt --all -o analyses      # every analysis; open analyses/index.html\n"
        "  kvroof analyze run.kvt mass,persistence --layers 0..3\n"
        "  kvroof analyze run.kvt sparsity --format csv\n"
        "  kvroof analyze run.kvt policy --policy h2o,keyformer --budget 0.2,0.5\n\nanalyses:";
    for (const AnalysisInfo& info : analysis_table()) lines += fmt::format("\n  {:<16} {}", info.name, info.title);
    return lines;
  }();
  return text;
}

void describe_analyze(po::options_description_easy_init add) {
  add("all", "every analysis; the default when none is named");
  add("layers", po::value<std::string>(), "only these layers, from 0: A..B, or one");
  add("policy", po::value<std::string>()->default_value("window,h2o,keyformer"),
      "of the analysis `policy`: as in replay");
  add("budget", po::value<std::string>(), "budgets for the policies that carry none (default 0.5)");
}

std::vector<const AnalysisInfo*> chosen(const Arguments& arguments) {
  std::vector<const AnalysisInfo*> analyses;
  const bool named = arguments.positional.size() > 1;
  if (named && arguments.has("all")) throw usage_error("--all and names of analyses exclude each other");
  if (!named) {
    for (const AnalysisInfo& info : analysis_table()) analyses.push_back(&info);
    return analyses;
  }
  for (const std::string& name : split_list("analyses", arguments.positional[1])) {
    analyses.push_back(&find_analysis(name));
  }
  return analyses;
}

// "3" or "3..7".
void read_layers(const Arguments& arguments, AnalyzeOptions& options) {
  if (!arguments.has("layers")) return;
  const auto& text = arguments.get<std::string>("layers");
  const std::size_t dots = text.find("..");
  options.first_layer = static_cast<std::uint32_t>(whole_value("layers", text.substr(0, dots), 0, 1023));
  options.last_layer = options.first_layer;
  if (dots == std::string::npos) return;
  options.last_layer = static_cast<std::uint32_t>(whole_value("layers", text.substr(dots + 2), 0, 1023));
  if (options.last_layer < options.first_layer) {
    throw usage_error(fmt::format("--layers {}: expected the lower layer first", text));
  }
}

// A range that reaches past the model's last layer ends with it; one that begins there is refused by analyze().
void note_clipped_layers(const Arguments& arguments, const AnalyzeOptions& options, const TraceManifest& manifest) {
  const std::size_t layers = manifest.layers.size();
  if (!arguments.has("layers") || arguments.quiet) return;
  if (options.first_layer >= layers || options.last_layer < layers) return;
  say("note: --layers {}: the trace has layers 0 to {}; analysed are {}..{}\n",
      arguments.get<std::string>("layers"), layers - 1, options.first_layer, layers - 1);
}

// As replay reads them, but with half of the prompt where no budget was asked for.
std::vector<PolicySpec> points_of(const Arguments& arguments) {
  std::vector<PolicySpec> points = policy_points(arguments, parse_budget("0.5").or_throw("--budget"));
  require_scores(points);
  return points;
}

int run_analyze(const Arguments& arguments) {
  const std::vector<const AnalysisInfo*> analyses = chosen(arguments);
  AnalyzeOptions options;
  read_layers(arguments, options);
  options.points = points_of(arguments);
  const auto is_policy = [](const AnalysisInfo* info) { return info->name == "policy"; };
  if ((arguments.has("policy") || arguments.has("budget")) && std::ranges::none_of(analyses, is_policy)) {
    throw usage_error(fmt::format("--{} is of the analysis `policy`; name it as well",
                                  arguments.has("policy") ? "policy" : "budget"));
  }
  std::optional<std::filesystem::path> folder;
  if (arguments.has("out")) folder = arguments.get<std::string>("out");
  if (folder) check_new_folder(*folder);
  const TraceReader trace = TraceReader::open_attention(arguments.positional.front());
  note_clipped_layers(arguments, options, trace.manifest());
  const bool of_policies = std::ranges::any_of(analyses, is_policy);
  const std::string unknown = of_policies ? rotation_note(trace.manifest(), options.points) : "";
  if (!unknown.empty() && !arguments.quiet) say("note: {}\n", unknown);
  const std::string& policy = trace.manifest().policy;
  if (policy != kFullAttention && !arguments.quiet) {
    say("note: recorded under {}: attention is over all recorded tokens, also those it had evicted\n",
        policy);
  }
  std::vector<AnalysisResult> results;
  {
    Progress progress(arguments, "analysing");
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.at(done, total); };
    ThreadPool pool(arguments.threads);
    results = analyze(trace, analyses, options, pool);
  }
  const AnalyzeAnswer answer{arguments, trace, results};
  if (folder) write_folder(answer, *folder);
  const Format format = format_of(arguments);
  const std::string text = format == Format::kJson  ? analyze_json(answer)
                           : format == Format::kCsv ? analyze_csv(results)
                                                    : analyze_table(answer);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (folder && !arguments.quiet) {
    say("{}: pictures and data of {} {}; open index.html\n", folder->string(), results.size(),
        results.size() == 1 ? "analysis" : "analyses");
  }
  return 0;
}

}  // namespace

Command analyze_command() {
  Command command;
  command.name = "analyze";
  command.summary = "the attention statistics of the papers on a recorded run: tables, data, pictures";
  command.usage = "run.kvt [NAME,…] [-o DIR] [options]";
  command.examples = examples();
  command.describe = &describe_analyze;
  command.run = &run_analyze;
  command.min_positional = 1;
  command.max_positional = 2;
  command.out = "also write data and pictures into this new folder";
  return command;
}

}  // namespace kvroof
