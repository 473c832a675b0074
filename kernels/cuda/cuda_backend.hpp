// The CUDA back end: forward pass, KV caches of slots and policies of all sequences on one device.
//
// Slots, eviction and accounting of each (sequence, layer) are LayerPolicy's, as in the CPU back end. A policy that
// looks at attention rows gets them copied to the host, layer by layer; the others cost no copy.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/device_cache.hpp"
#include "kernels/cuda/device_forward.hpp"
#include "kernels/engine/backend.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof::cuda {

struct CudaBackendOptions {
  PolicySpec policy;
  std::uint64_t seed = 0;
  DType kv_type = DType::kBF16;  // bf16 or f16
};

class CudaBackend final : public Backend {
 public:
  // The model must outlive the back end. Throws Error for policies that only a replay can follow, for models that no
  // kernel runs, and when the device refuses.
  CudaBackend(const Model& model, CudaBackendOptions options);
  ~CudaBackend() override;

  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
               std::span<float> last, const LogitsSink& all) override;
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override;
  void release(std::uint32_t sequence) override { sequences_.erase(sequence); }
  [[nodiscard]] KvUsage kv_usage() const override;
  ByteCounters take_counters() override;
  void set_recorder(Recorder* recorder) override { recorder_ = recorder; }
  void set_interrupt(const std::atomic<bool>* asked) override { interrupt_ = asked; }

 private:
  struct LayerState {
    LayerPolicy policy;
    DeviceCache cache;
  };
  struct Sequence {
    std::uint32_t id = 0, prompt = 0, most_tokens = 0;
    std::uint32_t tokens = 0;  // stored before the call in progress
    std::vector<LayerState> layers;
  };
  // One query position of one sequence in an attention call.
  struct Query {
    Sequence* sequence = nullptr;
    std::uint32_t position = 0;
    const DeviceCache* cache = nullptr;  // of whose slots it meets [first, first + length) of each head
    std::uint32_t first = 0;
    std::uint32_t length = 0;
    bool admits = false;  // the policy has not met the token yet
  };
  struct Moves {
    std::vector<CacheSlots> from, to;
    std::vector<std::uint32_t> from_slot, to_slot;
  };

  Sequence& add_sequence(std::uint32_t id, std::uint32_t prompt, std::uint32_t requested_new_tokens);
  void attend_prompt(const AttentionInput& input);
  void attend_step(const AttentionInput& input, std::uint32_t offset);
  void stream_prompt(const AttentionInput& input);
  // Clamp, norm, rotation; the new rows go to slots of `caches`: slot_of is empty for a prompt.
  void prepare(const AttentionInput& input, std::span<const DeviceCache* const> caches,
               std::span<const std::uint32_t> slot_of);
  // Decode attention of all queries, which are rows of q in order; shows the rows to policies that want them.
  void attend(const AttentionInput& input, std::uint32_t first_token, std::span<const Query> queries);
  void attend_prompt_at_once(const AttentionInput& input, std::uint32_t storage_heads);
  void finish_row(Sequence& sequence, LayerId layer, TokenPos position, DeviceCache* prompt_buffer);
  void move(const DeviceCache& from, const DeviceCache& to, std::uint32_t head, std::span<const SlotMove> moves);
  void launch_moves();
  void prompt_logits(std::uint32_t n, std::span<float> last, const LogitsSink& all);
  // The rows of q, k and v that prepare() made; `offset` as in attend_step.
  void record(const AttentionInput& input, std::uint32_t offset);
  [[nodiscard]] std::uint32_t capacity_for(const Sequence& sequence, const LayerPolicy& policy) const;
  [[nodiscard]] const ModelShape& shape() const { return model_.config.shape; }
  [[nodiscard]] std::uint64_t row_bytes() const;
  void note_peak();

  const Model& model_;
  CudaBackendOptions options_;
  Stored cache_type_;
  Stream stream_;
  DeviceFacts device_;
  std::unique_ptr<DeviceModel> weights_;
  std::unique_ptr<DeviceForward> forward_;
  Recorder* recorder_ = nullptr;
  const std::atomic<bool>* interrupt_ = nullptr;
  ByteCounters counters_;
  std::map<std::uint32_t, Sequence> sequences_;
  std::vector<Sequence*> active_;
  DeviceCache prompt_buffer_;
  std::uint64_t peak_resident_bytes_ = 0, peak_bytes_ = 0;
  Moves moves_;
  std::vector<float> row_weights_;
  DeviceBuffer q_, tables_, parts_, rows_, move_tables_, new_rows_;
};

}  // namespace kvroof::cuda
