#include "apps/generate/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/token_scores_file.hpp"
#include "apps/generate/generate_request.hpp"
#include "apps/generate/generate_summary.hpp"
#include "apps/generate/record_profile.hpp"
#include "kernels/engine/random_model.hpp"
#include "kernels/engine/session.hpp"
#include "kernels/engine/token_kinds.hpp"
#include "kernels/tokenizer/tokenizer.hpp"
#include "kvroof_version.hpp"
#include "sim/core/philox.hpp"
#include "sim/model/config_of_shape.hpp"
#include "sim/policy/policy.hpp"
#include "traces/safetensors.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

using Ids = std::vector<std::int64_t>;

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};  // the first one that interrupted

// The first Ctrl-C, or what ends a terminal or a job, ends the run after its step; a second one kills it. A trace is
// finished also where nobody reads the text beside it any more.
void watch_interrupts(bool records) {
  struct sigaction action{};
  action.sa_handler = [](int signal) {
    int none = 0;
    g_signal.compare_exchange_strong(none, signal);
    g_interrupted.store(true);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before{};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup has it ignored
  if (records) std::signal(SIGPIPE, SIG_IGN);
}

// Prompts of ids need no tokenizer; then one that is missing or cannot be read only means that no text is printed.
std::optional<Tokenizer> load_tokenizer(const GenerateRequest& request) {
  const bool needed =
      std::any_of(request.prompts.begin(), request.prompts.end(), [](const auto& p) { return p.text.has_value(); });
  if (request.random_weights) {
    if (!needed) return std::nullopt;
    throw usage_error("--random-weights has no tokenizer for a text; give --random-prompt 1024, or --ids \"5 17\"");
  }
  const fs::path path = request.model / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    if (!needed) return std::nullopt;
    throw usage_error(fmt::format("{}: no tokenizer.json in this folder", request.model.string()))
        .note("--ids \"5 17\" gives a prompt as token ids and needs no tokenizer");
  }
  try {
    return Tokenizer::load(path);
  } catch (const Error&) {
    if (needed) throw;
    return std::nullopt;
  }
}

Ids random_ids(std::uint32_t count, std::uint32_t prompt, std::uint32_t vocab, std::uint64_t seed) {
  Ids ids;
  for (std::uint32_t i = 0; i < count; ++i) {
    ids.push_back(philox4x32_10({{i, prompt, 0, 0x70726f6dU}}, seed).x[0] % vocab);
  }
  return ids;
}

std::vector<Ids> encode_prompts(const GenerateRequest& request, const std::optional<Tokenizer>& tokenizer,
                                std::uint32_t vocab, std::uint64_t seed) {
  std::vector<Ids> prompts;
  for (const PromptSource& prompt : request.prompts) {
    if (prompt.text) {
      prompts.push_back(tokenizer->encode(*prompt.text, true));
    } else if (prompt.random > 0) {
      prompts.push_back(random_ids(prompt.random, static_cast<std::uint32_t>(prompts.size()), vocab, seed));
    } else {
      prompts.push_back(prompt.ids);
    }
  }
  return prompts;
}

// Of the folder, or of the shape with random weights; a device gets the elements from there.
Model make_model(const GenerateRequest& request, const ModelConfig& config, const Arguments& arguments,
                 const std::vector<Ids>& prompts) {
  const DType random_type = request.weight_type.value_or(config.shape.weight_type);
  Model model = request.random_weights ? random_model(config, random_type, arguments.seed)
                                       : open_model(request.model, request.weight_type);
  if (stretch_context(model.config, prompts, request.max_tokens)) {
    model.notes.emplace_back(
        "a prompt is longer than the model's context: all tokens, new ones too, turn by the frequencies that dynamic "
        "scaling has for the longest prompt");
  }
  const std::span<const PolicySpec> policies(&request.policy, 1);
  if (!request.random_weights) add_token_kinds(model, policies);
  make_host_elements(request.backend.kind, arguments, model, policies);
  return model;
}

