// Decode steps launched in every way there is: as one graph or kernel by kernel, each kernel made ready while the one
// before it runs or begun after that. Every sum has one order, so that logits must be the same to the bit: a kernel
// that reads what is not written yet, or writes what is still read, shows here.
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "kernels/cuda/cuda_backend.hpp"
#include "tests/gpu/suite/choice_review.hpp"
#include "tests/gpu/suite/parts.hpp"
#include "tests/gpu/suite/random_model.hpp"
#include "tests/support/loaded_model.hpp"

namespace kvroof::suite {
namespace {

// A variable of the environment that is set, or is not, while this lives; a stream looks at it when it is opened.
class Told {
 public:
  Told(const char* name, bool set) : name_(name), before_(std::getenv(name) != nullptr) { put(set); }
  ~Told() { put(before_); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

 private:
  void put(bool set) const { set ? setenv(name_, "1", 1) : unsetenv(name_); }
  const char* name_;
  bool before_;
};

struct Mode {
  bool graphs = false, overlap = false;
};

// The batch grows between steps: each size of it has kernels of its own.
struct Run {
  std::string policy;
  std::vector<std::uint32_t> batches;
  std::uint32_t steps = 4;  // of each batch; the second is the first that is a graph
  std::uint32_t long_prompt = 0;  // tokens of two prompts in three, whose heads several blocks share; 0: none
  bool int8 = false;  // the cache

