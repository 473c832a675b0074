// Turns what a back end and a session tell into a trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine/backend.hpp"
#include "kernels/engine/model.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// What the manifest says about a run beside the model.
struct RecordedRun {
  std::string backend;  // reference | fast | cuda
  std::string policy;
  std::string model_path;
  std::string command_line;
  std::string tool_version;
  std::uint64_t seed = 0;
  DType weight_type = DType::kF32;
  KvType kv_type = DType::kF32;  // of the cache
  std::uint32_t requested_new_tokens = 0;
  std::vector<std::uint32_t> prompts;  // tokens of each sequence's prompt
};

TraceManifest make_manifest(const Model& model, const RecordedRun& run);
// The same without attention: of steps, and of a profile where there is one.
TraceManifest without_attention(TraceManifest manifest);

class TraceRecorder final : public Recorder {
 public:
  // Creates the trace; `path` must not exist. Throws Error. A manifest without attention makes a trace of steps: what
  // attention saw and the tokens are left out.
  TraceRecorder(const std::filesystem::path& path, TraceManifest manifest);
  // Whether queries, keys and values are wanted.
  [[nodiscard]] bool captures() const { return captures_; }
  // Where a profiler's records go, as in TraceWriter.
  ProfileSink& profile() { return writer_.profile(); }

  void rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
            std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v) override;
  void eviction(const EvictionRecord& eviction) override;
  void experts(std::uint64_t passed) override { experts_ = passed; }

  // Called by the session. Ids of tokens [first, …) of a sequence and the log-probability that the model gave each.
  void tokens(std::uint32_t sequence, std::uint32_t first, std::span<const std::int64_t> ids,
              std::span<const float> logprobs);
  void end_step(StepRecord step);
  // The step in progress was cut: what was recorded of it is taken back.
  void forget_step() { writer_.forget_step(); }
  void stopped(std::uint32_t sequence, std::string_view reason);
  // LinearFacts::by, which is known once the run is over.
  void set_linear(std::string by) { writer_.set_linear(std::move(by)); }
  void seal() { writer_.seal(); }
  [[nodiscard]] bool can_seal() const { return writer_.can_seal(); }

  [[nodiscard]] std::uint64_t bytes_written() const { return writer_.bytes_written(); }

 private:
  bool captures_;
  TraceWriter writer_;
  std::uint32_t steps_ = 0;
  std::uint64_t experts_ = 0;  // of the step in progress
};

}  // namespace kvroof