// Prints the text of a single sequence while it is made.
class LiveText {
 public:
  LiveText(const std::optional<Tokenizer>& tokenizer, bool active) {
    if (tokenizer && active) decoder_.emplace(*tokenizer, true);
  }
  [[nodiscard]] bool active() const { return decoder_.has_value(); }
  void push(std::int64_t id) { put(decoder_->push(id)); }
  void finish() { put(decoder_->finish() + "\n"); }

 private:
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  std::optional<StreamingDecoder> decoder_;
};

nlohmann::json sequence_json(const std::optional<Tokenizer>& tokenizer, const SequenceResult& sequence,
                             std::size_t prompt) {
  nlohmann::json json;
  json["text"] = tokenizer ? nlohmann::json(tokenizer->decode(sequence.ids, true)) : nlohmann::json();
  json["ids"] = sequence.ids;
  json["logprobs"] = sequence.logprobs;
  json["stop_reason"] = name_of(sequence.stop);
  json["prompt_tokens"] = prompt;
  return json;
}

// One prompt: everything at the top. Several: a list of what belongs to each, and the totals under their own key.
std::string result_json(const RunFacts& facts, const std::optional<Tokenizer>& tokenizer,
                        const std::vector<Ids>& prompts, const SessionResult& result,
                        const std::optional<ReadSpeed>& speed) {
  nlohmann::json json;
  add_facts(json, facts);
  if (prompts.size() == 1) {
    add_totals(json, result, speed);
    json.update(sequence_json(tokenizer, result.sequences[0], prompts[0].size()));
  } else {
    add_totals(json["totals"], result, speed);
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      json["sequences"].push_back(sequence_json(tokenizer, result.sequences[s], prompts[s].size()));
    }
  }
  return json.dump() + "\n";
}

std::string result_text(const std::optional<Tokenizer>& tokenizer, const SessionResult& result) {
  std::string text;
  for (std::size_t s = 0; s < result.sequences.size(); ++s) {
    const Ids& ids = result.sequences[s].ids;
    if (result.sequences.size() > 1) text += fmt::format("[{}] ", s);
    text += tokenizer ? tokenizer->decode(ids, true) : fmt::format("{}", fmt::join(ids, " "));
    text += "\n";
  }
  return text;
}

// Of a recording --out is the trace.
void print_result(const Arguments& arguments, bool records, const std::string& text) {
  if (records) {
    fmt::print("{}", text);
  } else {
    write_result(arguments, text);
  }
}

void dump_logits(const fs::path& path, std::span<const float> logits, std::uint32_t vocab) {
  const TensorToWrite tensor{"logits", DType::kF32, {logits.size() / vocab, vocab}, std::as_bytes(logits)};
  write_safetensors(path, {&tensor, 1}, {});
}

// Keeps the scores of prompts where they are to be written.
RepeatingBackend::Sink scores_sink(const GenerateRequest& request, TokenScores& kept) {
  if (!request.dump_scores) return {};
  return [&kept](std::uint32_t sequence, std::span<const float> scores) {
    kept.sequences[sequence].assign(scores.begin(), scores.end());
  };
}

// What follows a prompt of longrope's short factors keeps them.
std::string longrope_note(const ModelConfig& config, const std::vector<Ids>& prompts, std::uint32_t new_tokens) {
  const auto& rules = config.options.rotary;
  const auto rule = std::ranges::find_if(rules, [](const RotaryRule& r) { return r.long_from > 0; });
  if (rule == rules.end()) return {};
  const bool crosses = std::ranges::any_of(prompts, [&](const Ids& ids) {
    return ids.size() <= rule->long_from && ids.size() + new_tokens > std::size_t{rule->long_from} + 1;
  });
  if (!crosses) return {};
  return fmt::format("a prompt of no more than {} tokens takes longrope's short factors, and so do all tokens after "
                     "it; transformers takes the long ones from token {} on",
                     rule->long_from, rule->long_from + 1);
}

