// PointLayer: one point of a replay (a policy with its budget) on one layer of one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sim/policy/layer_policy.hpp"
#include "sim/replay/attended_output.hpp"
#include "sim/replay/cache_view.hpp"
#include "sim/replay/exact_rows.hpp"
#include "sim/replay/noisy_rows.hpp"
#include "sim/replay/own_rows.hpp"
#include "sim/replay/recorded.hpp"
#include "sim/replay/recorded_rows.hpp"
#include "sim/replay/residency_log.hpp"
#include "sim/replay/resident_rows.hpp"

namespace kvroof {

// Which rows a point needs.
struct PointNeeds {
  std::uint32_t first_prompt_row = 0;  // logits of the prompt's rows from it on; the prompt's length: none
  bool prompt_weights = false;         // and their softmax over all tokens before them
  bool decode_rows = false;
  bool decode_weights = false;         // and their exponentials
  std::uint32_t queries = 0;    // of the last so many prompt rows
};

// Of one query head at one decode step.
struct HeadQuality {
  double recall = 1;
  double output_error = 0;
  std::uint32_t attended = 0;  // tokens, its own among them
};

struct MeasureOptions {
  bool recall = true;
  bool output_error = true;  // needs recall
};

// Memory of a point that outlives its layers, so that rows allocate nothing.
struct PointScratch {
  std::vector<SlotId> read;
  std::vector<AttendedOutput> outputs;  // one for each head of kept_heads()
  std::vector<LayerCounts> counts;      // [rows of a block]
  std::vector<double> output_masses;    // [kept heads, AttendedOutput::kMostRows, group]: weight of what waits there
};

// What a point tells of a block of decode rows.
struct BlockRecord {
  std::vector<HeadQuality> quality;         // [rows, query_heads], when recall is measured
  std::vector<bool> wants_kept;             // [rows]
  std::vector<std::vector<TokenPos>> kept;  // [rows, kept_heads], of the rows that want it; ascending
};

// The first `size` elements of a buffer that only grows.
template <class T>
std::span<T> sized(std::vector<T>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

class PointLayer {
 public:
  // `tensors`, with the layer that it names, and `scratch` outlive the object.
  PointLayer(const PolicySpec& spec, const PolicyContext& context, const LayerTensors& tensors, MeasureOptions measure,
             PointScratch& scratch);
  PointLayer(const PointLayer&) = delete;
  PointLayer& operator=(const PointLayer&) = delete;

  [[nodiscard]] PointNeeds needs() const;
  [[nodiscard]] const PolicyTraits& traits() const { return policy_.traits(); }
  [[nodiscard]] std::uint32_t storage_heads() const { return policy_.storage_heads(); }

  // What a quantised cache gives back of the layer: the policy sees its logits, and outputs are of its rows.
  void read_from(const CacheView* cache) { cache_ = cache; }

  // Decode rows as the policy looks at them; null: it makes them of the logits.
  void look_at(const NoisyRows* noisy) { noisy_ = noisy; }

  // Compares each eviction with the recording and follows the recording where they differ.
  void follow(RecordedEvictions* recorded);

  // Prompt rows [first, first + count) of a policy that does not stream the prompt, for one head; different heads may
  // run at once. `rows` holds them where the policy observes them.
  void observe_prompt(const ExactRows& rows, std::uint32_t first, std::uint32_t count, HeadId head);
  // Instead, where another point differs in its budget alone: what it was shown.
  [[nodiscard]] bool shares_prompt() const { return policy_.shares_prompt(); }
  void share_prompt(const PointLayer& seen) { policy_.share_prompt(seen.policy_); }
  // After all of them: brings the prompt down to budget.
  void finish_prompt(ResidencyLog& log, std::uint32_t layer);
  // Prompt rows [first, first + count) of a policy that streams the prompt: evicts after each. `rows` likewise.
  void stream_prompt(const ExactRows& rows, std::uint32_t first, std::uint32_t count, ResidencyLog& log,
                     std::uint32_t layer);
  // Decode rows [first, first + count), in parts that may run at once: heads, or all of them as one. `rows` holds them,
  // or is null when no point needs them; `record` has their sizes. Both stay alive until end_block().
  void start_block(const ExactRows* rows, std::uint32_t first, std::uint32_t count, BlockRecord& record);
  [[nodiscard]] std::uint32_t parts() const { return by_head_ ? storage_heads() : 1; }
  void decode(std::uint32_t part);
  // After all parts.
  void end_block(ResidencyLog& log, std::uint32_t layer);

  // What a head holds after the last row, ascending. For policies that select, what a query head read at the last row.
  void kept(std::uint32_t head, std::vector<TokenPos>& positions) const;
  [[nodiscard]] std::uint32_t kept_heads() const { return traits().selects ? layer_.query_heads : storage_heads(); }

 private:
  void decode_head(HeadId head);
  void measure_waiting(std::uint32_t kept_head);
  void record_kept(std::uint32_t row, std::uint32_t head) const;
  void step_head(const ExactRows& rows, std::uint32_t position, HeadId head, bool observes, HeadQuality* quality);
  void step_row(const ExactRows& rows, std::uint32_t position, HeadQuality* quality);
  void step_blind(std::uint32_t position);
  [[nodiscard]] bool reads_prompt_row(TokenPos position) const;
  void count_attended(std::uint32_t position);
  void count_aged(std::uint32_t position);
  LayerCounts take_counts();
  // Whether the query meets what a residual window has left of the tokens before it.
  [[nodiscard]] bool meets_aged(std::uint32_t position) const { return position >= prompt_ || traits().streams_prompt; }
  void measure_cached(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                      std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality);
  // Of a row of the block at hand; null when nothing is measured.
  [[nodiscard]] HeadQuality* quality_of(std::uint32_t row) const {
    return measure_.recall ? block_.record->quality.data() + std::size_t{row} * layer_.query_heads : nullptr;
  }
  // The exponentials of what heads hold, of the logits and of the noisy ones. They stay until the thread's next call of
  // decode().
  static ResidentRows& resident_rows();
  static ResidentRows& noisy_resident_rows();
  [[nodiscard]] std::uint32_t place_of(HeadId head) const { return by_head_ ? 0 : head.value; }
  [[nodiscard]] std::span<const float> resident_row(HeadId head, std::uint32_t g) const {
    return resident_rows().row(place_of(head), g);
  }
  // Ends a row and merges what its policy merges; `rows` as for the row.
  void finish_row(std::uint32_t position, const ExactRows* rows);
  // Logits and weights, as the policy needs them, of the query over the slots that the view names; they stay until the
  // thread's next call.
  void fill_rows(const ExactRows& rows, HeadId head, AttentionRows& view) const;
  bool fill_unscaled(const InterleavedRows& rows, const ResidentRows& resident, HeadId head, AttentionRows& view) const;
  void fill_whole_rows(const ExactRows& rows, HeadId head, AttentionRows& view) const;
  // Of one query head over the tokens that it attends to.
  void logits_of(const ExactRows& rows, TokenPos query, std::span<const TokenPos> attended, std::uint32_t query_head,
                 std::span<float> logits) const;
  // The same for tokens that others were merged into.
  void merged_logits_of(const ExactRows& rows, TokenPos query, std::span<const TokenPos> attended,
                        std::uint32_t query_head, std::span<float> logits) const;
  void select_row(HeadId head, std::uint32_t g, const AttentionRows& view, std::uint32_t query_head);
  // Recall of the group's query heads; their output error comes with measure_outputs, once a few rows have gathered.
  void measure(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
               std::uint32_t first_query_head, std::uint32_t group, HeadQuality* quality);
  void wait_for_output(const ExactRows& rows, std::uint32_t position, std::span<const TokenPos> attended,
                       std::uint32_t first_query_head, std::uint32_t group);
  void measure_outputs(const ExactRows& rows, std::uint32_t first_query_head, std::uint32_t group);

  const TraceLayer& layer_;
  std::uint32_t prompt_;
  MeasureOptions measure_;
  PointScratch& scratch_;
  LayerPolicy policy_;
  std::unique_ptr<OwnRows> own_;  // where the policy merges tokens
  RecordedRows tensors_;
  const CacheView* cache_ = nullptr;
  const NoisyRows* noisy_ = nullptr;
  bool counts_ages_ = false;
  LayerCounts aged_;  // of the step so far, by age
  TokenPos position_{};                           // of the row that is being finished
  bool by_head_ = false;                          // a part of a block is a head
  bool decoding_ = false;                         // the rows hold exponentials, not weights
  struct Block {
    const ExactRows* rows = nullptr;
    std::uint32_t first = 0, count = 0;
    BlockRecord* record = nullptr;
  };
  Block block_;                                   // of decode rows, at hand
  std::mutex counts_mutex_;
  std::vector<std::vector<TokenPos>> last_read_;  // by query head, of policies that select
};

}  // namespace kvroof
