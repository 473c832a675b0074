#include "apps/prediction/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/nominal_recording.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/prediction/workload_weights.hpp"
#include "apps/replay/replay_points.hpp"
#include "kernels/engine/token_kinds.hpp"
#include "sim/core/suggest.hpp"
#include "sim/cost/engine_profile.hpp"
#include "sim/model/gguf.hpp"
#include "sim/policy/head_values.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

namespace po = boost::program_options;

// `windows`: of copies of the trace's one layer; empty: its own layers.
std::vector<PointResult> replay_points(const TraceReader& trace, const WorkloadRequest& request,
                                       std::span<const PolicySpec> points, std::vector<std::uint32_t> windows,
                                       const Arguments& arguments) {
  ThreadPool pool(arguments.threads);
  ReplayOptions options;
  options.seed = arguments.has("seed") ? arguments.seed : trace.manifest().seed;
  options.measure = {.recall = false, .output_error = false};
  // Sets are not asked for, and counts do not depend on the numbers in W_O: its rows are one row of zeros.
  const TraceLayer& layer = trace.manifest().layers.front();
  const std::vector<float> row(std::size_t{layer.query_heads} * layer.v_width);
  options.output_projection = [&](LayerId) -> RowsView {
    return {reinterpret_cast<const std::byte*>(row.data()), DType::kF32, 0, row.size(), request.model.hidden};
  };
  options.token_kinds = token_kinds_of(trace);
  options.windows_of_copies = std::move(windows);
  return replay(trace, points, options, pool);
}

std::vector<Workload> recorded_workloads(const WorkloadRequest& request, const Arguments& arguments) {
  const TraceReader trace = TraceReader::open_attention(*request.trace);
  const ModelShape recorded = shape_of(trace.manifest());
  std::vector<Workload> workloads;
  for (PointResult& result : replay_points(trace, request, request.points, {}, arguments)) {
    workloads.emplace_back(request, std::move(result), recorded);
  }
  return workloads;
}

std::vector<Workload> nominal_workloads(const WorkloadRequest& request, const Arguments& arguments) {
  std::vector<std::optional<Workload>> of_points(request.points.size());
  for (const NominalPart& part : nominal_parts(request, arguments.seed)) {
    const NominalRecording recording(part.trace);
    const TraceReader trace = TraceReader::open_attention(recording.path());
    ModelShape recorded = shape_of(trace.manifest());
    recorded.layers = std::max(recorded.layers, static_cast<std::uint32_t>(part.windows.size()));
    std::vector<PointResult> results = replay_points(trace, request, part.points, part.windows, arguments);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].replayed = results[i].spec.budget;
      results[i].spec = request.points[part.numbers[i]];
      of_points[part.numbers[i]].emplace(request, std::move(results[i]), recorded);
    }
  }
  std::vector<Workload> workloads;
  for (std::optional<Workload>& workload : of_points) workloads.push_back(std::move(*workload));
  return workloads;
}

const std::string& required(const Arguments& arguments, const std::string& option, const std::string& what) {
  if (!arguments.has(option)) throw usage_error(fmt::format("--{} is missing: {}", option, what));
  return arguments.get<std::string>(option);
}

// Quantised weights are computed with in 16 bits, or in a type of their own.
DType activations_of(const WeightFormat& format) {
  return format.quantised() ? DType::kBF16 : parse_dtype(format.name).value_or(DType::kBF16);
}

// Each type of weights over each layout that the model can be spread over, with each kind of drafts. The request is
// told of the layouts that are left out of several.
std::vector<Deployment> deployments_of(const Arguments& arguments, WorkloadRequest& request,
                                       const std::vector<WeightFormat>& formats) {
  const auto speculations = speculations_of(arguments, request.model);
  std::vector<Deployment> deployments;
  std::set<std::string> left_out;
  for (Deployment layout : layouts_of(arguments)) {
    for (const WeightFormat& format : formats) {
      layout.types = {activations_of(format), activations_of(format)};
      layout.weights = format;
      for (const auto& speculation : speculations) {
        layout.speculation = speculation;
        if (const std::string problem = deployment_problem(request.model, layout); problem.empty()) {
          deployments.push_back(layout);
        } else {
          left_out.insert(fmt::format("{}: {}", layout_options(layout), problem));
        }
      }
    }
  }
  request.left_out.assign(left_out.begin(), left_out.end());
  if (!deployments.empty()) return deployments;
  Error refused = usage_error(request.left_out.back());
  if (request.left_out.size() == 1) throw refused;
  throw std::move(refused).note("so are the other layouts that were asked for");
}

