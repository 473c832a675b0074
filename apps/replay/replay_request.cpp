#include "apps/replay/replay_request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/workload_weights.hpp"
#include "apps/replay/row_cache_check.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostReplayed = 1U << 20;  // of --batch; max finds larger ones

std::vector<BatchChoice> parse_batches(const Arguments& arguments, bool with_devices) {
  std::vector<BatchChoice> batches;
  for (const std::string& item : split_list("batch", arguments.get<std::string>("batch"))) {
    if (item != "max") {
      batches.emplace_back(count_value("batch", item, 1, kMostReplayed));
      continue;
    }
    if (!with_devices) throw usage_error("--batch max: the largest batch depends on a device; add --device");
    batches.emplace_back(std::nullopt);
  }
  return batches;
}

std::optional<std::uint32_t> parse_length(const Arguments& arguments, const std::string& option, std::uint32_t least) {
  if (!arguments.has(option)) return std::nullopt;
  if (!arguments.has("as")) {
    throw usage_error(fmt::format("--{} belongs to --as: without it lengths are as recorded", option));
  }
  return count_value(option, arguments.get<std::string>(option), least, 1U << 24);
}

MeasureOptions parse_quality(const std::string& text) {
  if (text == "all") return {.recall = true, .output_error = true};
  if (text == "recall") return {.recall = true, .output_error = false};
  if (text == "none") return {.recall = false, .output_error = false};
  const std::vector<std::string> words = {"none", "recall", "all"};
  throw usage_error(fmt::format("--quality {}: expected none, recall or all{}", text, did_you_mean(text, words)));
}

// One byte a weight is for policies that it hardly changes.
void check_row_cache_serves(std::span<const PolicySpec> points) {
  for (const PolicySpec& point : points) {
    if (!needs_exact_rows(point)) continue;
    throw usage_error(fmt::format("--row-cache: {} does not choose by sums over all rows, so that rows of one byte a "
                                  "weight would change more of the tokens it keeps than one in a thousand; replay it "
                                  "without --row-cache",
                                  point.text()));
  }
  if (std::ranges::any_of(points, uses_row_cache)) return;
  throw usage_error("--row-cache: none of the policies reads rows from it; those with one set for the model "
                    "(score=shared) are replayed from q and k");
}

// What kvpress does not do to the projected prompt is not priced, whatever it did to the recorded one.
void check_projected_prompt(const ReplayRequest& request) {
  if (request.models.empty() || !request.prompt) return;
  for (const PolicySpec& point : request.points) {
    const std::string why = refused_prompt(point, *request.prompt);
    if (!why.empty()) throw usage_error(fmt::format("--prompt {}: {}", *request.prompt, why));
  }
}

// A replay prices kvroof's own engine, which has neither weights nor caches in some types that other engines have.
void check_run_types(const Arguments& arguments) {
  const auto refuse = [&](const char* option, const char* what) {
    throw usage_error(fmt::format("--{} {}: kvroof's own engine, which replay prices, {}", option,
                                  arguments.get<std::string>(option), what))
        .note(fmt::format("`kvroof plan` and `kvroof compare` take it: --{} {} --engine E --trace {}", option,
                          arguments.get<std::string>(option), arguments.positional.front()));
  };
  if (arguments.has("dtype")) {
    const auto format = parse_weight_format(arguments.get<std::string>("dtype"));
    if (format && format->quantised()) refuse("dtype", "runs weights in f32, f16 or bf16");
  }
  if (arguments.has("kv") && arguments.get<std::string>("kv") == name_of(KvType::kFp8)) {
    refuse("kv", "has no such cache");
  }
}

}  // namespace

ReplayRequest replay_request(const Arguments& arguments) {
  ReplayRequest request;
  request.trace = arguments.positional.front();
  request.points = policy_points(arguments);
  require_scores(request.points);
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (arguments.has("device")) {
    for (const std::string& name : split_list("device", arguments.get<std::string>("device"))) {
      request.devices.push_back(find_device(name, catalog));
    }
  }
  request.batches = parse_batches(arguments, !request.devices.empty());
  request.beams = count_value("beams", arguments.get<std::string>("beams"), 1, 1024);
  request.accounting = arguments.get<bool>("accounting");
  request.measure = parse_quality(arguments.get<std::string>("quality"));
  if (arguments.has("as")) {
    for (const std::string& name : split_list("as", arguments.get<std::string>("as"))) {
      request.models.push_back(find_model_shape(name, catalog));
      const auto stored = stored_format(name, request.models.back());
      request.stored.emplace_back(stored && stored->quantised() ? stored->name : std::string_view());
    }
  }
  request.prompt = parse_length(arguments, "prompt", 1);
  request.output = parse_length(arguments, "output", 1);
  check_projected_prompt(request);
  check_run_types(arguments);
  request.kv = kv_type_option(arguments);
  set_kv_type(request.points, request.kv);
  request.weights = float_type_option(arguments, "dtype");
  request.svg = svg_file(arguments);
  if (!request.svg.empty() && !request.measure.recall) {
    throw usage_error("--svg: the picture is of recall, which --quality none does not measure; leave out one of them");
  }
  if (arguments.has("kept")) request.kept = arguments.get<std::string>("kept");
  request.kept_steps = parse_kept_steps(arguments.get<std::string>("kept-steps"));
  if (arguments.has("kept-steps") && !request.kept) {
    throw usage_error("--kept-steps says which steps --kept FILE writes; add --kept");
  }
  if (arguments.has("closed-loop")) request.closed_loop = arguments.get<std::string>("closed-loop");
  if (arguments.has("row-cache")) request.row_cache = arguments.get<std::string>("row-cache");
  request.check_row_cache = arguments.get<bool>("row-cache-check");
  if (request.check_row_cache && !request.row_cache) {
    throw usage_error("--row-cache-check compares the rows of --row-cache FOLDER with exact ones; add --row-cache");
  }
  if (format_of(arguments) == Format::kCsv && (request.accounting || request.closed_loop)) {
    throw usage_error(fmt::format("--{}: --format csv holds one table, of points; take table or json",
                                  request.accounting ? "accounting" : "closed-loop"));
  }
  if (request.weights && request.devices.empty() && request.models.empty()) {
    throw usage_error("--dtype: the type of the weights changes times and the cache of another model; add --device or "
                      "--as");
  }
  if (request.row_cache) check_row_cache_serves(request.points);
  if (arguments.has("seed")) request.seed = arguments.seed;
  return request;
}

}  // namespace kvroof
