#include "apps/generate/generate_request.hpp"

#include <fmt/format.h>

#include <charconv>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/text_input.hpp"
#include "apps/cli/values.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/model/config_of_shape.hpp"

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace kvroof {
namespace {

using Strings = std::vector<std::string>;

constexpr std::uint64_t kMostPromptBytes = std::uint64_t{256} << 20;

Strings values_of(const Arguments& arguments, const std::string& option) {
  return arguments.has(option) ? arguments.get<Strings>(option) : Strings{};
}

PromptSource text_prompt(std::string origin, std::string text) {
  if (text.empty()) throw usage_error(fmt::format("{}: the prompt is empty", origin));
  return {std::move(origin), std::move(text), {}, 0};
}

PromptSource file_prompt(const std::string& path) {
  return text_prompt(path, text_input("prompt-file", path, kMostPromptBytes));
}

PromptSource ids_prompt(const std::string& text) {
  PromptSource prompt{"--ids", std::nullopt, {}, 0};
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto skip = [&] {
    while (at != end && (*at == ' ' || *at == ',' || *at == '\t' || *at == '\n')) ++at;
  };
  for (skip(); at != end; skip()) {
    std::int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    const bool whole = next == end || *next == ' ' || *next == ',' || *next == '\t' || *next == '\n';
    if (error != std::errc() || !whole) {
      throw usage_error(fmt::format("--ids \"{}\": expected token ids between spaces, as in \"5 17\"", text));
    }
    prompt.ids.push_back(id);
    at = next;
  }
  if (prompt.ids.empty()) throw usage_error("--ids: the prompt is empty");
  return prompt;
}

std::vector<PromptSource> prompts_of(const Arguments& arguments) {
  std::vector<PromptSource> given;
  for (const std::string& path : values_of(arguments, "prompt-file")) given.push_back(file_prompt(path));
  for (const std::string& text : values_of(arguments, "prompt")) {
    require_text("--prompt", text);
    given.push_back(text_prompt("--prompt", text));
  }
  for (const std::string& ids : values_of(arguments, "ids")) given.push_back(ids_prompt(ids));
  for (const std::string& tokens : values_of(arguments, "random-prompt")) {
    given.push_back({"--random-prompt", std::nullopt, {}, count_value("random-prompt", tokens, 1, kMostTokens)});
  }
  if (given.empty()) {
    throw usage_error("no prompt: give --prompt-file F, --prompt \"…\", --ids \"5 17\" or --random-prompt 1024");
  }
  const std::uint32_t copies = count_value("batch", arguments.get<std::string>("batch"), 1, kMostSequences);
  if (given.size() * copies > kMostSequences) {
    throw usage_error(
        fmt::format("--batch {} of {} prompts: at most {} sequences", copies, given.size(), kMostSequences));
  }
  std::vector<PromptSource> prompts;
  for (const PromptSource& prompt : given) prompts.insert(prompts.end(), copies, prompt);
  return prompts;
}

PolicySpec policy_of(const Arguments& arguments) {
  if (const std::size_t policies = named_policies(arguments); policies > 1) {
    throw usage_error(fmt::format("--policy {}: {} policies, but a run follows one policy at one budget",
                                  arguments.get<std::string>("policy"), policies))
        .note("`kvroof replay` sweeps over lists of them");
  }
  std::vector<PolicySpec> points = policy_points(arguments);
  set_kv_type(points, kv_type_option(arguments));
  if (points.size() != 1) {
    throw usage_error(fmt::format("--policy and --budget give {} points, but a run follows one policy at one budget",
                                  points.size()))
        .note("`kvroof replay` sweeps over lists of them");
  }
  return points.front();
}

Sampling sampling_of(const Arguments& arguments) {
  Sampling sampling;
  sampling.seed = arguments.seed;
  sampling.temperature = number_value("temperature", arguments.get<std::string>("temperature"), 0, 1000);
  sampling.top_k = count_value("top-k", arguments.get<std::string>("top-k"), 0, 1U << 24);
  sampling.top_p = number_value("top-p", arguments.get<std::string>("top-p"), 1e-9, 1);
  if (sampling.temperature == 0 && (arguments.has("top-k") || arguments.has("top-p"))) {
    throw usage_error(
        "--top-k and --top-p choose among sampled tokens: add --temperature, for example 1 (0 is greedy)");
  }
  return sampling;
}

// Dumped logits are what someone compares with another framework: the whole run is in float then.
void make_whole_run_float(GenerateRequest& request) {
  const auto refuse = [](std::string_view option, std::string_view type) {
    throw usage_error(fmt::format("--dump-logits makes the whole run f32; leave out --{} {}", option, type));
  };
  const DType weights = request.weight_type.value_or(DType::kF32);
  const KvType kv = request.policy.kv.value_or(DType::kF32);
  if (weights != DType::kF32) refuse("dtype", name_of(weights));
  if (kv != DType::kF32) refuse("kv", name_of(kv));
  request.weight_type = DType::kF32;
  request.policy.kv = DType::kF32;
  if (request.prompts.size() != 1) {
    throw usage_error(fmt::format("--dump-logits takes one prompt, not {}", request.prompts.size()));
  }
}

std::filesystem::path scores_file_option(const Arguments& arguments, const PolicySpec& policy) {
  if (asks_for(policy, HostNeed::kRepetition)) return arguments.get<std::string>("dump-scores");
  throw usage_error(fmt::format("--dump-scores: policy {} has no scores of a repetition of the prompt; --policy kvzip "
                                "without file= has", policy.text()));
}

}  // namespace

void describe_generate(po::options_description_easy_init add) {
  const auto text = [](const char* fallback) { return po::value<std::string>()->default_value(fallback); };
  const auto list = [] { return po::value<Strings>()->composing(); };
  add("model,m", po::value<std::string>(), "Hugging Face folder, or `demo`")(
      "random-weights", po::value<std::string>(),
      "instead of --model: a catalog model, or a shape in a file, with weights made from --seed")(
      "random-prompt", list(), "a prompt of so many random ids; may be repeated")(
      "prompt-file", list(), "text file with a prompt, or - for standard input; may be repeated")(
      "prompt", list(), "a prompt; may be repeated")(
      "ids", list(), "token ids of a prompt, \"5 17\"; needs no tokenizer; may be repeated")(
      "batch", text("1"), "copies of each prompt; with --random-prompt so many prompts")(
      "policy", text("full"), "one eviction policy: name[:key=value]…")(
      "budget", po::value<std::string>(),
      "for a policy without budget=: 0.5 or 50% of the prompt, 512 or 4k tokens, 0.5@current")(
      "backend", po::value<std::string>(), kBackendHelp)("linear", po::value<std::string>(), kLinearHelp)(
      "dtype", po::value<std::string>(), "weights as f32, bf16 or f16 (default: as stored; reference: f32)")(
      "kv", po::value<std::string>(), kKvHelp)(
      "max-tokens,n", text("128"), "new tokens at most")("ignore-eos", "go on after an end-of-text token")(
      "temperature", text("0"), "0 is greedy; above, tokens are sampled")(
      "top-k", text("0"), "sample among the k most likely tokens; 0: all")(
      "top-p", text("1"), "sample among the most likely tokens that reach this probability")(
      "dump-logits", po::value<std::string>(), "write the prompt's logits to this safetensors file; the run is f32")(
      "dump-scores", po::value<std::string>(),
      "of a policy that has the model repeat the prompt: write its scores to this safetensors file, for its file=");
}

GenerateRequest parse_generate(const Arguments& arguments) {
  GenerateRequest request;
  request.backend = backend_option(arguments);
  if (arguments.has("random-weights")) {
    if (arguments.has("model")) throw usage_error("--model and --random-weights exclude each other: give one");
    const auto name = arguments.get<std::string>("random-weights");
    request.random_weights = find_model_shape(name, data_folder() / "catalog");
    if (const std::string part = not_built(*request.random_weights); !part.empty()) {
      throw usage_error(fmt::format("--random-weights {}: it has {}, which the engine does not run", name, part))
          .note("`kvroof models show` says of a model what is not supported; plan, compare and simulate price it");
    }
  } else {
    request.model = model_folder(arguments);
  }
  request.policy = policy_of(arguments);
  check_runnable(request.policy);
  request.weight_type = float_type_option(arguments, "dtype");
  if (request.backend.kind == BackendKind::kReference && !request.weight_type) request.weight_type = DType::kF32;
  request.max_tokens = count_value("max-tokens", arguments.get<std::string>("max-tokens"), 1, kMostTokens);
  request.ignore_eos = arguments.values.count("ignore-eos") > 0;
  request.prompt_logprobs = arguments.values.count("prompt-logprobs") > 0;
  request.capture = arguments.values.count("no-capture") == 0;
  if (request.prompt_logprobs && !request.capture) {
    throw usage_error("--prompt-logprobs and --no-capture exclude each other: log-probabilities lie beside the tokens");
  }
  request.sampling = sampling_of(arguments);
  request.prompts = prompts_of(arguments);
  if (arguments.has("dump-scores")) request.dump_scores = scores_file_option(arguments, request.policy);
  if (arguments.has("dump-logits")) {
    request.dump_logits = arguments.get<std::string>("dump-logits");
    make_whole_run_float(request);
  }
  return request;
}

}  // namespace kvroof
