// Runs that are cut, by an interrupt or by a back end that fails: the trace holds whole steps of whole sequences alone.
#include <atomic>
#include <optional>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/engine/session.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/run_program.hpp"
#include "traces/reader.hpp"

using namespace kvroof;

namespace {

const std::filesystem::path kModel = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/llama-gqa";

// Sets the flag once layer `last` of sequence `victim` was recorded, and tells everything on.
class FlagAfterLayer final : public Recorder {
 public:
  FlagAfterLayer(std::atomic<bool>& flag, std::uint32_t victim, std::uint32_t last)
      : flag_(flag), victim_(victim), last_(last) {}
  void rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
            std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v) override {
    if (inner != nullptr) inner->rows(sequence, layer, first, count, q, k, v);
    layers_seen += sequence == victim_ ? 1 : 0;
    if (sequence == victim_ && layer.value == last_) flag_ = true;
  }
  void eviction(const EvictionRecord& eviction) override {
    if (inner != nullptr) inner->eviction(eviction);
  }
  Recorder* inner = nullptr;
  int layers_seen = 0;

 private:
  std::atomic<bool>& flag_;
  std::uint32_t victim_;
  std::uint32_t last_;
};

// A CPU back end whose recorder is watched.
class Watched final : public Backend {
 public:
  Watched(Backend& inner, FlagAfterLayer& recorder) : inner_(inner), recorder_(recorder) {}
  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested,
               std::span<float> last, const LogitsSink& all) override {
    inner_.prefill(sequence, ids, requested, last, all);
  }
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    inner_.decode(batch, logits);
    if (--steps_before_failure == 0) throw Error("the device is lost");
  }
  void release(std::uint32_t sequence) override { inner_.release(sequence); }
  [[nodiscard]] KvUsage kv_usage() const override { return inner_.kv_usage(); }
  ByteCounters take_counters() override { return inner_.take_counters(); }
  void set_recorder(Recorder* recorder) override {
    recorder_.inner = recorder;
    inner_.set_recorder(&recorder_);
  }
  void set_interrupt(const std::atomic<bool>* asked) override { inner_.set_interrupt(asked); }
  int steps_before_failure = 0;  // 0: none fails

 private:
  Backend& inner_;
  FlagAfterLayer& recorder_;
};

// Fails in the second layer of sequence `victim`, as a full disk would, and keeps what it is told of experts.
class FailsInLayer final : public Recorder {
 public:
  void rows(std::uint32_t sequence, LayerId layer, std::uint32_t, std::uint32_t, std::span<const std::byte>,
            std::span<const std::byte>, std::span<const std::byte>) override {
    if (sequence == victim && layer.value == 1) throw Error("no space is left");
  }
  void eviction(const EvictionRecord&) override {}
  void experts(std::uint64_t passed) override { told.push_back(passed); }
  std::uint32_t victim = 99;
  std::vector<std::uint64_t> told;
};

const PolicySpec kPolicy = parse_policies("h2o:budget=4").front();

TraceManifest manifest_of(const Model& model, const std::vector<std::vector<std::int64_t>>& prompts,
                          std::uint32_t new_tokens) {
  RecordedRun run;
  run.backend = "reference";
  run.policy = kPolicy.text();
  run.requested_new_tokens = new_tokens;
  for (const auto& ids : prompts) run.prompts.push_back(static_cast<std::uint32_t>(ids.size()));
  return make_manifest(model, run);
}

// A recording into `folder` that is interrupted behind the first layer of the prompt of `sequence`, and sealed.
SessionResult interrupted_in(std::uint32_t sequence, const Model& model,
                             const std::vector<std::vector<std::int64_t>>& prompts,
                             const std::filesystem::path& folder) {
  TraceRecorder trace(folder, manifest_of(model, prompts, 4));
  CpuBackend cpu(model, std::make_unique<ReferenceOps>(), {kPolicy, 0, DType::kF32});
  std::atomic<bool> flag{false};
  FlagAfterLayer recorder(flag, sequence, 0);
  Watched backend(cpu, recorder);
  SessionOptions options;
  options.max_new_tokens = 4;
  options.interrupted = &flag;
  SessionResult result = run_session(backend, model.config, prompts, options, &trace);
  trace.seal();
  return result;
}

}  // namespace

TEST_CASE("a prefill stops between two layers, and the back end knows nothing of the sequence afterwards") {
  const Model model = load_model(kModel, DType::kF32);
  CpuBackend backend(model, std::make_unique<ReferenceOps>(), {kPolicy, 0, DType::kF32});
  std::atomic<bool> flag{false};
  FlagAfterLayer recorder(flag, 0, 0);
  backend.set_recorder(&recorder);
  backend.set_interrupt(&flag);
  const std::vector<std::int64_t> ids = {5, 17, 9, 33, 8, 21, 40, 3};
  std::vector<float> logits(model.config.shape.vocab);
  CHECK_THROWS_AS(backend.prefill(0, ids, 4, logits, {}), Interrupted);
  CHECK(recorder.layers_seen == 1);
  CHECK(backend.kv_usage().resident_bytes == 0);
  CHECK(backend.kv_usage().allocated_bytes == 0);
  flag = false;
  backend.set_interrupt(nullptr);
  backend.prefill(0, ids, 4, logits, {});
  CHECK(recorder.layers_seen == 1 + static_cast<int>(model.config.shape.layers));
}

