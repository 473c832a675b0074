// The CUDA back end: forward pass, KV caches of slots and policies of all sequences on one device.
//
// In a prompt, slots, eviction and accounting of each (sequence, layer) are LayerPolicy's, as in the CPU back end. A
// policy with a recipe (sim/policy/score_recipe.hpp) then lives on the device: its scores lie beside the cache, and the
// victim's slot is known there alone until somebody asks. Every other policy gets its attention rows copied to the
// host, layer by layer.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/device_cache.hpp"
#include "kernels/cuda/device_forward.hpp"
#include "kernels/cuda/device_rows.hpp"
#include "kernels/cuda/launches.hpp"
#include "kernels/cuda/row_moves.hpp"
#include "kernels/cuda/slot_schedule.hpp"
#include "kernels/cuda/step_plan.hpp"
#include "kernels/engine/backend.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof::cuda {

struct CudaBackendOptions {
  PolicySpec policy;
  std::uint64_t seed = 0;
  DType kv_type = DType::kBF16;  // bf16 or f16
  bool fused = true;             // false: every policy is asked on the host
  // kInt8 or kInt4: rows of k and v are kept so instead, each with its own scale, and so a prompt's attention meets
  // them.
  std::optional<Stored> quantised{};
  LinearBy linear = LinearBy::kAuto;
  ElementProgress progress{};  // of the weights
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
  bool decode_greedily(std::span<const DecodeEntry> batch, std::span<TokenChoice> choices) override;
  void release(std::uint32_t sequence) override;
  [[nodiscard]] KvUsage kv_usage() const override;
  ByteCounters take_counters() override;
  // Throws Error (usage) for quantised caches: a trace has no type for their rows.
  void set_recorder(Recorder* recorder) override;
  void set_observer(LaunchObserver* observer) override {
    plan_.forget();  // its launches were told to another observer when they were captured, or to none
    launches_.set_observer(observer);
  }
  void set_interrupt(const std::atomic<bool>* asked) override { interrupt_ = asked; }
  [[nodiscard]] LinearFacts linear_facts() const override;

 private:
  struct LayerState {
    LayerPolicy policy;
    std::optional<SlotSchedule> schedule;  // after a prompt, of a policy that lives on the device
    DeviceCache cache;
  };
  struct Sequence {
    std::uint32_t id = 0, prompt = 0, requested_new_tokens = 0, most_tokens = 0;
    std::uint32_t tokens = 0;  // stored before the call in progress
    std::vector<TokenKind> token_kinds;  // by position; empty where the model has none
    std::vector<LayerState> layers;
    DeviceBuffer states;  // of layers that hold one (StatePlaces)
  };
  [[nodiscard]] KvUsage usage_of(const Sequence& sequence) const;
  void note_prompt_usage();
  // One query position of one sequence in an attention call.
  struct Query {
    Sequence* sequence = nullptr;
    std::uint32_t position = 0;
    const DeviceCache* cache = nullptr;  // of whose slots it meets [first, first + lengths[h]) of head h
    std::uint32_t first = 0;
    std::vector<std::uint32_t> lengths;  // [storage heads]
    bool admits = false;                 // the policy has not met the token yet
  };
  // What one layer's launches of a decode step on the device do.
  struct StepWork {
    DeclaredWork append, attention, scores;
  };

