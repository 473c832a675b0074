// What a trace says of its run: how q and k were turned, and RecordedEvictions, what its policy gave up in one layer,
// compared with what the replay decides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/ids.hpp"
#include "sim/model/rotary.hpp"
#include "sim/policy/spec.hpp"
#include "traces/manifest.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// Engines that add in another order than the replay may choose differently between scores that lie within this of each
// other, relative to the larger, and in so many of all decisions.
inline constexpr double kRoundingGap = 1e-4;
inline constexpr double kMostDifferences = 0.005;

// The rule that turned q and k of a recorded layer.
RotaryRule recorded_rotation(const RotaryInfo& info);

// Whether the rows of the trace are what a cache of the point gave back: rounding them once more is not part of it.
bool meets_recorded_rows(const TraceManifest& manifest, const PolicySpec& point);
// The policy of the recorded run; nothing where this version has no such policy or parameter.
std::optional<PolicySpec> recorded_policy(const TraceManifest& manifest);
// Whether the point decides as the policy of the recorded run does, however the two are written.
bool is_recorded_policy(const TraceManifest& manifest, const PolicySpec& point);

// Whether the evictions of the recorded run are compared with those of the point, replayed with that seed: it decides
// as the run did, and it evicts. A policy that keeps everything and reads a part of it has no evictions to compare.
bool is_compared(const TraceManifest& manifest, const PolicySpec& point, std::uint64_t seed);

// How a replay of the recorded policy agrees with the recording.
struct Reproduction {
  bool exact = false;                 // recorded by the reference back end, which adds as the replay does
  std::uint64_t decisions = 0;        // a head that gave up tokens at the end of a row, in either
  std::uint64_t differences = 0;      // decisions that name other tokens
  std::uint64_t beyond_rounding = 0;  // of these, the ones between scores further apart than kRoundingGap
  std::string first_difference;       // one sentence, on the first beyond rounding if there is one; empty: none

  // Adds those of another layer or sequence.
  Reproduction& operator+=(const Reproduction& other);
  // What is wrong, in one sentence: a difference where there must be none, or more than may be. Empty: nothing.
  [[nodiscard]] std::string problem() const;
};

class RecordedEvictions {
 public:
  // The evictions of one (sequence, layer) in the order they happened.
  RecordedEvictions(std::span<const EvictionRecord> evictions, std::uint32_t heads);

  using ScoreGap = std::function<double(SlotId, SlotId)>;  // as EvictionPolicy::score_gap

  // The head, which holds positions[s] in slot s, is about to give up `victims` at the end of this step. Where the
  // recording names other tokens that the head holds, they take the victims' place: one difference does not make the
  // next ones. Evictions of earlier steps that the replay did not ask for count as a difference a step.
  void review(StepId step, HeadId head, std::span<const TokenPos> positions, const ScoreGap& gap,
              std::vector<SlotId>& victims);

  // After the last row: evictions that the replay did not ask for count as differences.
  [[nodiscard]] Reproduction finish();

 private:
  struct Entry {
    std::uint32_t step;
    TokenPos position;
  };
  struct Head {
    std::vector<Entry> entries;  // ascending positions within a step of a prompt that is not streamed
    std::size_t next = 0;
  };
  // What the recording gave up before this step and the replay did not: a difference for each step.
  void pass_over(HeadId head, std::uint64_t step);
  void note_difference(StepId step, HeadId head, bool within_rounding, const std::string& what);

  std::vector<Head> heads_;
  std::uint32_t layer_ = 0;
  Reproduction result_;
  std::vector<TokenPos> ours_, theirs_;
};

}  // namespace kvroof