// The policies, each with every type of --kv; `auto` leaves out what a policy cannot have.
std::vector<PolicySpec> points_of(const Arguments& arguments, const WorkloadRequest& request) {
  std::vector<PolicySpec> points = policy_points(arguments);
  if (!arguments.has("kv")) {
    set_kv_type(points, std::nullopt);
    for (PolicySpec& point : points) {
      if (request.keeps_cache && !point.kv) point.kv = kv_type_value(request.stored_cache, true);
    }
    return points;
  }
  const std::string& text = arguments.get<std::string>("kv");
  const bool any = text == "auto";
  std::vector<std::optional<KvType>> types;
  if (any) {
    types = {std::nullopt};
    std::ranges::copy(smaller_cache_types(request), std::back_inserter(types));
  } else {
    for (const std::string& item : split_list("kv", text)) types.emplace_back(kv_type_value(item, true));
  }
  std::vector<PolicySpec> crossed;
  for (const PolicySpec& point : points) {
    for (const std::optional<KvType>& type : types) {
      const std::string problem = kv_problem(point, type);
      if (!problem.empty() && !any) throw usage_error(problem);
      if (!problem.empty()) continue;
      crossed.push_back(point);
      crossed.back().kv = point.kv ? point.kv : type;
    }
  }
  return crossed;
}

std::uint32_t prompt_of(const Arguments& arguments, const WorkloadRequest& request) {
  const std::string& text = arguments.get<std::string>("prompt");
  if (text != "max") return count_value("prompt", text, 1, kMostPrompt);
  if (request.model.max_positions > request.output) return request.model.max_positions - request.output;
  throw usage_error(fmt::format("--prompt max: {} has {} positions and --output takes {}; ask for fewer tokens",
                                request.model.name, request.model.max_positions, request.output));
}

}  // namespace

void require_positions(const ModelShape& model, std::uint32_t prompt, std::uint32_t output) {
  if (model.position != PositionScheme::kLearned || std::uint64_t{prompt} + output <= model.max_positions) return;
  throw usage_error(fmt::format("--prompt {} and --output {}: {} has {} learned positions", prompt, output, model.name,
                                model.max_positions))
      .note("--prompt max takes as many as there are");
}

std::vector<KvType> smaller_cache_types(const WorkloadRequest& request) {
  std::vector<KvType> types;
  const bool known = request.engine && !request.engine->cache_types.empty();
  for (const std::string& name : known ? request.engine->cache_types : std::vector<std::string>{"int8", "int4"}) {
    const KvType type = kv_type_value(name, true);
    if (type.bits() < 16) types.push_back(type);
  }
  return types;
}

void describe_workload(po::options_description_easy_init add) {
  add("model", po::value<std::string>(),
      "a name of the catalog (Qwen/Qwen3-32B is qwen3-32b), a folder, its config.json or a GGUF file");
  add("policy", po::value<std::string>()->default_value("full"), "name[:key=value]…");
  add("budget", po::value<std::string>(),
      "for a policy that carries none: 0.5 or 50% (of the prompt), 512 or 4k (tokens)");
  add("prompt", po::value<std::string>()->default_value("2k"),
      "prompt tokens of a sequence; max: as many as the model has positions, in plan as many as also fit and meet the "
      "goals");
  add("output", po::value<std::string>()->default_value("512"), "generated tokens of a sequence");
  add("trace", po::value<std::string>(), "a recorded run whose residency is projected (default: a nominal one)");
  add("dtype", po::value<std::string>(),
      "how weights are stored: bf16 | f16 | fp8 | int8 | int4 | Q4_K_M …, a list, or auto (default: the model's)");
  describe_layouts(add);
  add("kv", po::value<std::string>(),
      "KV cache as f32 | f16 | bf16 | fp8 | int8 | int4 | int4g64 | kivi2 | kivi4, a list, or auto: the default and "
      "those of the engine, kvroof's own int8 and int4 (default: what the checkpoint states where the engine takes "
      "that, else as the weights, beside quantised ones bf16)");
  add("engine", po::value<std::string>(),
      "how an engine launches work, a name of catalog/engines: kvroof, vllm, tensorrt-llm …, as it is today or in a "
      "version: vllm@0.2.5, llama-cpp@b2800, llama-cpp@2024-03 (default: kvroof's own)");
  add("gpu-memory-utilization", po::value<std::string>(),
      "share of a device's memory that the engine takes for all it holds (default: the engine's)");
  add("max-num-seqs", po::value<std::string>(), "sequences that run at once at most (default: the engine's)");
  add("max-num-batched-tokens", po::value<std::string>(),
      "tokens of prompts and answers in a step at most (default: the engine's)");
  add("sampling", po::value<std::string>()->default_value("greedy"),
      "how tokens are chosen: greedy | top-p, which some engines' samplers sort the vocabulary for");
  describe_speculation(add);
}

