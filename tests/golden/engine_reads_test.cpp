// Policies that read a part of their cache: the engine's choices and bytes against a replay of its recorded run.
#include <algorithm>
#include <map>
#include <tuple>

#include "tests/golden/engine_bytes.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::filesystem::path kGoldens = std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

using Row = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // query position, layer, query head
using Reads = std::map<Row, std::vector<std::uint32_t>>;

// The reference, which notes what each query head of a decode step read. Layers are served in their order.
class NotesReads final : public ReferenceOps {
 public:
  NotesReads(Reads& reads, std::size_t prompt) : reads_(reads), prompt_(prompt) {}
  void attend(std::span<const AttendCall> calls, const AttentionRule& rule) override {
    for (const AttendCall& call : calls) {
      REQUIRE(call.selected != nullptr);
      const auto next = static_cast<std::uint32_t>(layers_.size());
      const std::uint32_t layer = layers_.try_emplace(call.policy, next).first->second;
      if (call.query.value < prompt_) continue;
      const std::size_t rows = call.rows();
      for (std::uint32_t g = 0; g < call.policy->group(); ++g) {
        std::vector<std::uint32_t>& read = reads_[{call.query.value, layer, call.first_query_head + g}];
        for (std::size_t i = 0; i < rows; ++i) {
          if (call.selected->hidden[g * rows + i] == 0) read.push_back(call.selected->positions[i].value);
        }
        std::ranges::sort(read);  // rows come in the order of slots, which go around under a window
      }
    }
    ReferenceOps::attend(calls, rule);
  }

 private:
  Reads& reads_;
  std::size_t prompt_;
  std::map<const LayerPolicy*, std::uint32_t> layers_;
};

struct NotesKept final : ReplayObserver {
  explicit NotesKept(std::uint32_t prompt) : prompt_(prompt) {}
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& set) override {
    std::vector<std::uint32_t>& read = reads[{prompt_ + set.step.value - 1, set.layer.value, set.head}];
    for (const TokenPos p : set.positions) read.push_back(p.value);
  }
  void quality(const QualityValue&) override {}
  Reads reads;

 private:
  std::uint32_t prompt_;
};

Reads replayed(const TraceReader& trace, const PolicySpec& spec) {
  NotesKept notes(trace.manifest().sequences.front().prompt);
  ThreadPool pool(1);
  ReplayOptions options;
  options.observer = &notes;
  (void)replay(trace, std::span(&spec, 1), options, pool);
  return std::move(notes.reads);
}

}  // namespace

TEST_CASE("the engine reads the very tokens that a replay of its run reads, and bytes are equal in every step") {
  for (const char* name : {"llama-gqa", "gemma2", "bloom", "deepseek-v2"}) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    const auto ids = integers(open_tensors(kGoldens / name / "golden.safetensors"), "ids_37");
    for (const char* policy : {"quest:budget=16:page=4:dense=1", "quest:budget=8:page=4:dense=0:rule=repository",
                               "quest:budget=0.5:page=8:dense=0:current=no", "h2o-masked:heavy=0.2:recent=0.2",
                               "h2o-masked:heavy=2:recent=2",  // less than gemma2's window has
                               "keyformer-refcompat:budget=0.4", "keyformer-refcompat:budget=5",
                               "keyformer-refcompat:budget=9:noise=query",
                               "scissorhands-refcompat:start=5:history=3:recent=2",
                               // Next to nothing but the own token.
                               "h2o-masked:heavy=0:recent=0", "keyformer-refcompat:budget=1",
                               "scissorhands-refcompat:start=0:history=1:recent=0"}) {
      for (const DType kv : {DType::kF32, DType::kBF16}) {
        INFO(name << " " << policy << " " << name_of(kv));
        const PolicySpec spec = parse_policies(policy).front();
        {
          Reads reads;
          const TraceFolder folder;
          const TraceReader trace = record(folder.path(), model, spec, kv, {ids},
                                           std::make_unique<NotesReads>(reads, ids.size()));
          check_equal(trace, simulate(trace, model, spec, kv));
          CHECK(reads == replayed(trace, spec));
        }
        const TraceFolder folder;
        const Prompts prompts = {ids, {ids.begin(), ids.begin() + 20}};
        const TraceReader fast = record(folder.path(), model, spec, kv, prompts, make_fast_ops(2), {"fast"});
        // A prompt that is streamed goes row by row there too.
        const bool streams = policy_info(spec.name).traits(spec).streams_prompt;
        check_equal(fast, simulate(fast, model, spec, kv, {0, streams ? 1 : make_fast_ops(1)->prefill_block()}));
      }
    }
  }
}