RunFacts run_facts(const Arguments& arguments, const GenerateRequest& request, const Model& model,
                   const std::vector<Ids>& prompts) {
  RunFacts facts;
  facts.backend = name_of(request.backend.kind);
  facts.policy = request.policy;
  facts.weight_type = model.type;
  facts.kv_type = request.policy.kv.value_or(model.type);
  facts.threads = arguments.threads;
  facts.max_tokens = request.max_tokens;
  facts.context = model.config.shape.max_positions;
  if (!request.backend.note.empty()) facts.notes.push_back(request.backend.note);
  facts.notes.insert(facts.notes.end(), model.notes.begin(), model.notes.end());
  const std::string rope = longrope_note(model.config, prompts, request.max_tokens);
  if (!rope.empty()) facts.notes.push_back(rope);
  bool advised = false;
  for (const Ids& prompt : prompts) {
    const std::string advice = policy_advice(request.policy, static_cast<std::uint32_t>(prompt.size()));
    if (!advised && !advice.empty()) facts.notes.push_back(advice);
    advised = advised || !advice.empty();
  }
  return facts;
}

// How the back end makes products, as far as it knows by now; a note is added once.
void note_linear(RunFacts& facts, const LinearFacts& linear) {
  const std::string note = linear_note(linear);
  facts.linear = linear.by;
  const bool known = std::find(facts.notes.begin(), facts.notes.end(), note) != facts.notes.end();
  if (!note.empty() && !known) facts.notes.push_back(note);
}

std::unique_ptr<TraceRecorder> make_recorder(const fs::path& path, const Arguments& arguments, const Model& model,
                                             const RunFacts& facts, const std::vector<Ids>& prompts,
                                             const GenerateRequest& request) {
  RecordedRun run;
  run.backend = facts.backend;
  run.policy = facts.policy.text();
  run.model_path = model.path.string();
  run.command_line = arguments.command_line;
  run.tool_version = kVersion;
  run.seed = arguments.seed;
  run.weight_type = model.type;
  run.kv_type = facts.kv_type;
  run.requested_new_tokens = request.max_tokens;
  for (const Ids& ids : prompts) run.prompts.push_back(static_cast<std::uint32_t>(ids.size()));
  TraceManifest manifest = make_manifest(model, run);
  if (!request.capture) manifest = without_attention(std::move(manifest));
  return std::make_unique<TraceRecorder>(path, std::move(manifest));
}

SessionOptions session_options(const GenerateRequest& request, unsigned threads, std::size_t prompt_tokens,
                               std::uint32_t vocab, LiveText& live) {
  SessionOptions options;
  options.threads = threads;
  options.max_new_tokens = request.max_tokens;
  options.ignore_eos = request.ignore_eos;
  options.prompt_logprobs = request.prompt_logprobs;
  options.sampling = request.sampling;
  options.interrupted = &g_interrupted;
  if (live.active()) options.on_token = [&live](std::uint32_t, std::int64_t id) { live.push(id); };
  if (request.dump_logits) {
    options.on_prompt_logits = [&request, prompt_tokens, vocab, logits = std::vector<float>()](
                                   std::uint32_t, std::span<const float> rows) mutable {
      logits.insert(logits.end(), rows.begin(), rows.end());
      if (logits.size() == prompt_tokens * vocab) dump_logits(*request.dump_logits, logits, vocab);
    };
  }
  return options;
}

// Whether a trace can hold the rows of such a cache.
void check_recordable(const GenerateRequest& request) {
  const KvType kv = request.policy.kv.value_or(DType::kF32);
  const bool on_device = request.backend.kind == BackendKind::kCuda && kv.quantised();
  if (!on_device && !kv.by_age()) return;
  throw usage_error(kv.by_age()
                        ? fmt::format("record --kv {}: a trace holds one row a token, this cache changes rows with age",
                                      name_of(kv))
                        : fmt::format("record --kv {}: the CUDA back end records rows of f16 and bf16", name_of(kv)))
      .note("record with --kv f16, then `kvroof replay` that trace with the --kv that is meant");
}

// The same again, without a word.
SessionOptions repeated(SessionOptions options, StepWatcher& watcher) {
  options.watcher = &watcher;
  options.prompt_logprobs = false;
  options.on_token = {};
  options.on_prompt_logits = {};
  return options;
}

