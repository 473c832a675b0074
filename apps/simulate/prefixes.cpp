// kvroof prefixes: what prefix caches of several sizes find of a request trace, under several orders of eviction.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/analysis.hpp"
#include "analysis/plot.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/simulate/requests_file.hpp"
#include "kvroof_version.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"
#include "sim/core/number_text.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/core/units.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/serving/prefix_curve.hpp"
#include "sim/serving/request_trace.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMostCapacity = 1U << 31;  // tokens
constexpr std::size_t kSizes = 12;                 // of caches, where none are named
constexpr double kKnee = 0.9;                      // of what can be found, which the answer names a size for

struct PrefixesRequest {
  std::string file;
  RequestTrace trace;
  std::vector<const PrefixEviction*> orders;
  std::vector<std::uint64_t> capacities;  // tokens, growing; the last is infinite
  std::optional<ModelShape> model;
  double token_bytes = 0;                 // of the model's cache, all layers and devices
  std::string cache;                      // what that is: "llama-3-8b in bf16"
};

struct Found {
  std::vector<PrefixFinds> points;  // [capacity, order]
  PrefixFinds most;                 // by a cache that loses nothing
  std::uint64_t knee = 0;           // tokens with which the first order finds kKnee of that
};

double gib(const PrefixesRequest& r, std::uint64_t tokens) {
  return static_cast<double>(tokens) * r.token_bytes / kGiB;
}

std::vector<const PrefixEviction*> orders_of(const Arguments& arguments) {
  std::vector<const PrefixEviction*> orders;
  for (const std::string& name : split_list("eviction", arguments.get<std::string>("eviction"))) {
    orders.push_back(prefix_eviction(name).or_throw("--eviction", ExitCode::kUsage));
  }
  return orders;
}

// Sizes of caches in tokens: those that were named, or halves of one that never evicts, as far as a block fits.
std::vector<std::uint64_t> capacities_of(const Arguments& arguments, const PrefixesRequest& r,
                                         const PrefixReplay& replay) {
  std::vector<std::uint64_t> sizes;
  if (arguments.has("capacity") && arguments.has("gib")) {
    throw usage_error("--capacity and --gib: two ways to say how large caches are").note("leave one of the two away");
  }
  if (arguments.has("gib")) {
    if (!r.model) throw usage_error("--gib: what a token takes is said by --model NAME, which is missing");
    for (const std::string& text : split_list("gib", arguments.get<std::string>("gib"))) {
      sizes.push_back(static_cast<std::uint64_t>(number_value("gib", text, 0, 1e9) * kGiB / r.token_bytes));
    }
  } else if (arguments.has("capacity")) {
    const auto given = count_list("capacity", arguments.get<std::string>("capacity"), 0, kMostCapacity);
    sizes.assign(given.begin(), given.end());
  } else {
    std::uint64_t size = 1;
    while (size < replay.distinct_tokens()) size *= 2;
    const std::uint64_t least = std::max<std::uint64_t>(replay.block_tokens(), 1);
    for (std::size_t i = 0; i < kSizes && size / 2 >= least; ++i) sizes.push_back(size /= 2);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  sizes.push_back(PrefixReplay::kInfinite);
  return sizes;
}

PrefixesRequest request_of(const Arguments& arguments) {
  PrefixesRequest r;
  r.file = requests_name(arguments.positional[0]);
  r.orders = orders_of(arguments);
  if (arguments.has("model")) {
    r.model = find_model_shape(arguments.get<std::string>("model"), data_folder() / "catalog");
    const KvType kv = arguments.has("kv") ? kv_type_value(arguments.get<std::string>("kv"), true)
                                          : KvType(r.model->weight_type);
    r.token_bytes = static_cast<double>(kv_bytes_per_token(*r.model, kv).value);
    r.cache = fmt::format("{} in {}", r.model->name, name_of(kv));
  } else if (arguments.has("kv")) {
    throw usage_error("--kv: whose cache is said by --model NAME, which is missing");
  }
  r.trace = read_requests_file(arguments.positional[0], Unanswered::kKept);
  if (!r.trace.has_prefixes()) {
    throw usage_error(fmt::format("{}: nothing says which prompts begin alike", r.file))
        .note("traces with hash_ids do, as those of Mooncake and Qwen-Bailian");
  }
  return r;
}

// A cache with which the first order finds kKnee of what can be found, and does not with a token less: the smallest,
// under orders that find no less in a larger one. Sizes that were named have no part in it, so that it is one of the
// trace.
std::uint64_t knee_of(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  const double wanted = kKnee * static_cast<double>(found.most.tokens);
  std::uint64_t low = 0, high = replay.distinct_tokens();  // what finds too little, and what finds enough
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const bool enough = static_cast<double>(replay.finds(*r.orders.front(), middle).tokens) >= wanted;
    (enough ? high : low) = middle;
  }
  return high;
}