  [[nodiscard]] std::uint32_t prompt_of(std::uint32_t sequence) const {
    return sequence % 9 + (long_prompt > 0 && sequence % 3 < 2 ? long_prompt : 24);
  }
};

cuda::CudaBackendOptions options_of(const Run& run) {
  cuda::CudaBackendOptions options;
  options.policy = parse_policies(run.policy).at(0);
  if (run.int8) options.quantised = cuda::Stored::kInt8;
  return options;
}

// Runs all steps; take(backend, entries) makes each. Returns the logits of the prompts' last tokens.
template <class Take>
std::vector<float> run_steps(const Model& model, const Run& run, Mode mode, const Take& take) {
  const Told graphs("KVROOF_NO_GRAPHS", !mode.graphs), overlap("KVROOF_NO_OVERLAP", !mode.overlap);
  cuda::CudaBackend backend(model, options_of(run));
  const std::uint32_t vocab = model.config.shape.vocab;
  const std::uint32_t all_steps = run.steps * static_cast<std::uint32_t>(run.batches.size());
  std::vector<float> prompts, last(vocab);
  std::uint32_t sequences = 0, step = 0;
  for (const std::uint32_t batch : run.batches) {
    for (; sequences < batch; ++sequences) {
      std::vector<std::int64_t> ids(run.prompt_of(sequences));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>((7 * i + 13 * sequences) % vocab);
      backend.prefill(sequences, ids, all_steps, last, {});
      prompts.insert(prompts.end(), last.begin(), last.end());
    }
    for (std::uint32_t i = 0; i < run.steps; ++i, ++step) {
      std::vector<DecodeEntry> entries;
      for (std::uint32_t s = 0; s < batch; ++s) entries.push_back({s, (31 * step + 5 * s) % vocab});
      take(backend, entries);
    }
  }
  return prompts;
}

// Of all steps, then of the prompts.
std::vector<float> logits_of(const Model& model, const Run& run, Mode mode) {
  const std::uint32_t vocab = model.config.shape.vocab;
  std::vector<float> all;
  const std::vector<float> prompts =
      run_steps(model, run, mode, [&](Backend& backend, const std::vector<DecodeEntry>& entries) {
        const std::size_t before = all.size();
        all.resize(before + entries.size() * vocab);
        backend.decode(entries, std::span(all).subspan(before));
      });
  all.insert(all.end(), prompts.begin(), prompts.end());
  return all;
}

// What the device chooses of each row by itself, against what the host chooses of those logits.
void check_choices(Report& report, const Json& parameters, const Model& model, const Run& run,
                   std::span<const float> logits) {
  const std::uint32_t vocab = model.config.shape.vocab;
  std::size_t row = 0;
  ChoiceReview review;
  run_steps(model, run, {true, true}, [&](Backend& backend, const std::vector<DecodeEntry>& entries) {
    std::vector<TokenChoice> choices(entries.size(), {-1, 0});
    backend.decode_greedily(entries, choices);
    for (const TokenChoice& choice : choices) {
      review.add(choice.token, choice.logprob, logits.subspan(row++ * vocab, vocab));
    }
  });
  report.check("greedy_choices", parameters, review.agrees(), review.results());
}

void check_modes(Report& report, const Model& model, const Run& run) {
  const auto parameters = [&](Mode mode) {
    return Json{{"model", model.name},
                {"policy", run.policy},
                {"kv", run.int8 ? "int8" : "bf16"},
                {"batches", run.batches},
                {"steps", run.steps},
                {"long_prompt", run.long_prompt},
                {"graphs", mode.graphs},
                {"overlap", mode.overlap}};
  };
  std::vector<float> plain;  // kernel by kernel, each after the one before
  report.guarded("launch_modes", parameters({}), [&] {
    plain = logits_of(model, run, {});
    std::size_t not_numbers = 0;
    for (const float x : plain) not_numbers += x - x == 0 ? 0 : 1;
    report.check("launch_modes", parameters({}), not_numbers == 0,
                 {{"logits", plain.size()}, {"not_numbers", not_numbers}});
  });
  for (const Mode mode : {Mode{false, true}, Mode{true, false}, Mode{true, true}}) {
    if (plain.empty()) continue;  // there is nothing to hold it against
    report.guarded("launch_modes", parameters(mode), [&] {
      const std::vector<float> got = logits_of(model, run, mode);
      std::size_t others = 0, first = got.size();
      for (std::size_t i = got.size(); i-- > 0;) {
        if (std::memcmp(&got[i], &plain[i], sizeof(float)) == 0) continue;
        ++others;
        first = i;
      }
      Json results = {{"logits", got.size()}, {"others", others}};
      if (others > 0) results["first"] = {{"element", first}, {"got", got[first]}, {"expected", plain[first]}};
      report.check("launch_modes", parameters(mode), others == 0, results);
    });
  }
  if (plain.empty()) return;
  const Json of_choices = {
      {"model", model.name}, {"policy", run.policy}, {"kv", run.int8 ? "int8" : "bf16"}, {"batches", run.batches}};
  report.guarded("greedy_choices", of_choices, [&] { check_choices(report, of_choices, model, run, plain); });
}

// What the models above lack: layers that hold a state, gates, experts, windows, caches of integers, and policies whose
// scores are kept by launches of their own. The models are tiny, so that many launches are under way at once.
void check_other_parts(const Options& options, Report& report) {
  const Run runs[] = {{"tova:budget=0.5", {1, 3}, 3},
                      {"full", {1, 3}, 3},
                      {"h2o:budget=0.5", {1, 3}, 3},
                      {"keyformer:budget=0.5", {1, 3}, 3},
                      {"h2o:budget=0.5", {1, 3}, 3, 0, true}};
  const char* const models[] = {"qwen3_next", "granitemoehybrid", "qwen3-moe", "mistral", "llama-gqa"};
  static_assert(std::size(runs) == std::size(models));
  for (std::size_t i = 0; i < std::size(runs); ++i) {
    report.guarded("launch_modes", {{"model", models[i]}}, [&] {
      check_modes(report, load_model(options.data / "tests/golden/models" / models[i], DType::kBF16), runs[i]);
    });
  }
}

}  // namespace

void check_launch_modes(const Options& options, Report& report) {
  const std::vector<std::uint32_t> batches =
      options.small ? std::vector<std::uint32_t>{1, 2} : std::vector<std::uint32_t>{1, 3, 20, 70};
  const std::uint32_t steps = options.small ? 2 : 4, layers = options.small ? 1 : 4;
  const std::uint32_t long_prompt = options.small ? 0 : 1000;  // half of them stay
  for (const auto& [name, policy] : {std::pair{"llama-3-8b", "h2o:budget=0.5"}, {"mpt-7b", "keyformer:budget=0.5"}}) {
    report.guarded("launch_modes", {{"model", name}}, [&] {
      const Model model = random_model(name, 2048, options.small, options.seed, layers);
      check_modes(report, model, {policy, batches, steps, long_prompt});
    });
  }
  check_other_parts(options, report);
}

}  // namespace kvroof::suite
