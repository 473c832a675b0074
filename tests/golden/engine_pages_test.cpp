// A policy that reads pages of its cache: the engine's choices and bytes against a replay of its recorded run.
#include <algorithm>
#include <map>
#include <tuple>

#include "tests/golden/engine_bytes.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::filesystem::path kGoldens = std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

using Row = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // query position, layer, query head
using Reads = std::map<Row, std::vector<std::uint32_t>>;

// The reference, which notes what each query head of a decode step read.
class NotesReads final : public ReferenceOps {
 public:
  NotesReads(Reads& reads, std::uint32_t layers) : reads_(reads), layers_(layers) {}
  void attend(std::span<const AttendCall> calls, const AttentionRule& rule) override {
    for (const AttendCall& call : calls) {
      REQUIRE(call.selected != nullptr);
      const std::size_t rows = call.rows();
      for (std::uint32_t g = 0; g < call.policy->group(); ++g) {
        std::vector<std::uint32_t>& read = reads_[{call.query.value, layer_, call.first_query_head + g}];
        for (std::size_t i = 0; i < rows; ++i) {
          if (call.selected->hidden[g * rows + i] == 0) read.push_back(call.selected->positions[i].value);
        }
        std::ranges::sort(read);  // rows come in the order of slots, which go around under a window
      }
    }
    layer_ = (layer_ + 1) % layers_;
    ReferenceOps::attend(calls, rule);
  }

 private:
  Reads& reads_;
  std::uint32_t layers_;
  std::uint32_t layer_ = 0;
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

TEST_CASE("the engine reads the very pages that a replay of its run reads, and bytes are equal in every step") {
  for (const char* name : {"llama-gqa", "gemma2", "bloom", "deepseek-v2"}) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    const auto ids = integers(open_tensors(kGoldens / name / "golden.safetensors"), "ids_37");
    for (const char* policy : {"quest:budget=16:page=4:dense=1", "quest:budget=8:page=4:dense=0:rule=repository",
                               "quest:budget=0.5:page=8:dense=0:current=no"}) {
      for (const DType kv : {DType::kF32, DType::kBF16}) {
        INFO(name << " " << policy << " " << name_of(kv));
        const PolicySpec spec = parse_policies(policy).front();
        {
          Reads reads;
          const TraceFolder folder;
          const TraceReader trace = record(folder.path(), model, spec, kv, {ids},
                                           std::make_unique<NotesReads>(reads, model.config.shape.layers));
          check_equal(trace, simulate(trace, model, spec, kv));
          CHECK(reads == replayed(trace, spec));
        }
        const TraceFolder folder;
        const Prompts prompts = {ids, {ids.begin(), ids.begin() + 20}};
        const TraceReader fast = record(folder.path(), model, spec, kv, prompts, make_fast_ops(2), {"fast"});
        check_equal(fast, simulate(fast, model, spec, kv, {0, make_fast_ops(1)->prefill_block()}));
      }
    }
  }
}

TEST_CASE("quest with a budget of all tokens decodes what full attention decodes, on both back ends") {
  const Model model = load_model(kGoldens / "llama-gqa", DType::kF32);
  const auto ids = integers(open_tensors(kGoldens / "llama-gqa/golden.safetensors"), "ids_37");
  for (const bool fast : {false, true}) {
    std::vector<std::vector<std::byte>> rows;
    for (const char* policy : {"full", "quest:budget=4000:page=4:dense=0"}) {
      const TraceFolder folder;
      const PolicySpec spec = parse_policies(policy).front();
      auto ops = fast ? make_fast_ops(2) : std::unique_ptr<Ops>(std::make_unique<ReferenceOps>());
      const TraceReader trace = record(folder.path(), model, spec, DType::kF32, {ids}, std::move(ops));
      const LayerKeysValues last = trace.keys_values(0, LayerId(model.config.shape.layers - 1));
      rows.emplace_back(last.k.begin(), last.k.end());
    }
    CHECK(rows[0] == rows[1]);
  }
}
