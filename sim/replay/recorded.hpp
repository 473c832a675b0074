// RecordedEvictions: what a trace says its policy gave up in one layer, compared with what the replay decides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/core/ids.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// How a replay of the recorded policy agrees with the recording.
struct Reproduction {
  std::uint64_t decisions = 0;    // a head that gave up tokens at the end of a row, in either
  std::uint64_t differences = 0;  // decisions that name other tokens
  std::string first_difference;   // one sentence; empty when there is none
};

class RecordedEvictions {
 public:
  // The evictions of one (sequence, layer) in the order they happened.
  RecordedEvictions(std::span<const EvictionRecord> evictions, std::uint32_t heads);

  // The head, which holds positions[s] in slot s, is about to give up `victims` at the end of this step. Where the
  // recording names other tokens that the head holds, they take the victims' place: one difference does not make the
  // next ones.
  void review(StepId step, HeadId head, std::span<const TokenPos> positions, std::vector<SlotId>& victims);

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
  void note_difference(StepId step, HeadId head, std::string what);

  std::vector<Head> heads_;
  std::uint32_t layer_ = 0;
  Reproduction result_;
  std::vector<TokenPos> ours_, theirs_;
};

}  // namespace kvroof