  void load_library();
  [[nodiscard]] std::unique_ptr<DeviceForward> new_forward() {
    return std::make_unique<DeviceForward>(stream_, launches_, *weights_, library_.get(), options_.linear,
                                           device_.multiprocessors);
  }
  Sequence& add_sequence(std::uint32_t id, std::uint32_t prompt, std::uint32_t requested_new_tokens);
  void attend_prompt(const AttentionInput& input);
  void attend_step(const AttentionInput& input, std::uint32_t offset);
  void stream_prompt(const AttentionInput& input);
  // A decode step; of a policy that is asked on the host, and of one that lives on the device.
  void step(std::span<const DecodeEntry> batch, const PassResult& result);
  void step_by_rows(const PassTokens& tokens, const PassResult& result);
  void step_on_device(const PassTokens& tokens, const PassResult& result);
  void admit_rows();
  Append append_on_device(const AttentionInput& input);
  // By the launch that attends, of the plan's layer; else launches of their own follow it.
  [[nodiscard]] bool keeps_scores_in_attention(LayerId layer) const;
  void attend_on_device(const AttentionInput& input);
  void launch_step();
  void finish_rows();
  void count_experts();
  void drop_tokens(Sequence& sequence, LayerId layer);
  void observe_prompt(const AttentionInput& input, const AttentionPlan& plan, const AttentionArguments& attention,
                      std::span<const Query> queries);
  void review_prompt(LayerState& state, LayerId layer);
  [[nodiscard]] ScoreRule score_rule(LayerId layer) const;
  // The tokens of each head of a cache that have the lowest scores: which, and how many, say length, first, end and
  // count; words as of ChooseArguments::chosen. The launch declares so many bytes.
  [[nodiscard]] std::vector<std::uint32_t> choose_lowest(LayerId layer, const DeviceCache& cache, ChooseArguments a,
                                                         std::uint64_t declared);
  [[nodiscard]] static bool is_chosen(std::span<const std::uint32_t> words, std::size_t first, std::uint32_t slot) {
    return (words[first + slot / 32] >> slot % 32 & 1U) != 0;
  }
  // Clamp, norm, rotation; the new rows go to slots of `caches`: slot_of is empty for a prompt. `first`: of a pass,
  // whose later rows find its norms' weights in the cache of the chip.
  void prepare(const AttentionInput& input, std::span<const DeviceCache* const> caches,
               std::span<const std::uint32_t> slot_of, bool first);
  [[nodiscard]] std::uint64_t head_norm_bytes(LayerId layer) const;
  [[nodiscard]] std::uint64_t sink_bytes(LayerId layer) const {
    return model_.layer(layer).sinks.bytes();
  }
  [[nodiscard]] PrepareArguments prepare_arguments(const AttentionInput& input);
  // What the plan of an attention does not know.
  void set_model(AttentionArguments& a, const AttentionInput& input, std::uint32_t first_token) const;
  // As many as the device holds at once.
  [[nodiscard]] unsigned attention_blocks() const {
    const bool scores = device_policy_ && device_policy_->observes();
    return device_.multiprocessors * resident_attention_blocks(format_.type, part_width(), scores);
  }
  // Query heads that the decode kernel takes together, and the width of its output.
  [[nodiscard]] std::uint32_t unit_heads() const { return shape().latent() ? kLatentHeads : kMostGroup; }
  [[nodiscard]] unsigned part_width() const {
    return shape().latent() ? kLatentValue : padded_width(std::max(shape().head_dim, shape().v_head_dim));
  }
  [[nodiscard]] std::uint64_t attention_flops(std::uint64_t rows, std::uint32_t group) const;
  // Decode attention of all queries, which are rows of q in order; `shows` them to the policy.
  // `first`: of the launches of a pass that read the layer's sinks, which count once.
  void attend(const AttentionInput& input, std::uint32_t first_token, std::span<const Query> queries, bool shows,
              bool first);
  [[nodiscard]] bool meets_prompt_at_once() const;  // with the kernels of prompts; latent rows have their own
  [[nodiscard]] bool scores_prompt_at_once() const;
  [[nodiscard]] PromptArguments prompt_arguments(const AttentionInput& input, std::uint32_t storage_heads);
  void attend_prompt_at_once(const PromptArguments& a, LayerId layer);
  void score_prompt(const PromptArguments& a, LayerId layer);
  void finish_row(Sequence& sequence, LayerId layer, TokenPos position, const DeviceRows& rows,
                  DeviceCache* prompt_buffer);
  // Of a pass that was refused memory: the caches that these name may go before another pass, and what is on its way to
  // the host arrives first.
  void forget_moves();
  void run_prompt(std::span<const std::int64_t> ids, std::span<float> last, const LogitsSink& all);
  void drop_prompt(std::uint32_t sequence);
  // Buffers that grow with a pass.
  [[nodiscard]] std::array<DeviceBuffer*, 9> pass_buffers() {
    return {&tables_,          &prompt_table_, &log_sums_,     &parts_,      &rows_,
            &moves_.memory(), &new_rows_,     &score_tables_, &score_parts_};
  }
  // For what memory was refused, and what would fit.
  [[nodiscard]] Error refused_load(const OutOfDeviceMemory& refused) const;
  [[nodiscard]] Error refused_prompt(const OutOfDeviceMemory& refused, const Sequence& sequence);
  [[nodiscard]] Error refused_step(const OutOfDeviceMemory& refused) const;
  void prompt_logits(std::uint32_t n, std::span<float> last, const LogitsSink& all);
  // The rows of q, k and v that prepare() made; `offset` as in attend_step.
  void record(const AttentionInput& input, std::uint32_t offset);
  // Memory for the most rows that each head can ever hold at once after the prompt.
  [[nodiscard]] DeviceCache new_cache(const Sequence& sequence, const LayerPolicy& policy) const;
  [[nodiscard]] DeviceCache prompt_cache(const LayerPolicy& policy, std::uint32_t tokens) const;
  void grow(LayerState& state, LayerId layer, std::uint32_t head, std::uint32_t slots);
  [[nodiscard]] const ModelShape& shape() const { return model_.config.shape; }
  [[nodiscard]] std::uint64_t row_bytes() const { return format_.token_bytes(); }
  // As launches are told: of its block.
  [[nodiscard]] std::int32_t layer_number(LayerId layer) const {
    return static_cast<std::int32_t>(model_.config.block_of(layer));
  }

  const Model& model_;
  CudaBackendOptions options_;
  std::optional<DevicePolicy> device_policy_;
  CacheFormat format_;
  struct CloseStream {
    void operator()(Stream* stream) const { close_stream(*stream); }
  };

  Stream stream_;
  std::unique_ptr<Stream, CloseStream> opened_;  // the stream, once it is to be closed
  Launches launches_{stream_};
  DeviceFacts device_;
  std::unique_ptr<CublasLt> library_;  // null: our own kernels make all products
  std::string no_library_;             // why, where it was looked for
  std::unique_ptr<DeviceModel> weights_;
  DeviceBuffer launch_reserve_;        // until the first step, for the code of its kernels and its graph
  std::unique_ptr<DeviceForward> forward_;
  Recorder* recorder_ = nullptr;
  const std::atomic<bool>* interrupt_ = nullptr;
  std::map<std::uint32_t, Sequence> sequences_;
  std::vector<Sequence*> active_;
  DeviceCache prompt_buffer_;
  KvPeaks peaks_;
  RowMoves moves_{stream_, launches_};
  std::vector<float> row_weights_;
  std::uint64_t chosen_bytes_ = 0;  // that choose_lowest declared, of what a policy's object counts as well
  StepPlan plan_{stream_};
  std::vector<Sequence*> planned_;  // whose slots the plan has
  std::vector<StepRow> step_rows_;  // [layers, active sequences]
  std::vector<StepWork> step_work_;  // [layers]; a graph looks at it
  DeviceBuffer tables_, prompt_table_, log_sums_, parts_, rows_;
  DeviceBuffer new_rows_, score_tables_, score_parts_;
};

}  // namespace kvroof::cuda