TEST_CASE("a prefill that fails leaves nothing behind, and the other sequences go on as if it had not been") {
  const Model model = load_model(std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/mixtral", DType::kF32);
  const std::vector<std::int64_t> ids = {5, 17, 9, 33, 8, 21, 40, 3};
  const DecodeEntry token{0, 7};
  const auto decoded = [&](bool fails) {
    CpuBackend backend(model, std::make_unique<ReferenceOps>(), {kPolicy, 0, DType::kF32});
    FailsInLayer recorder;
    backend.set_recorder(&recorder);
    backend.prefill(0, ids, 4, {}, {});
    const KvUsage before = backend.kv_usage();
    if (fails) {
      recorder.victim = 1;
      CHECK_THROWS_WITH(backend.prefill(1, ids, 4, {}, {}), "no space is left");
      recorder.victim = 99;
      CHECK(backend.kv_usage().resident_bytes == before.resident_bytes);
      CHECK(backend.kv_usage().allocated_bytes == before.allocated_bytes);
    }
    std::vector<float> logits(model.config.shape.vocab);
    backend.decode({&token, 1}, logits);
    backend.prefill(1, ids, 4, {}, {});
    CHECK(backend.kv_usage().resident_bytes == 2 * before.resident_bytes);
    return std::pair(logits, recorder.told);
  };
  CHECK(decoded(true) == decoded(false));
}

TEST_CASE("a prompt that the policy refuses leaves nothing behind") {
  const Model model = load_model(kModel, DType::kF32);
  const PolicySpec policy = parse_policies("snapkv:budget=4:window=8:rule=kvpress").front();
  CpuBackend backend(model, std::make_unique<ReferenceOps>(), {policy, 0, DType::kF32});
  const std::vector<std::int64_t> ids = {5, 17, 9, 33, 8, 21, 40, 3, 11, 2};
  CHECK_THROWS_AS(backend.prefill(0, std::span(ids).first(7), 4, {}, {}), Error);
  backend.prefill(0, ids, 4, {}, {});
  CHECK(backend.kv_usage().resident_bytes > 0);
}

TEST_CASE("a recording that is interrupted in its second prompt seals the first and forgets the second") {
  const test::TemporaryFolder folder;
  const Model model = load_model(kModel, DType::kF32);
  const std::vector<std::vector<std::int64_t>> prompts = {{5, 17, 9, 33, 8, 21}, {7, 3, 12, 9, 4, 4, 1}, {6, 6}};
  const SessionResult result = interrupted_in(1, model, prompts, folder.path() / "run.kvt");
  CHECK(result.interrupted);
  CHECK(result.prompt_tokens == 6);
  CHECK(result.sequences[0].ids.size() == 1);
  for (const SequenceResult& sequence : result.sequences) CHECK(sequence.stop == StopReason::kInterrupted);

  CHECK(inspect_trace(folder.path() / "run.kvt", true).intact);
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.steps().size() == 1);
  const std::vector<TraceSequence>& sequences = reader.manifest().sequences;
  CHECK(sequences[0].tokens == 6);
  CHECK(sequences[1].tokens == 0);
  CHECK(sequences[2].tokens == 0);
  for (const TraceSequence& sequence : sequences) CHECK(sequence.stop_reason == "interrupted");
  CHECK(reader.evictions(0, LayerId(0)).size() == 2 * model.config.shape.kv_heads);
  CHECK(reader.evictions(1, LayerId(0)).empty());
}

TEST_CASE("a run that is interrupted in its only prompt says so, and so does its trace") {
  const test::TemporaryFolder folder;
  const Model model = load_model(kModel, DType::kF32);
  const std::vector<std::vector<std::int64_t>> prompts = {{5, 17, 9, 33, 8, 21}};
  const SessionResult result = interrupted_in(0, model, prompts, folder.path() / "run.kvt");
  CHECK(result.interrupted);
  CHECK(result.prompt_tokens == 0);
  CHECK(result.sequences[0].stop == StopReason::kInterrupted);
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.manifest().sequences[0].tokens == 0);
  CHECK(reader.manifest().sequences[0].stop_reason == "interrupted");
}

TEST_CASE("a back end that fails in a decode step leaves the whole steps before it, and its error is passed on") {
  const test::TemporaryFolder folder;
  const Model model = load_model(kModel, DType::kF32);
  const std::vector<std::vector<std::int64_t>> prompts = {{5, 17, 9, 33, 8, 21}, {7, 3, 12, 9, 4, 4, 1}};
  TraceRecorder trace(folder.path() / "run.kvt", manifest_of(model, prompts, 9));
  CpuBackend cpu(model, std::make_unique<ReferenceOps>(), {kPolicy, 0, DType::kF32});
  std::atomic<bool> flag{false};
  FlagAfterLayer recorder(flag, 99, 0);
  Watched backend(cpu, recorder);
  backend.steps_before_failure = 3;
  SessionOptions options;
  options.max_new_tokens = 9;
  options.ignore_eos = true;
  CHECK_THROWS_WITH(run_session(backend, model.config, prompts, options, &trace), "the device is lost");
  REQUIRE(trace.can_seal());
  trace.seal();
  CHECK_FALSE(trace.can_seal());

  CHECK(inspect_trace(folder.path() / "run.kvt", true).intact);
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.steps().size() == 4);  // two prompts, two decode steps
  CHECK(reader.manifest().sequences[0].tokens == 6 + 2);
  CHECK(reader.manifest().sequences[1].tokens == 7 + 2);
  for (const TraceSequence& sequence : reader.manifest().sequences) CHECK(sequence.stop_reason == "failed");
  CHECK(reader.evictions(0, LayerId(0)).size() == (2 + 2) * model.config.shape.kv_heads);
}
