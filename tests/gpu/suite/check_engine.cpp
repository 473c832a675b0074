// The whole engine on the device against the CPU reference: logits, greedy choices, kept sets and declared bytes.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/slot_schedule.hpp"
#include "kernels/tokenizer/tokenizer.hpp"
#include "sim/policy/policy.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"
#include "tests/support/followed_experts.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/recorded_run.hpp"

namespace kvroof::suite {
namespace {

namespace fs = std::filesystem;
using test::Prompts;

std::vector<std::int64_t> random_ids(const Model& model, std::size_t count, Random& random) {
  std::vector<std::int64_t> ids(count);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % model.config.shape.vocab);
  return ids;
}

std::size_t best_of(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Logits of all tokens of all prompts, then of `steps` decode steps of the batch. The tokens that are fed are in
// `tokens`; where that is empty it is filled with the greedy ones.
std::vector<float> logits_of(Backend& backend, const Model& model, const Prompts& prompts, std::uint32_t steps,
                             std::vector<std::int64_t>& tokens) {
  const std::size_t vocab = model.config.shape.vocab;
  const bool greedy = tokens.empty();
  std::vector<float> all, last(vocab), logits(prompts.size() * vocab);
  std::vector<std::int64_t> next;
  for (std::uint32_t s = 0; s < prompts.size(); ++s) {
    backend.prefill(s, prompts[s], steps, last,
                    [&](std::span<const float> rows) { all.insert(all.end(), rows.begin(), rows.end()); });
    next.push_back(static_cast<std::int64_t>(best_of(last)));
  }
  for (std::uint32_t i = 0; i < steps; ++i) {
    if (greedy) tokens.insert(tokens.end(), next.begin(), next.end());
    std::vector<DecodeEntry> batch;
    for (std::uint32_t s = 0; s < prompts.size(); ++s) batch.push_back({s, tokens[i * prompts.size() + s]});
    backend.decode(batch, logits);
    for (std::uint32_t s = 0; s < prompts.size(); ++s) {
      next[s] = static_cast<std::int64_t>(best_of(std::span(logits).subspan(s * vocab, vocab)));
    }
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

struct Agreement {
  Deviation logits;
  std::size_t choices = 0, other_choices = 0, beyond_rounding = 0;
  std::size_t rows_apart = 0;  // rows of logits that deviate by more than the tolerance
};

// Activations are rounded to the weights' type on their way through the tensor cores, a few times a layer; bf16 has
// three bits fewer than f16.
double logits_tolerance(DType type) { return type == DType::kBF16 ? 8 * 6e-3 : 6e-3; }

// So far may the scores of two experts be from each other where the device takes the other one: half as far as logits,
// which pass more layers.
double expert_gap(DType type) { return logits_tolerance(type) / 2; }

// A greedy choice may differ only where the reference's best two are within rounding of each other.
Agreement compare(std::span<const float> device, std::span<const float> host, std::size_t vocab, double tolerance) {
  Agreement agreement;
  double largest = 0;
  for (const float x : host) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < host.size(); ++i) agreement.logits.add(device[i], host[i]);
  for (std::size_t at = 0; at < host.size(); at += vocab) {
    const auto row = host.subspan(at, vocab);
    double apart = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      apart = std::max(apart, std::abs(static_cast<double>(device[at + i]) - static_cast<double>(row[i])));
    }
    if (apart > tolerance * largest) ++agreement.rows_apart;
    const std::size_t theirs = best_of(device.subspan(at, vocab)), ours = best_of(row);
    ++agreement.choices;
    if (theirs == ours) continue;
    ++agreement.other_choices;
    if (static_cast<double>(row[ours] - row[theirs]) > 2 * tolerance * largest) ++agreement.beyond_rounding;
  }
  return agreement;
}

// Nothing, or the sentence with which the back end refuses the model or the policy.
std::optional<std::string> refusal(const Model& model, const PolicySpec& policy) {
  try {
    cuda::CudaBackend(model, {policy, 0, model.type});
    return std::nullopt;
  } catch (const Error& error) {
    const std::string what = error.what();
    for (const char* known : {"the CUDA back end does not", "looks ahead and is a bound"}) {
      if (what.find(known) != std::string::npos) return what;
    }
    throw;
  }
}

// The reference with the experts that the device took, where those are within rounding of its own.
test::Followed follow_experts(const test::FedRun& run, std::span<const float> got) {
  const DType type = run.model.type;
  return test::ExpertFollower(run, got, logits_tolerance(type), expert_gap(type)).followed();
}

Json results_of(const test::Followed& followed, DType type, std::size_t rows_apart) {
  double widest = 0;
  for (const test::OtherChoice& other : followed.others) widest = std::max(widest, other.gap);
  return {{"rows_of_own_choice_apart", rows_apart},
          {"other_experts", followed.others.size()},
          {"widest_gap", widest},
          {"gap_tolerance", expert_gap(type)},
          {"rows_of_rounding", followed.rounded}};
}

void check_logits(Report& report, const Model& model, const Prompts& prompts, std::uint32_t steps) {
  std::vector<std::size_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(prompt.size());
  const Json parameters = {
      {"model", model.name}, {"type", name_of(model.type)}, {"prompts", lengths}, {"steps", steps}};
  report.guarded("logits", parameters, [&] {
    const PolicySpec full = parse_policies("full").at(0);
    if (const auto why = refusal(model, full)) return report.add("logits", parameters, {{"refused", *why}});
    const double tolerance = logits_tolerance(model.type);
    CpuBackend host(model, std::make_unique<ReferenceOps>(), {full, 0, model.type});
    std::vector<std::int64_t> tokens;
    const std::vector<float> expected = logits_of(host, model, prompts, steps, tokens);
    cuda::CudaBackend device(model, {full, 0, model.type});
    const std::vector<float> got = logits_of(device, model, prompts, steps, tokens);
    const std::uint32_t vocab = model.config.shape.vocab;
    Agreement a = compare(got, expected, vocab, tolerance);
    bool agree = a.logits.relative() <= tolerance;
    Json experts = Json::object();
    if (model.config.shape.experts > 0) {
      const test::Followed followed = follow_experts({model, prompts, tokens}, got);
      experts = results_of(followed, model.type, a.rows_apart);
      a = compare(got, followed.logits, vocab, tolerance);
      agree = followed.apart == 0;
    }
    Json results = {{"logits", a.logits.relative()},
                    {"tolerance", tolerance},
                    {"greedy_choices", a.choices},
                    {"other_choices", a.other_choices},
                    {"rows_apart", a.rows_apart},
                    {"beyond_rounding", a.beyond_rounding},
                    {"worst", a.logits.worst()}};
    results.update(experts);
    report.check("logits", parameters, agree && a.beyond_rounding == 0, results);
  });
}

// Declared by the engine against computed by the simulator, of every step and cause. Activations are left out: fused
// kernels pass fewer of them than the table of sim/traffic counts.
Json byte_differences(const std::vector<StepRecord>& steps, const std::vector<ByteCounters>& expected) {
  Json differences = Json::array();
  for (std::size_t i = 0; i < steps.size() && differences.size() < 8; ++i) {
    for (const Cause cause : {Cause::kWeights, Cause::kKvRead, Cause::kKvWrite, Cause::kScores, Cause::kCompaction}) {
      if (steps[i].bytes[cause] == expected[i][cause]) continue;
      differences.push_back({{"step", i},
                             {"cause", kCauseNames[static_cast<std::size_t>(cause)]},
                             {"declared", steps[i].bytes[cause]},
                             {"simulated", expected[i][cause]}});
    }
  }
  return differences;
}

// How a prompt's rows are read beside one attention over tiles of queries (models without windows).
class PromptPasses {
 public:
  PromptPasses(const ModelShape& shape, const PolicySpec& spec)
      : shape_(shape), traits_(policy_info(spec.name).traits(spec)), device_(cuda::device_policy(spec, shape)) {}

  // Rows that are shown to the policy are attended one by one, as are those of latent attention.
  [[nodiscard]] std::uint32_t queries() const {
    return shape_.latent() || (traits_.rows == RowNeed::kAll && key_passes() == 0) ? 1 : cuda::kPromptQueries;
  }
  // Keys once more for the sums of their columns, and before that for a noisy softmax; the rows that are shown alone.
  [[nodiscard]] std::uint64_t more_bytes(std::uint32_t tokens) const {
    const std::uint64_t heads = traits_.unit == StorageUnit::kQueryHead ? shape_.heads : shape_.kv_heads;
    std::uint64_t elements = std::uint64_t{key_passes()} * tokens * shape_.head_dim;
    const std::uint32_t shown = std::min(tokens, traits_.rows == RowNeed::kLast ? traits_.last_rows : 0);
    for (std::uint32_t i = tokens - shown; i < tokens; ++i) elements += std::uint64_t{i + 1} * shape_.row_width();
    // Where all rows are shown no tile of queries is attended beside them.
    if (shown == tokens && tokens <= cuda::kPromptQueries) elements -= std::uint64_t{tokens} * shape_.row_width();
    return 2 * shape_.layers * heads * elements;
  }

 private:
  [[nodiscard]] unsigned key_passes() const {
    if (!device_ || !device_->scores_prompt_at_once()) return 0;
    return device_->recipe.kind == ScoreRecipe::Kind::kNoisySum ? 2 : 1;
  }

  const ModelShape& shape_;
  PolicyTraits traits_;
  std::optional<cuda::DevicePolicy> device_;
};

void check_policy(Report& report, const Model& model, const std::string& policy, const Prompts& prompts,
                  std::uint32_t steps) {
  const Json parameters = {{"model", model.name},         {"type", name_of(model.type)}, {"policy", policy},
                           {"prompt", prompts[0].size()}, {"batch", prompts.size()},     {"steps", steps}};
  report.guarded("kept_sets", parameters, [&] {
    const PolicySpec spec = parse_policies(policy).at(0);
    if (const auto why = refusal(model, spec)) return report.add("kept_sets", parameters, {{"refused", *why}});
    cuda::CudaBackend device(model, {spec, 0, model.type});
    const test::TraceFolder folder;
    const TraceReader trace =
        test::record_on(device, folder.path(), model, spec, model.type, prompts, {"cuda", false, steps});
    const PromptPasses passes(model.config.shape, spec);
    test::Expected expected = test::simulate(trace, model, spec, model.type, {0, passes.queries()});
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      expected.steps[s].add(Cause::kKvRead, passes.more_bytes(static_cast<std::uint32_t>(prompts[s].size())));
    }
    const Reproduction& r = expected.reproduction;
    report.check("kept_sets", parameters, r.decisions > 0 && r.problem().empty(),
                 {{"decisions", r.decisions},
                  {"differences", r.differences},
                  {"beyond_rounding", r.beyond_rounding},
                  {"problem", r.problem()}});
    const Json differences = byte_differences(trace.steps(), expected.steps);
    report.check("declared_bytes", parameters, differences.empty(),
                 {{"steps", trace.steps().size()}, {"differences", differences}});
  });
}

// Every policy that the engine can follow, at half of the prompt.
std::vector<std::string> policies(bool small) {
  if (small) return {"h2o:budget=0.5", "knorm:budget=0.5", "scissorhands:budget=0.5:prompt=stream"};
  std::vector<std::string> list;
  for (const PolicyInfo& info : policy_table()) {
    const std::string text = std::string(info.name) + (info.takes_budget ? ":budget=0.5" : "");
    const PolicyTraits traits = info.traits(parse_policies(text).at(0));
    if (info.name == "full" || traits.selects || traits.capacities == Capacities::kByHead) continue;
    list.push_back(text);
  }
  list.emplace_back("h2o:budget=0.5:group=none");
  list.emplace_back("scissorhands:budget=0.5:prompt=stream");
  return list;
}

std::vector<std::string> golden_models(const fs::path& data) {
  std::vector<std::string> names;
  const fs::path folder = data / "tests/golden/models";
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::int64_t> demo_prompt(const fs::path& demo, std::size_t tokens) {
  const Tokenizer tokenizer = Tokenizer::load(demo / "tokenizer.json");
  std::ifstream file(demo / "prompts/sqlite-rbu.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::int64_t> ids = tokenizer.encode(text, false);
  ids.resize(std::min(ids.size(), tokens));
  return ids;
}

// What an emulator has time for: a dense model, and one with experts.
bool is_small(const std::string& model, DType type) {
  return (model == "llama-gqa" && type == DType::kF16) || (model == "qwen3-moe" && type == DType::kBF16);
}

void check_goldens(const Options& options, Report& report) {
  Random random(options.seed + 5000);
  for (const std::string& name : golden_models(options.data)) {
    for (const DType type : {DType::kF16, DType::kBF16}) {
      if (options.small && !is_small(name, type)) continue;
      const Json parameters = {{"model", name}, {"type", name_of(type)}};
      report.guarded("logits", parameters, [&] {
        const Model model = load_model(options.data / "tests/golden/models" / name, type);
        Prompts prompts = {random_ids(model, 1, random), random_ids(model, 2, random)};
        if (!options.small || model.config.shape.experts > 0) prompts.push_back(random_ids(model, 37, random));
        check_logits(report, model, prompts, options.small ? 2 : 6);
      });
    }
  }
}

void check_policies(const Options& options, Report& report) {
  Random random(options.seed + 6000);
  const fs::path demo = options.data / "models/demo";
  const bool demo_too = !options.small && fs::exists(demo);
  for (const std::string& policy : policies(options.small)) {
    report.guarded("kept_sets", {{"policy", policy}}, [&] {
      const Model model = load_model(options.data / "tests/golden/models/llama-gqa", DType::kF16);
      const std::size_t prompt = options.small ? 10 : 40;
      Prompts prompts = {random_ids(model, prompt, random)};
      if (!options.small) prompts.push_back(random_ids(model, 23, random));
      check_policy(report, model, policy, prompts, options.small ? 3 : 24);
      if (policy.starts_with("h2o") || policy.starts_with("streaming")) {
        const Model latent = load_model(options.data / "tests/golden/models/deepseek-v2", DType::kF16);
        check_policy(report, latent, policy, {random_ids(latent, prompt, random)}, options.small ? 3 : 24);
      }
      if (!demo_too) return;
      const Model text = load_model(demo, DType::kBF16);
      check_policy(report, text, policy, {demo_prompt(demo, 160)}, 40);
    });
  }
}

}  // namespace

void check_engine(const Options& options, Report& report) {
  const fs::path demo = options.data / "models/demo";
  if (!options.small && fs::exists(demo)) {
    report.guarded("logits", {{"model", "demo"}}, [&] {
      check_logits(report, load_model(demo, DType::kBF16), {demo_prompt(demo, 200), demo_prompt(demo, 63)}, 48);
    });
  }
  check_launch_modes(options, report);
  check_goldens(options, report);
  check_policies(options, report);
}

}  // namespace kvroof::suite