// A run that fails leaves a whole trace of what came before. `finish` adds to it before the seal, after a failure
// without a result.
SessionResult run_to_seal(Backend& backend, const ModelConfig& config, const std::vector<Ids>& prompts,
                          const SessionOptions& options, TraceRecorder* recorder,
                          const std::function<void(const SessionResult* result)>& finish) {
  SessionResult result;
  try {
    result = run_session(backend, config, prompts, options, recorder);
  } catch (const std::exception&) {  // memory and threads may be refused as well
    if (recorder != nullptr && recorder->can_seal()) {
      finish(nullptr);
      recorder->seal();
    }
    throw;
  }
  if (recorder != nullptr) {
    finish(&result);
    recorder->seal();
  }
  return result;
}

// From the first note that was not said; gives how many are.
std::size_t say_notes(const RunFacts& facts, std::size_t from, bool quiet) {
  for (std::size_t i = from; i < facts.notes.size() && !quiet; ++i) say("note: {}\n", facts.notes[i]);
  return facts.notes.size();
}

}  // namespace

int generate(const Arguments& arguments, const std::optional<fs::path>& trace) {
  std::unique_ptr<TraceRecorder> recorder;  // outlives what the profile's thread still writes when a run fails
  // CUPTI begins before the device is used: parse_generate() looks for one.
  const auto profile = trace ? RecordProfile::from(arguments) : nullptr;
  GenerateRequest request = parse_generate(arguments);
  ModelConfig config =
      request.random_weights ? config_of_shape(*request.random_weights) : load_model_config(request.model);
  settle_backend(request.backend, config, {&request.policy, 1}, request.weight_type);
  if (trace && request.capture) check_recordable(request);
  const std::optional<Tokenizer> tokenizer = load_tokenizer(request);
  const std::vector<Ids> prompts = encode_prompts(request, tokenizer, config.shape.vocab, arguments.seed);
  stretch_context(config, prompts, request.max_tokens);
  check_prompts(config, prompts);
  const Model model = make_model(request, config, arguments, prompts);
  RunFacts facts = run_facts(arguments, request, model, prompts);
  TokenScores scored{model.config.shape.layers, model.config.shape.kv_heads, {}};
  const auto new_backend = [&] {
    return make_backend(request.backend, arguments, model, request.policy, scores_sink(request, scored));
  };
  std::unique_ptr<Backend> backend = new_backend();
  note_linear(facts, backend->linear_facts());
  const bool json = format_of(arguments) == Format::kJson;
  LiveText live(tokenizer, !json && prompts.size() == 1 && (trace || !arguments.has("out")));
  if (trace) recorder = make_recorder(*trace, arguments, model, facts, prompts, request);
  if (profile) profile->attach(request.backend.kind, *backend, recorder->profile());
  const std::size_t said = say_notes(facts, 0, arguments.quiet);
  watch_interrupts(trace.has_value());
  SessionOptions options = session_options(request, arguments.threads, prompts[0].size(), config.shape.vocab, live);
  options.watcher = profile.get();
  const RecordProfile::Repeat repeat = [&](StepWatcher& watcher, const auto& attach) {
    backend.reset();  // a device need not hold two; and there may be none to be had
    backend = new_backend();
    attach(*backend);
    return run_session(*backend, config, prompts, repeated(options, watcher), nullptr);
  };
  LinearFacts linear;
  const SessionResult result =
      run_to_seal(*backend, config, prompts, options, recorder.get(), [&](const SessionResult* made) {
        linear = backend->linear_facts();
        recorder->set_linear(linear.by);
        if (profile) profile->finish(made, recorder->profile(), repeat, arguments.quiet);
      });
  if (request.dump_scores && !result.interrupted) write_token_scores(*request.dump_scores, scored);
  note_linear(facts, trace ? linear : backend->linear_facts());
  say_notes(facts, said, arguments.quiet);
  std::optional<ReadSpeed> speed;
  if (json || !arguments.quiet) speed = measure_read_speed(facts, result);
  if (live.active()) {
    live.finish();
  } else {
    print_result(arguments, trace.has_value(),
                 json ? result_json(facts, tokenizer, prompts, result, speed) : result_text(tokenizer, result));
  }
  if (!arguments.quiet) print_summary(facts, result, speed, recorder ? recorder->bytes_written() : 0);
  return static_cast<int>(result.interrupted ? ended_by(g_signal) : ExitCode::kOk);
}

}  // namespace kvroof