// Prompts of mistral and gemma2 are longer than their windows.
TEST_CASE("what reads all that it keeps decodes what full attention decodes, bit for bit, on both back ends") {
  for (const char* name : {"llama-gqa", "mistral", "gemma2"}) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    const auto ids = integers(open_tensors(kGoldens / name / "golden.safetensors"), "ids_37");
    const auto last_rows = [&](const char* policy, bool fast) {
      const TraceFolder folder;
      auto ops = fast ? make_fast_ops(2) : std::unique_ptr<Ops>(std::make_unique<ReferenceOps>());
      const TraceReader trace =
          record(folder.path(), model, parse_policies(policy).front(), DType::kF32, {ids}, std::move(ops));
      const LayerKeysValues last = trace.keys_values(0, LayerId(model.config.shape.layers - 1));
      return std::vector<std::byte>(last.k.begin(), last.k.end());
    };
    for (const bool fast : {false, true}) {
      const auto full = last_rows("full", fast);
      for (const char* policy : {"quest:budget=4000:page=4:dense=0", "h2o-masked:heavy=4000:recent=4000",
                                 "keyformer-refcompat:budget=4000"}) {
        INFO(name << " " << policy);
        CHECK(last_rows(policy, fast) == full);
      }
    }
    // Its prompt goes row by row, which the fast back end adds up in another order than a block of rows, and under a
    // window both do.
    const bool windows = std::ranges::any_of(model.config.shape.layer_windows, [](std::uint32_t w) { return w > 0; });
    if (!windows) CHECK(last_rows("scissorhands-refcompat:start=4000", false) == last_rows("full", false));
    CHECK(last_rows("scissorhands-refcompat:start=10:history=1:recent=1", false) != last_rows("full", false));
  }
}

// The mask of the last 8 tokens, the query's own among them, shows what a cache of 7 tokens holds.
TEST_CASE("a masked simulation without heavy tokens decodes what a window of its recent ones decodes") {
  for (const char* name : {"llama-gqa", "bloom", "deepseek-v2"}) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    const auto ids = integers(open_tensors(kGoldens / name / "golden.safetensors"), "ids_37");
    const auto last_keys = [&](const char* policy) {
      const TraceFolder folder;
      const TraceReader trace = record(folder.path(), model, parse_policies(policy).front(), DType::kF32, {ids},
                                       std::make_unique<ReferenceOps>());
      const LayerKeysValues last = trace.keys_values(0, LayerId(model.config.shape.layers - 1));
      std::vector<float> keys(last.k.size() / sizeof(float));
      convert_to_float(DType::kF32, last.k.data(), keys);
      return keys;
    };
    const std::vector<float> window = last_keys("window:budget=7"), full = last_keys("full");
    for (const char* policy :
         {"h2o-masked:heavy=0:recent=8", "keyformer-refcompat:budget=8:recent=8:noise=none"}) {
      INFO(name << " " << policy);
      const std::vector<float> masked = last_keys(policy);
      REQUIRE(masked.size() == window.size());
      double off = 0, hidden = 0;
      for (std::size_t i = 0; i < masked.size(); ++i) {
        off = std::max(off, static_cast<double>(std::fabs(masked[i] - window[i])));
        hidden = std::max(hidden, static_cast<double>(std::fabs(full[i] - window[i])));
      }
      CHECK(off < 1e-4);
      CHECK(hidden > 1e-2);
    }
  }
}
