// The CPU back end: forward pass, KV caches and policies of all sequences, over any implementation of Ops.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu/forward.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/engine/backend.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "kernels/engine/selected_rows.hpp"
#include "sim/policy/layer_policy.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

struct CpuBackendOptions {
  PolicySpec policy;  // one point
  std::uint64_t seed = 0;
  KvType kv_type = DType::kF32;  // of the cache; q is rounded to its rows() before it meets k
};

// A prompt passes one layer at a time. Where policy and window keep all of it, its rows go straight into the layer's
// cache; otherwise into a prompt buffer that all layers share, and the survivors are packed into the cache right after
// the layer's attention. Caches are allocated once, for as many slots as the budget can ever need; where attention says
// how much a head holds, they grow by an eighth at a time. A policy that streams the prompt evicts after each of its
// rows, within the layer, and needs no prompt buffer.
class CpuBackend final : public Backend, private AttentionStage {
 public:
  // The model must outlive the back end. Throws Error as check_runnable does.
  CpuBackend(const Model& model, std::unique_ptr<Ops> ops, CpuBackendOptions options);

  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
               std::span<float> last, const LogitsSink& all) override;
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override;
  void release(std::uint32_t sequence) override;
  [[nodiscard]] KvUsage kv_usage() const override;
  ByteCounters take_counters() override;
  void set_recorder(Recorder* recorder) override { recorder_ = recorder; }
  void set_interrupt(const std::atomic<bool>* asked) override { interrupt_ = asked; }
  // May be null; not owned. Rows are those of a prompt, or the entries of a batch.
  void set_route_reviewer(RouteReviewer* reviewer) { forward_.set_route_reviewer(reviewer); }

 private:
  struct LayerState {
    LayerPolicy policy;
    KvCache cache;
  };
  struct Sequence {
    std::uint32_t id = 0;
    std::uint32_t prompt = 0;
    std::uint32_t most_tokens = 0;  // prompt and requested new tokens, within the context
    std::uint32_t tokens = 0;       // whose k and v were stored, before the call in progress
    std::vector<TokenKind> token_kinds;  // by position; empty where the model has none
    std::vector<LayerState> layers;
    std::vector<HeldState> states;  // of each layer that holds one
  };
  [[nodiscard]] KvUsage usage_of(const Sequence& sequence) const;
  void note_prompt_usage();

  void attend(LayerId layer, std::span<float> q, std::span<const float> k, std::span<const float> v,
              std::span<float> out) override;
  std::span<const StatePart> states(std::uint32_t layer) override;
  void prefill_layer(Sequence& sequence, LayerId layer, std::span<const float> q, std::span<const float> k,
                     std::span<const float> v, std::span<float> out);
  // One row for each active sequence, at its position tokens + offset.
  void attend_rows(std::uint32_t offset, LayerId layer, std::span<const float> q, std::span<const float> k,
                   std::span<const float> v, std::span<float> out);
  void select(LayerId layer);
  void count_stored(LayerId layer);  // of a quantised cache: what each call reads
  // `most`: tokens that the layer sees of the sequence at its end.
  void admit_row(LayerState& state, std::uint32_t most, TokenPos position, std::span<const float> k,
                 std::span<const float> v);
  void finish_row(Sequence& sequence, LayerId layer, TokenPos position, const HeadRowsSource& rows,
                  KvCache* prompt_buffer);
  void age_rows(LayerState& state, TokenPos position, bool leaves_buffer);
  void round_rows(std::span<const float>& k, std::span<const float>& v);
  void round_and_record(LayerId layer, std::span<float> q, std::span<const float> k, std::span<const float> v);
  // As a quantised cache keeps what lies in those slots.
  [[nodiscard]] std::uint64_t stored_bytes(const LayerState& state, HeadId head, std::span<const SlotRun> runs) const;
  void finish_call();
  void drop_prompt(std::uint32_t sequence);  // of a prefill that did not come to its end
  Sequence& add_sequence(std::uint32_t id, std::uint32_t prompt, std::uint32_t requested_new_tokens);
  [[nodiscard]] KvCache new_cache(const Sequence& sequence, const LayerPolicy& policy) const;
  [[nodiscard]] KvLayout layout(const LayerPolicy& policy) const;

  const Model& model_;
  std::unique_ptr<Ops> ops_;
  CpuBackendOptions options_;
  Forward forward_;
  std::vector<AttentionRule> rules_;  // of each layer
  Recorder* recorder_ = nullptr;
  const std::atomic<bool>* interrupt_ = nullptr;
  std::map<std::uint32_t, Sequence> sequences_;
  std::vector<Sequence*> active_;  // of the call in progress, in the order of its rows
  bool prefilling_ = false;
  std::vector<StatePart> state_parts_;  // of one layer, for the call in progress
  KvCache prompt_buffer_;          // of the prefill in progress
  KvPeaks peaks_;
  std::vector<float> k_rows_, v_rows_;  // as a quantised cache gives them back
  std::vector<std::byte> q_bytes_, k_bytes_, v_bytes_;
  std::vector<AttendCall> calls_;
  std::vector<SelectedRows> selected_;  // one a call, where the policy selects
  SelectionScratch selection_;
};

}  // namespace kvroof