Found find(const PrefixesRequest& r, const PrefixReplay& replay, const Arguments& arguments) {
  Found found;
  found.most = replay.finds(*r.orders.front(), PrefixReplay::kInfinite);
  found.points.resize(r.capacities.size() * r.orders.size());
  Progress progress(arguments, "caches");
  ThreadPool pool(arguments.threads);
  for (std::size_t row = 0; row < r.capacities.size(); ++row) {
    pool.parallel_for(r.orders.size(), [&](std::size_t i) {
      found.points[row * r.orders.size() + i] = replay.finds(*r.orders[i], r.capacities[row]);
    });
    progress.at(row + 1, r.capacities.size() + 1);
  }
  if (found.most.tokens > 0) found.knee = knee_of(r, replay, found);
  return found;
}

std::string tokens_text(std::uint64_t tokens) {
  if (tokens < 10'000'000) return std::to_string(tokens);
  return fmt::format("{} M", number_text(static_cast<double>(tokens) / 1e6));
}
double share(std::uint64_t tokens, const PrefixReplay& replay) {
  return static_cast<double>(tokens) / static_cast<double>(replay.prompt_tokens());
}
std::string answer_text(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  std::string text = fmt::format("{}: of {} tokens in the prompts of {} a cache that loses nothing finds {}", r.file,
                                 tokens_text(replay.prompt_tokens()), counted(r.trace.requests.size(), "request"),
                                 percent_text(share(found.most.tokens, replay), 1));
  if (found.most.tokens == 0) return text + ".";
  const std::string memory =
      r.model ? fmt::format(" ({} GiB of {})", number_text(gib(r, found.knee)), r.cache) : "";
  return text + fmt::format("; {:.0f} % of that are found under {} with room for {} tokens{}.", 100 * kKnee,
                            r.orders.front()->name, tokens_text(found.knee), memory);
}

std::vector<std::string> notes_of(const PrefixesRequest& r) {
  std::vector<std::string> notes = {"share of all tokens of prompts that is found; requests come one after the other, "
                                    "and all of a prompt is there for the next"};
  for (const PrefixEviction* order : r.orders) {
    notes.push_back(fmt::format("{}: what goes first is {}", order->name, order->summary));
  }
  if (const std::size_t count = r.trace.unanswered; count > 0) {
    notes.push_back(fmt::format("{} without an answer {} counted: {} as any other", counted(count, "request"),
                                count == 1 ? "is" : "are", count == 1 ? "its prompt is cached" : "prompts are cached"));
  }
  if (const std::size_t count = r.trace.left_out; count > 0) {
    notes.push_back(fmt::format("{} without a prompt {} left out", counted(count, "request"),
                                count == 1 ? "is" : "are"));
  }
  return notes;
}

std::string prefixes_table(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  Table table;
  table.columns = {{"cache, tokens", "capacity_tokens"}};
  if (r.model) table.columns.push_back({"GiB", "capacity_gib"});
  for (const PrefixEviction* order : r.orders) table.columns.push_back({std::string(order->name), ""});
  for (std::size_t row = 0; row < r.capacities.size(); ++row) {
    const std::uint64_t capacity = r.capacities[row];
    const bool infinite = capacity == PrefixReplay::kInfinite;
    table.rows.push_back({infinite ? "infinite" : std::to_string(capacity)});
    if (r.model) {
      table.rows.back().push_back(number_text(gib(r, infinite ? replay.distinct_tokens() : capacity)));
    }
    for (std::size_t i = 0; i < r.orders.size(); ++i) {
      table.rows.back().push_back(percent_text(share(found.points[row * r.orders.size() + i].tokens, replay), 1));
    }
  }
  std::string text = format_paragraph(answer_text(r, replay, found), 0) + "\n" + format_table(table) + "\n";
  for (const std::string& note : notes_of(r)) text += format_paragraph(note, 0);
  return text;
}

std::string prefixes_json(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  Json json = {{"answer", answer_text(r, replay, found)},
               {"requests", r.trace.requests.size()},
               {"requests_without_answer", r.trace.unanswered},
               {"requests_left_out", r.trace.left_out},
               {"prompt_tokens", replay.prompt_tokens()},
               {"distinct_tokens", replay.distinct_tokens()},
               {"most_found_share", share(found.most.tokens, replay)},
               {"knee_tokens", found.most.tokens > 0 ? Json(found.knee) : Json(nullptr)},
               {"kv_bytes_per_token", r.model ? Json(r.token_bytes) : Json(nullptr)},
               {"rows", Json::array()}};
  for (std::size_t i = 0; i < found.points.size(); ++i) {
    const PrefixFinds& point = found.points[i];
    const std::uint64_t capacity = r.capacities[i / r.orders.size()];
    const bool infinite = capacity == PrefixReplay::kInfinite;
    json["rows"].push_back({{"eviction", r.orders[i % r.orders.size()]->name},
                            {"capacity_tokens", infinite ? Json(nullptr) : Json(capacity)},
                            {"found_tokens", point.tokens},
                            {"found_share", share(point.tokens, replay)},
                            {"requests_found", point.requests},
                            {"evicted_blocks", point.evicted}});
  }
  json["notes"] = notes_of(r);
  json["version"] = kVersion;
  return json.dump(2) + "\n";
}