namespace {

// The two names of every command line are easily exchanged, and a list of a hundred models does not say so.
void refuse_device_as_model(const std::string& model, const fs::path& catalog) {
  const std::vector<std::string> devices = catalog_device_names(catalog);
  if (std::find(devices.begin(), devices.end(), model) == devices.end()) return;
  throw usage_error(fmt::format("--model {0}: that is a device; expected --device {0} and --model NAME", model))
      .note("`kvroof models` lists the names");
}

// What is not known of the windows of a GGUF file; nothing of other models.
std::string unknown_windows_of(const fs::path& model) {
  std::error_code error;
  if (model.extension() != ".gguf" || !fs::is_regular_file(model, error)) return {};
  return load_gguf(model).unknown_windows;
}

EngineProfile default_or_named_engine(const WorkloadRequest& request, const Device& device) {
  if (!request.engine) return default_engine_profile(device.kind, data_folder() / "catalog");
  const bool cpu = device.kind == DeviceKind::kCpu;
  const EngineProfile there =
      find_engine_profile(request.engine->name + request.engine_version, data_folder() / "catalog",
                          cpu ? "CPU" : device.architecture, gib(device.usable_memory()));
  // Launches and graphs of a GPU's engines say nothing of a CPU; those of no graphs may be anything.
  if (there.on_cpu != cpu && (there.on_cpu || there.graphs)) {
    throw usage_error(fmt::format("--engine {}: it runs on a {}, and {} is a {}", there.name,
                                  there.on_cpu ? "CPU" : "GPU", device.name, cpu ? "CPU" : "GPU"))
        .note("leave --engine away for kvroof's own back end");
  }
  return there;
}

// Throws where one sequence passes more tokens a step than a step may have.
void check_step_tokens(const WorkloadRequest& request) {
  if (!request.step_tokens) return;
  for (const Deployment& d : request.deployments) {
    if (!d.speculation || d.speculation->tokens < *request.step_tokens) continue;
    throw usage_error(fmt::format("--max-num-batched-tokens {} and --speculate {}: a sequence passes {} tokens a step",
                                  *request.step_tokens, d.speculation->tokens, d.speculation->tokens + 1));
  }
}

}  // namespace

WorkloadRequest workload_request(const Arguments& arguments) {
  WorkloadRequest request;
  const fs::path catalog = data_folder() / "catalog";
  refuse_device_as_model(required(arguments, "model", "`kvroof models` lists the names"), catalog);
  request.model = find_model_shape(required(arguments, "model", "`kvroof models` lists the names"), catalog);
  request.unknown_windows = unknown_windows_of(arguments.get<std::string>("model"));
  if (arguments.has("engine")) {
    const auto& name = arguments.get<std::string>("engine");
    request.engine = find_engine_profile(name, catalog);
    request.engine_version = name.substr(std::min(name.find('@'), name.size()));
  }
  if (arguments.has("gpu-memory-utilization")) {
    request.memory_share =
        share_value("gpu-memory-utilization", arguments.get<std::string>("gpu-memory-utilization"), 0.05, 1);
  }
  if (arguments.has("max-num-seqs")) {
    request.most_sequences = count_value("max-num-seqs", arguments.get<std::string>("max-num-seqs"), 1, 1U << 20);
  }
  if (arguments.has("max-num-batched-tokens")) {
    request.step_tokens =
        count_value("max-num-batched-tokens", arguments.get<std::string>("max-num-batched-tokens"), 1, kMostPrompt);
  }
  const std::vector<WeightFormat> formats = weight_formats_of(arguments, request);
  request.default_cache = !arguments.has("kv");
  request.points = points_of(arguments, request);
  for (const PolicySpec& point : request.points) request.several_caches |= point.kv != request.points.front().kv;
  request.output = count_value("output", arguments.get<std::string>("output"), 1, 1U << 20);
  request.prompt = prompt_of(arguments, request);
  request.longest = {request.prompt, request.output};
  require_positions(request.model, request.prompt, request.output);
  request.deployments = deployments_of(arguments, request, formats);
  check_step_tokens(request);
  const std::string sampling = arguments.get<std::string>("sampling");
  if (sampling != "greedy" && sampling != "top-p") {
    throw usage_error(fmt::format("--sampling {}: expected greedy or top-p", sampling));
  }
  for (Deployment& d : request.deployments) d.top_p = sampling == "top-p";
  if (arguments.has("trace")) request.trace = arguments.get<std::string>("trace");
  return request;
}

