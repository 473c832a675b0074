// Tensor names of decoders that are built like LLaMA: a family says where it differs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

struct MlpNames {
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};

// Binds q, k, v and o of a layer (whose name is "layers.N"), with the norms of q and k.
using AttentionBinding = void (*)(WeightBinder& binder, const ModelShape& shape, const std::string& layer,
                                  LayerWeights& weights);
// q_proj, k_proj, v_proj, and the output projection under its name, below `attention`, which ends with a dot.
void bind_projections(WeightBinder& binder, const ModelShape& shape, const std::string& attention,
                      LayerWeights& weights, std::string_view output = "o_proj");
// The same below "layers.N.self_attn.", and q_norm and k_norm where the shape has them.
void bind_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& weights);

// Binds the state of a layer that holds one.
using StateBinding = void (*)(WeightBinder& binder, const ModelShape& shape, const std::string& layer,
                              StateWeights& state);

// Binds router and experts of a layer.
using ExpertBinding = void (*)(WeightBinder& binder, const ModelConfig& config, const std::string& layer,
                               ExpertWeights& experts);

// Of the bias that experts are chosen with, as DeepSeek-V3 names it.
constexpr std::string_view kRouterBias = "gate.e_score_correction_bias";

// Names below "layers.N.", or what `layers` says in place of that word; a norm without a name is one that the family
// lacks.
struct DecoderNames {
  std::string_view layers = "layers";
  bool apart = false;  // an MLP is a layer by itself, the next after its mixer's
  std::string_view attention_norm = "input_layernorm";
  std::string_view attention_out_norm = {};
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view mlp_out_norm = {};
  AttentionBinding attention = bind_attention;
  StateBinding state = nullptr;
  ExpertBinding experts = nullptr;  // null: each expert has tensors of its own, under the names below
  std::string_view mlp = "mlp";  // also of router and experts
  MlpNames parts = {};
  std::string_view fused_gate_up = {};  // gate and up in one tensor
  std::string_view shared_expert = "shared_expert";
  std::string_view router = "gate";     // below the MLP
  std::string_view router_bias = {};    // likewise
  bool router_bias_is_row = false;      // a matrix [1, experts] in place of a vector
  std::string_view embedding = "embed_tokens";  // of the model
  std::string_view final_norm = "norm";         // likewise
};

std::vector<TensorBinding> bind_decoder(const ModelConfig& config, ModelWeights& weights, const DecoderNames& names);

}  // namespace kvroof
