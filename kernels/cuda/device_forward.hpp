// The forward pass on the device: fused kernels in the order that the family asks for; attention is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/cuda/split_k.hpp"
#include "kernels/cuda/device_model.hpp"
#include "kernels/cuda/launches.hpp"
#include "kernels/cuda/library_linear.hpp"
#include "kernels/cuda/sent_back.hpp"
#include "kernels/cuda/state_arguments.hpp"
#include "kernels/engine/backend.hpp"
#include "sim/core/ids.hpp"

namespace kvroof::cuda {

// One pass of tokens; all pointers of the host.
struct PassTokens {
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> positions;
  std::span<const std::uint8_t> use_long;  // [rotary rules, ids]: use_long_rotary(); empty: none
  std::span<float* const> states;          // of each token's sequence, on the device: held_state_floats()
  bool prompt = false;                     // the tokens are the first ones of one sequence
};

// Floats of a token that a layer with a state makes; 0: the model has none.
std::size_t state_row_floats(const ModelShape& shape);
// Floats that a sequence holds in layers without a cache, layer after layer.
std::uint64_t held_state_floats(const ModelShape& shape);

// What the host is given of a pass: all logits of its rows, or of each what greedy decoding takes; the other is empty.
struct PassResult {
  std::span<float> logits;          // [rows, vocab]
  std::span<TokenChoice> choices{};  // [rows]
};

// What a layer's attention is given: projections before clamp, norm and rotation, and places for its queries and its
// output. Of latent attention q is the part that rotates, k the latent rows, and the rest of the queries is made
// already (k_upᵀ q_nope).
struct AttentionInput {
  LayerId layer{};
  std::uint32_t tokens = 0;
  HeadFloats q, k, v;
  float* queries = nullptr;                  // [tokens, heads, head_dim]
  const std::uint32_t* positions = nullptr;  // [tokens], on the device
  const float* cos_sin = nullptr;              // of the layer's rotary rule, or null
  std::uint32_t rotary_pairs = 0;
  float* out = nullptr;                      // [tokens, heads, v_head_dim]
  bool appended = false;                     // the heads are where their Append says
};

// What becomes of the heads of q, k and v, and what that moves beside their product.
struct Append {
  PrepareArguments heads;
  Stored cache = Stored::kBF16;
  DeclaredWork work;
};

// What a pass does between a layer's projections and its output.
struct Attention {
  std::function<void(const AttentionInput&)> attend;
  // Null: attend() appends. Else it may find its heads appended by the launch that made them: of up to kMostAppended
  // tokens, by our own kernels, without latent rows or a norm over all heads of a projection.
  std::function<Append(const AttentionInput&)> append{};
};

// The input of token t alone.
AttentionInput row_of(const AttentionInput& input, std::uint32_t t, const ModelShape& shape);

struct StateRow;

class DeviceForward {
 public:
  // All must outlive this object; `library` may be null. Throws OutOfDeviceMemory.
  DeviceForward(Stream& stream, Launches& launches, const DeviceModel& model, CublasLt* library, LinearBy linear,
                unsigned multiprocessors);

  // A pass: its tokens go to the device; all layers run, and the residual stream stays on the device until the next
  // pass. run(), project() and predict() only launch, the same whatever the tokens are, so that a graph of launches can
  // hold them.
  void begin(const PassTokens& tokens);
  void run(const Attention& attention);
  // Logits of `rows` tokens of the pass from `first` on; those of all its tokens, and which is the largest of each.
  void project(std::uint32_t first, std::uint32_t rows);
  void predict();
  // What project() or predict() made last sets out for the host with send(), while the host goes on, and is waited for
  // by read().
  void send(const PassResult& result);
  void read(const PassResult& result);
  void logits(std::uint32_t first, std::span<float> out) {
    project(first, static_cast<std::uint32_t>(out.size() / model_.host().config.shape.vocab));
    send({out, {}});
    read({out, {}});
  }

  // Routed experts that tokens of the last pass took, summed over layers, and the bytes of their weights that no launch
  // could declare: more tokens than one choose on the device.
  struct ExpertPasses {
    std::uint64_t experts = 0, undeclared_bytes = 0;
  };
  [[nodiscard]] ExpertPasses read_expert_passes();

  // Device memory of a pass, for each of its tokens, and what is held by now.
  [[nodiscard]] std::uint64_t token_bytes() const;
  [[nodiscard]] std::uint64_t held_bytes() const;
  // Beside those, the most that a library's products take in a pass of so many tokens.
  [[nodiscard]] std::uint64_t library_bytes(std::uint32_t tokens) const;
  [[nodiscard]] const LibraryLinear& library_linear() const { return library_linear_; }

