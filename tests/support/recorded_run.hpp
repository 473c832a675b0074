// Recorded runs of an engine, and what the simulator says of them: shared by all that hold both equal.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "kernels/engine/model.hpp"
#include "kernels/engine/session.hpp"
#include "sim/replay/replay.hpp"
#include "sim/traffic/traffic.hpp"
#include "traces/reader.hpp"

namespace kvroof::test {

// A folder for one trace that goes with the object.
class TraceFolder {
 public:
  TraceFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("kvroof-bytes-{}.kvt", getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using Prompts = std::vector<std::vector<std::int64_t>>;

struct Recording {
  const char* backend = "reference";  // as the trace names it: rounding may decide otherwise on others
  bool prompt_logprobs = false;
  std::uint32_t new_tokens = 12;
};

// Runs the prompts on `backend`, which works under `spec` with a cache of type `kv` and seed 0.
inline TraceReader record_on(Backend& backend, const std::filesystem::path& path, const Model& model,
                             const PolicySpec& spec, KvType kv, const Prompts& prompts, Recording how) {
  RecordedRun run;
  run.backend = how.backend;
  run.policy = spec.text();
  run.weight_type = model.type;
  run.kv_type = kv.rows();
  run.requested_new_tokens = how.new_tokens;
  for (const auto& prompt : prompts) run.prompts.push_back(static_cast<std::uint32_t>(prompt.size()));
  TraceRecorder recorder(path, make_manifest(model, run));
  backend.set_recorder(&recorder);
  SessionOptions options;
  options.max_new_tokens = how.new_tokens;
  options.ignore_eos = true;
  options.prompt_logprobs = how.prompt_logprobs;
  run_session(backend, model.config, prompts, options, &recorder);
  backend.set_recorder(nullptr);
  recorder.seal();
  return TraceReader::open(path);
}

struct Expected {
  std::vector<ByteCounters> steps;  // engine steps: a prefill a sequence, then decode steps of the batch
  Reproduction reproduction;
};

// Tokens that an engine takes at once in a prompt.
struct Blocks {
  std::uint32_t logits = 0;  // 0: only the last token's are computed
  std::uint32_t queries = 1;
};

// What the simulator says of the trace: the residency that a replay finds, turned into traffic.
inline Expected simulate(const TraceReader& trace, const Model& model, PolicySpec spec, KvType kv, Blocks blocks = {}) {
  if (kv.by_age()) spec.kv = kv;
  ThreadPool pool(1);
  ReplayOptions options;
  options.output_projection = [&](LayerId layer) -> RowsView {
    return model.layer(layer).o.matrix.view();
  };
  const PointResult point = std::move(replay(trace, std::span(&spec, 1), options, pool).front());
  std::vector<Residency> residency;
  for (const ResidencyLog& log : point.residency) residency.push_back(log.expand());
  const TrafficTypes types{model.type, kv};
  ModelShape shape = model.config.shape;
  shape.state.type = DType::kF32;  // as the engine holds them
  shape.state.row_type = DType::kF32;
  const auto counted = [](StepTraffic t) {
    t.bytes.add(Cause::kActivations, t.state_bytes);
    return t.bytes;
  };
  const std::vector<StepRecord> steps = trace.steps();
  Expected expected;
  for (const Residency& r : residency) {
    const std::span<const LayerCounts> layers = std::span(r.cells).first(r.layers);
    const std::uint64_t experts = steps[expected.steps.size()].experts;
    expected.steps.push_back(counted(prefill_traffic(shape, types, r.storage_heads, r.prompt, layers, blocks.logits,
                                                     blocks.queries, experts)));
  }
  for (std::uint32_t step = 1; step <= residency[0].steps; ++step) {
    std::vector<std::span<const LayerCounts>> batch;
    for (const Residency& r : residency) batch.push_back(std::span(r.cells).subspan(step * r.layers, r.layers));
    const std::uint64_t experts = steps[expected.steps.size()].experts;
    const std::uint32_t heads = residency[0].storage_heads;
    expected.steps.push_back(counted(decode_traffic(shape, types, heads, batch, experts)));
  }
  expected.reproduction = point.reproduction.value_or(Reproduction{});
  return expected;
}

}  // namespace kvroof::test
