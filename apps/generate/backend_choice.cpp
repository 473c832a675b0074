#include "apps/generate/backend_choice.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "apps/cli/progress.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/engine/output_projections.hpp"
#include "kernels/tokenizer/tokenizer.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::array kKinds = {BackendKind::kFast, BackendKind::kReference, BackendKind::kCuda};

class LoadProgress {
 public:
  LoadProgress(const Arguments& arguments, const Model& model)
      : shown_(arguments, "loading weights"), total_(weight_bytes(model.config.shape, model.type).value) {}
  [[nodiscard]] ElementProgress watch() {
    return [this](std::uint64_t bytes) { shown_.at(done_ += bytes, total_); };
  }

 private:
  Progress shown_;
  std::uint64_t done_ = 0, total_;
};

// The kind that --backend names, which is one of all.
BackendKind named_kind(const std::string& name) {
  std::vector<std::string> known;
  for (const BackendKind kind : kKinds) {
    known.emplace_back(name_of(kind));
    if (name == known.back()) return kind;
  }
  throw usage_error(fmt::format("--backend {}: unknown{}", name, did_you_mean(name, known)))
      .note("known: " + join(known));
}

LinearBy linear_option(const Arguments& arguments) {
  if (!arguments.has("linear")) return LinearBy::kAuto;
  const auto& name = arguments.get<std::string>("linear");
  const std::vector<std::string> known = {"auto", "own", "cublaslt"};
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (name == known[i]) return static_cast<LinearBy>(i);
  }
  throw usage_error(fmt::format("--linear {}: unknown{}", name, did_you_mean(name, known)))
      .note("known: " + join(known));
}

std::unique_ptr<Backend> plain_backend(const BackendChoice& choice, const Arguments& arguments, const Model& model,
                                       const PolicySpec& policy, KvType kv_type) {
  if (choice.kind == BackendKind::kCuda) {
    LoadProgress progress(arguments, model);
    return make_cuda_backend(model, policy, arguments.seed, kv_type, choice.linear, progress.watch());
  }
  std::unique_ptr<Ops> ops;
  if (choice.kind == BackendKind::kFast) {
    ops = make_fast_ops(arguments.threads);
  } else {
    ops = std::make_unique<ReferenceOps>();
  }
  return std::make_unique<CpuBackend>(model, std::move(ops), CpuBackendOptions{policy, arguments.seed, kv_type});
}

// The words of kvpress' KVzipPress for models without a template of chats.
RepetitionRequest repetition_request(const Model& model, const PolicySpec& policy) {
  const std::filesystem::path path = model.path / "tokenizer.json";
  std::error_code ignored;
  if (model.path.empty() || !std::filesystem::exists(path, ignored)) {
    throw usage_error(fmt::format("policy {}: the model is asked in words to repeat the prompt, and {} has no "
                                  "tokenizer.json", policy.name, model.path.empty() ? "it" : model.path.string()));
  }
  const Tokenizer tokenizer = Tokenizer::load(path);
  const auto ids = [&](const char* words) { return tokenizer.encode(words, false); };
  return {ids("\n\nRepeat the previous context exactly."),
          ids("\n\nRepeat the part of the previous context exactly, starting with"), ids("\n")};
}

}  // namespace

std::string_view name_of(BackendKind kind) {
  switch (kind) {
    case BackendKind::kReference: return "reference";
    case BackendKind::kFast: return "fast";
    default: return "cuda";
  }
}

BackendChoice backend_option(const Arguments& arguments) {
  BackendChoice choice;
  choice.linear = linear_option(arguments);
  choice.asked_for = arguments.has("backend");
  if (!choice.asked_for) {
    const auto problem = cuda_device_problem();
    choice.kind = problem ? BackendKind::kFast : BackendKind::kCuda;
    if (problem && cuda_device_is_there()) choice.note = *problem + "; the CPU runs the model";
    return choice;
  }
  choice.kind = named_kind(arguments.get<std::string>("backend"));
  const auto problem = choice.kind == BackendKind::kCuda ? cuda_device_problem() : std::nullopt;
  if (problem) throw Error("--backend cuda: " + *problem, ExitCode::kNeedsDevice);
  return choice;
}

// What makes products of the CUDA back end is not to be asked for in vain.
static void refuse_linear_of_cpu(const BackendChoice& choice) {
  if (choice.kind == BackendKind::kCuda || choice.linear == LinearBy::kAuto) return;
  throw usage_error(fmt::format("--linear {}: it is of the CUDA back end, but the {} back end runs the model",
                                choice.linear == LinearBy::kOwn ? "own" : "cublaslt", name_of(choice.kind)))
      .note(choice.note.empty() ? "leave --linear out, or give --backend cuda where a GPU is" : choice.note);
}

void settle_backend(BackendChoice& choice, const ModelConfig& config, std::span<const PolicySpec> policies,
                    std::optional<DType> weights) {
  if (choice.kind != BackendKind::kCuda) return refuse_linear_of_cpu(choice);
  const DType type = weights.value_or(config.shape.weight_type);
  std::optional<std::string> what;
  for (std::size_t i = 0; !what && i < policies.size(); ++i) {
    what = cuda_model_problem(config, type, policies[i].kv.value_or(type));
    if (!what) what = cuda_policy_problem(policies[i]);
  }
  if (!what) return;
  const std::string refusal = fmt::format("{}: the CUDA back end does not run {}", config.shape.name, *what);
  if (choice.asked_for) throw usage_error(refusal).note("`--backend fast` runs it on the CPU");
  choice.kind = BackendKind::kFast;
  choice.note = refusal + "; the CPU does";
  refuse_linear_of_cpu(choice);
}

void make_host_elements(BackendKind kind, const Arguments& arguments, Model& model,
                        std::span<const PolicySpec> policies) {
  const auto projects = [](const PolicySpec& policy) { return asks_for(policy, HostNeed::kOutputProjection); };
  if (kind == BackendKind::kCuda) {
    if (std::ranges::any_of(policies, projects)) make_output_projections(model);
    return;
  }
  LoadProgress progress(arguments, model);
  make_elements(model, progress.watch());
}

std::unique_ptr<Backend> make_backend(const BackendChoice& choice, const Arguments& arguments, const Model& model,
                                      const PolicySpec& policy, RepeatingBackend::Sink scored) {
  const KvType kv_type = policy.kv.value_or(model.type);
  if (!asks_for(policy, HostNeed::kRepetition)) return plain_backend(choice, arguments, model, policy, kv_type);
  const RepetitionRequest request = repetition_request(model, policy);
  RepeatingBackend::Parts parts;
  parts.kv = kv_type.rows();  // a cache is quantised once it was scored
  parts.full = plain_backend(choice, arguments, model, parse_policies(kFullAttention).front(), parts.kv);
  parts.budget = policy.budget;
  parts.scores = std::make_shared<TokenScores>();
  PolicySpec with_scores = policy;
  with_scores.token_scores = parts.scores;
  parts.inner = plain_backend(choice, arguments, model, with_scores, kv_type);
  const std::uint32_t tokens = policy_info(policy.name).traits(policy).repeats;
  return std::make_unique<RepeatingBackend>(model, std::move(parts), request, tokens, arguments.threads,
                                            std::move(scored));
}

std::string linear_note(const LinearFacts& facts) {
  if (facts.problem.empty()) return {};
  return fmt::format("prompts and batches took longer, with the engine's own kernels: {}", facts.problem);
}

}  // namespace kvroof