std::string prefixes_csv(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  Table table;
  for (const char* key : {"eviction", "capacity_tokens", "capacity_bytes", "found_tokens", "found_share",
                          "requests_found", "evicted_blocks"}) {
    table.columns.push_back({key, key});
  }
  for (std::size_t i = 0; i < found.points.size(); ++i) {
    const PrefixFinds& point = found.points[i];
    const std::uint64_t capacity = r.capacities[i / r.orders.size()];
    const bool infinite = capacity == PrefixReplay::kInfinite;
    table.rows.push_back({std::string(r.orders[i % r.orders.size()]->name), infinite ? "" : std::to_string(capacity),
                          infinite || !r.model ? "" : fmt::format("{}", static_cast<double>(capacity) * r.token_bytes),
                          std::to_string(point.tokens), fmt::format("{}", share(point.tokens, replay)),
                          std::to_string(point.requests), std::to_string(point.evicted)});
  }
  return format_csv(table);
}

std::string prefixes_svg(const PrefixesRequest& r, const PrefixReplay& replay, const Found& found) {
  const std::string name = std::filesystem::path(r.file).filename().string();
  LineChart chart{fmt::format("{}: what a prefix cache finds", name),
                  {r.model ? "GiB of " + r.cache : "tokens that the cache has room for", true, false,
                   LogTicks::kDecimal},
                  {"of all tokens of prompts (%)", false, true},
                  {}};
  for (std::size_t i = 0; i < r.orders.size(); ++i) {
    PlotLine line{std::string(r.orders[i]->name), {}, {}, r.orders[i]->foresees};
    for (std::size_t row = 0; row < r.capacities.size(); ++row) {
      const std::uint64_t capacity = std::min(r.capacities[row], replay.distinct_tokens());
      line.x.push_back(r.model ? gib(r, capacity) : static_cast<double>(capacity));
      line.y.push_back(share(found.points[row * r.orders.size() + i].tokens, replay));
    }
    chart.lines.push_back(std::move(line));
  }
  return line_chart_svg(chart);
}

int run_prefixes(const Arguments& arguments) {
  const std::string svg = svg_file(arguments);
  PrefixesRequest request = request_of(arguments);
  const PrefixReplay replay(request.trace.prefixes, request.trace.requests);
  request.capacities = capacities_of(arguments, request, replay);
  const Found found = find(request, replay, arguments);
  if (!svg.empty()) write_text_file(svg, prefixes_svg(request, replay, found));
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? prefixes_json(request, replay, found)
                          : format == Format::kCsv ? prefixes_csv(request, replay, found)
                                                   : prefixes_table(request, replay, found));
  return 0;
}

void describe_prefixes_verb(po::options_description_easy_init add) {
  add("capacity", po::value<std::string>(),
      "sizes of the cache in tokens, as 1000k,10000k (default: halves of all that the trace has, to a block)");
  add("gib", po::value<std::string>(), "sizes of the cache in GiB of the caches of --model");
  add("eviction", po::value<std::string>()->default_value("lru,lfu,belady"),
      "orders in which blocks go: lru | fifo | lfu | lfu-da | slru | belady");
  add("model", po::value<std::string>(), "model whose cache it is, to say tokens in GiB");
  add("kv", po::value<std::string>(), "its type, as `kvroof plan` takes it, fp8 among them (default: as the weights)");
  add("svg", po::value<std::string>(), "write the picture to this file");
}

}  // namespace

Command prefixes_command() {
  return {"prefixes", "what prefix caches of several sizes find of a request trace, by order of eviction",
          "TRACE [--model NAME] [--capacity N,… | --gib X,…] [--eviction NAME,…]",
          "  kvroof prefixes mooncake.jsonl\n"
          "  kvroof prefixes mooncake.jsonl --model llama-3-8b --gib 40,400,2000 --eviction lru,slru,lfu,belady\n"
          "  kvroof prefixes mooncake.jsonl --model llama-3-70b --kv fp8 --svg found.svg",
          describe_prefixes_verb, run_prefixes, 1, 1};
}

}  // namespace kvroof