 private:
  void embed();
  // out = scale · table rows of the tokens' ids + rows of their positions; either table may be null.
  void embed_rows(const std::byte* table, const std::byte* positions, std::uint32_t width, float* out);
  void make_cos_sin();
  // A mixer, and its MLP where it has one.
  void block(std::uint32_t index, const Attention& attention);
  // What attention makes of norm(x), before its output's product.
  const float* attend(LayerId layer, const DeviceLayer& w, const float* x, const DeviceNorm& norm,
                      const Attention& attention);
  void gate_attended(const DeviceLinear& gate, const float* x, const DeviceNorm& norm);
  // The same of a layer that holds a state; `number` counts them alone. device_states.cpp.
  const float* pass_states(std::uint32_t number, const DeviceState& w, const float* x, const DeviceNorm& norm);
  void convolve(const DeviceState& w, StatePlaces states, const StateRow& row, const float* projected, float* out);
  void apply_state_rule(const DeviceState& w, const StateRuleArguments& a);
  void gate_heads(const GateArguments& a, bool by_group = false);
  void linear(const char* operation, const float* x, const DeviceNorm& norm, const DeviceLinear& w, float* out,
              bool add, float factor = 1);
  [[nodiscard]] LinearArguments mlp_arguments(const DeviceMlp& w, const float* x, const DeviceNorm& norm,
                                              float* activated) const;
  void mlp(const DeviceMlp& w, const float* x, const DeviceNorm& norm, float* activated, bool first = true);
  // What the MLP or the experts make of norm(x) is added to the residual stream.
  void feed_forward(const DeviceLayer& w, const float* x, const DeviceNorm& norm, const DeviceNorm& out_norm);
  void pass_experts(const DeviceExperts& w, const float* x, const DeviceNorm& norm, float* out, bool add);
  void project(const DeviceLinear& w, const float* x, const DeviceNorm& norm, const Attention& attention,
               AttentionInput& input);
  // Latent attention: projections and absorbed queries; the heads' output from what they attended to.
  struct LatentRows;
  [[nodiscard]] LatentRows latent_rows() const;
  void project_latent(const DeviceLatent& w, const float* x, const DeviceNorm& norm, AttentionInput& input);
  const float* latent_output(const DeviceLatent& w);
  struct RouteTables;
  void reserve_experts();
  [[nodiscard]] RoutedRows route(const DeviceExperts& w, const float* x, const DeviceNorm& norm, float factor);
  void launch_routed(const char* operation, LinearArguments& a);
  // out += linear(x), or out += norm(linear(x)) where the family has a norm there.
  void join(const char* operation, const float* x, const DeviceLinear& w, const DeviceNorm& out_norm);
  void norm_rows(const float* x, const DeviceNorm& norm, float* out, bool add);
  // `first`: of the launches that norm the same input with the same weights, which count once.
  void launch_linear(const char* operation, LinearArguments& a, bool first = true);
  [[nodiscard]] bool appends_at_once(const LinearArguments& a) const;
  [[nodiscard]] LinearArguments with_norm(const float* x, const DeviceNorm& norm) const;
  [[nodiscard]] NormMode norm_mode() const;

  Stream& stream_;
  Launches& launches_;
  const DeviceModel& model_;
  LibraryLinear library_linear_;
  SplitKMemory split_k_;
  std::int32_t layer_ = -1;  // whose launches are made; -1: none
  std::uint32_t attended_layers_ = 0;  // before it in this pass
  std::uint32_t tokens_ = 0;
  std::vector<std::byte> sent_inputs_;  // outlives their copy, which some devices make later
  DeviceBuffer inputs_, cos_sin_;
  DeviceBuffer x_, projections_, queries_, attended_, activated_, block_, logits_;
  DeviceBuffer gates_;  // of attention's output
  DeviceBuffer choices_;
  SentBack sent_logits_, sent_choices_;
  DeviceBuffer heads_done_;  // of AppendArguments
  DeviceBuffer embedded_;  // where the embedding has a width of its own
  DeviceBuffer routes_, router_logits_, expert_activated_, expert_out_, shared_factors_;
  const std::uint32_t* positions_ = nullptr;
  StatePlaces states_;
  bool knows_long_ = false;  // of each token, whether its prompt takes the long rotary frequencies
  std::vector<const float*> rule_cos_sin_;
};

}  // namespace kvroof::cuda