// Of engines that compute prompts in parts these have at most as many tokens, for which memory is left; those with
// smaller parts of their own keep these (llama.cpp's ubatch). Each sequence passes a token at least.
static void set_step_tokens(double tokens, EngineProfile& profile) {
  const bool in_parts = profile.prompt_chunk < EngineProfile{}.prompt_chunk;
  if (in_parts) profile.prompt_chunk = profile.step_tokens > 0 ? std::min(profile.prompt_chunk, tokens) : tokens;
  profile.step_tokens = tokens;
  profile.largest_batch = std::min(profile.largest_batch, tokens);
}

EngineProfile WorkloadRequest::engine_on(const Device& device) const {
  EngineProfile profile = default_or_named_engine(*this, device);
  if (memory_share) profile.reserve_fraction = 1 - *memory_share;
  if (most_sequences) profile.largest_batch = *most_sequences;
  if (step_tokens) set_step_tokens(*step_tokens, profile);
  return profile;
}

std::string WorkloadRequest::title(const PolicySpec& policy) const {
  if (!several_caches) return policy.text();
  const KvType kv = with_cache_of(policy, deployments.front()).types.kv;
  const bool one = std::ranges::all_of(
      deployments, [&](const Deployment& d) { return with_cache_of(policy, d).types.kv == kv; });
  return fmt::format("{}, KV {}", policy.text(), one ? std::string(name_of(kv)) : "by default");
}

Workload::Workload(const WorkloadRequest& request, PointResult result, ModelShape recorded)
    : model_(request.model),
      recorded_(std::move(recorded)),
      prompt_(request.prompt),
      output_(request.output),
      cached_share_(request.cached_share),
      result_(std::move(result)),
      mean_(with_prompt(request.prompt)) {}

ResidencySummary Workload::with_lengths(std::uint32_t prompt, std::uint32_t output) const {
  ResidencySummary summary = summarise_as(result_, recorded_, model_, prompt, output);
  const std::uint32_t cached = cached_tokens(cached_share_, prompt);
  if (cached == 0 || !finds_prefixes(policy(), summary)) return summary;
  summary.cached = cached;
  summary.cached_prefill = summarise_as(result_, recorded_, model_, cached, output).prefill;
  return summary;
}

std::vector<ResidencySummary> Workload::steps() const {
  std::vector<ResidencySummary> steps;
  for (const LayerCounts& counts : step_counts_as(result_, recorded_, model_, prompt_, output_)) {
    ResidencySummary& step = steps.emplace_back(mean_);
    step.decode = counts;
    step.decode_steps = 1;
  }
  return steps;
}

std::vector<LayerCounts> Workload::step_counts(std::uint32_t prompt, std::uint32_t output) const {
  const std::vector<LayerCounts> all = step_counts_as(result_, recorded_, model_, prompt, output);
  const std::size_t sequences = all.size() / output;
  std::vector<LayerCounts> steps;
  for (std::uint32_t step = 0; step < output; ++step) {
    LayerCounts sum;
    for (std::size_t s = 0; s < sequences; ++s) sum += all[s * output + step];
    steps.push_back(sum / sequences);
  }
  return steps;
}

std::vector<Workload> make_workloads(const WorkloadRequest& request, const Arguments& arguments) {
  for (const PolicySpec& point : request.points) {
    if (policy_info(point.name).traits(point).bound) {
      throw usage_error(fmt::format("policy {} looks ahead and is a bound: `kvroof replay` knows it, and no engine can "
                                    "serve with it", point.name));
    }
    if (const std::string why = refused_prompt(point, request.prompt); !why.empty()) throw usage_error(why);
  }
  if (request.trace) require_scores(request.points);
  if (request.trace) return recorded_workloads(request, arguments);
  for (const PolicySpec& point : request.points) {
    const PolicyInfo& info = policy_info(point.name);
    const PolicyTraits traits = info.traits(point);
    const char* what = nullptr;
    if (!info.takes_budget && traits.rows != RowNeed::kNone && traits.capacities == Capacities::kByHead) {
      what = "holds as many tokens as its attention says, and a nominal recording has none";
    } else if (names_heads(point)) {
      what = "is told which heads hold what, and a nominal recording has one head";
    }
    if (what != nullptr) {
      throw usage_error(fmt::format("policy {} {}: give a recorded run (--trace)", point.name, what));
    }
  }
  return nominal_workloads(request, arguments);
}

}  // namespace kvroof
