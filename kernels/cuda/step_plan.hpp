// The tables of a whole decode step on the device: they serve every step until the batch changes or a sequence outgrows
// what the plan was cut for, so that a step needs no table of its own but one row for each layer and sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/device_cache.hpp"
#include "kernels/cuda/launches.hpp"
#include "sim/core/ids.hpp"

namespace kvroof::cuda {

// One layer's launches.
struct StepLayer {
  const CacheSlots* slots = nullptr;  // [sequences, storage heads]
  const StepRow* rows = nullptr;      // [sequences]
  AttentionArguments attention;       // without model, query and output
  ScoreArguments scores;              // without policy and query
  std::uint32_t longest = 0;          // slots of a unit, at most
};

// Room for the sums and victims of a plan's scores, and what is known of them from its attention.
ScoreArguments score_arguments(const AttentionPlan& plan, const AttentionArguments& attention, DeviceBuffer& memory);
// Whether the launch that attends keeps the scores as well, of units of up to `longest` slots: a unit must be all query
// heads of its storage head, and noise kept with it. The block that ends a unit goes through its slots again, with a
// wait for memory every 640 of them and shorter ones for each further query head; beyond some waits launches whose
// blocks share the slots take less. How many was reckoned, not measured: a launch is taken for as long as eight.
bool scores_with_attention(const ScoreRule& rule, const ScoreArguments& planned, std::uint32_t longest);

class StepPlan {
 public:
  struct Shape {
    std::uint32_t layers = 1;
    std::uint32_t storage_heads = 1;
    std::uint32_t group = 1;
    unsigned width = 64;   // of the attention kernel
    unsigned blocks = 1;   // that share the slots
    std::uint64_t slot_bytes = 0;  // of a storage head, that attention reads
    bool scores = false;   // logits are kept for them
    std::uint32_t unit_heads = kMostGroup;
  };

  explicit StepPlan(Stream& stream) : stream_(stream) {}

  // Whether the plan serves rows of these lengths; [layers, sequences].
  [[nodiscard]] bool serves(std::span<const StepRow> rows) const;
  // `caches` and `rows` [layers, sequences].
  void build(const Shape& shape, std::span<const DeviceCache* const> caches, std::span<const StepRow> rows);
  // No step is served until the next build().
  void forget() {
    limits_.clear();
    graph_ = {};
  }

  // The launches of a step, once they were captured; none after forget() or build().
  struct StepGraph : DeclaredGraph {
    bool loaded = false;  // a step was launched one by one, so that the device has all the code
  };
  [[nodiscard]] StepGraph& graph() { return graph_; }

  [[nodiscard]] DeviceBuffer& rows() { return rows_; }  // [layers, sequences] StepRow, sent before each step
  [[nodiscard]] const StepLayer& layer(LayerId layer) const { return layers_[layer.value]; }
  // [layers, sequences, storage heads] positions of the victims, on the device.
  [[nodiscard]] const std::byte* evicted() const { return evicted_.at(); }

 private:
  Stream& stream_;
  StepGraph graph_;
  std::vector<StepLayer> layers_;
  std::vector<std::uint32_t> limits_;  // of the rows' lengths
  std::vector<DeviceBuffer> tables_, slot_tables_;  // of each layer
  DeviceBuffer rows_, parts_, logits_, scores_, finished_, evicted_;
};

}  // namespace kvroof::cuda
