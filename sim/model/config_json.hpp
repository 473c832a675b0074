// Hugging Face config.json → ModelShape and the options that the engine needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/ids.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/model/query_scale.hpp"
#include "sim/model/rotary.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {

enum class Activation : std::uint8_t {
  kSilu,
  kGelu,  // the exact (erf) form
  kGeluTanh,
  kRelu,
  kRelu2,  // relu(x)²
  kClampedSwiglu,  // of gated MLPs alone (clamped_swiglu.hpp)
  kSigmoid,        // of gates alone
};

enum class ResidualOrder : std::uint8_t {
  kSequential,    // x += attention(norm(x)); x += mlp(norm(x)); a norm that the family lacks is left out
  kParallel,      // x += attention(norm(x)) + mlp(norm'(x)); without a norm of its own the MLP takes attention's input
  kNormAfterAdd,  // x = norm(x + attention(x)); x = norm(x + mlp(x)) (OPT-350m)
};

// How the attention of one layer turns q·k into weights.
struct LayerRule {
  float scale = 0;           // multiplies q·k; 1/√head_dim unless the family says otherwise
  float softcap = 0;         // cap · tanh(logit / cap); 0: none
  std::uint32_t rotary = 0;  // index into ModelOptions::rotary; not used where that is empty
};

enum class RouterScores : std::uint8_t {
  kSoftmax,
  kSigmoid,
  kSparseMixer,  // the logits; each chosen one weighs as its part of a softmax over what is left and near it
};

// Routing of a mixture of experts: each is scored, the best experts_per_token are taken, with their scores as weights.
struct RoutingRule {
  RouterScores scores = RouterScores::kSoftmax;  // over all experts; or each by itself
  float margin = 0;                // of kSparseMixer: how far, relative to its size, a logit that is near lies below
  bool renormalise = false;        // the weights of the chosen ones sum to 1 (norm_topk_prob)
  float scale = 1;                 // of the routed output (routed_scaling_factor)
  std::uint32_t groups = 1;        // group-limited routing: only experts of the best `top_groups` groups compete, as
  std::uint32_t top_groups = 1;    // ranked by the sum of their `group_best` (1 or 2) best experts (DeepSeek-V2, V3)
  std::uint32_t group_best = 1;
};

// Matrices that the checkpoint stores in 8 bits (E4M3), and how many of their numbers share a scale.
struct Fp8Storage {
  bool used = false;                              // by some of them: which ones, their tensors tell
  std::uint32_t block_rows = 0, block_cols = 0;   // 0: a row's numbers, or all
  bool operator==(const Fp8Storage&) const = default;
};

// What a forward pass must know beside the shape.
struct ModelOptions {
  float norm_eps = 1e-5F;
  float latent_norm_eps = 1e-6F;  // of the norms in latent attention, which no key tells
  float norm_offset = 0;  // added to every weight of a norm, not to its bias: 1 in Gemma and Nemotron
  Activation activation = Activation::kSilu;
  ResidualOrder residual = ResidualOrder::kSequential;
  float embedding_scale = 1;
  float residual_scale = 1;            // of what attention and MLP add
  std::uint32_t position_offset = 0;   // row of the learned position table for position 0: 2 in OPT
  std::vector<LayerRule> layers;       // one for each layer that attends
  std::vector<std::uint32_t> attending;  // of a hybrid model: which of its mixers attend, ascending; empty: all
  std::vector<std::uint32_t> alone;      // mixers that no MLP follows, ascending (Nemotron-H)
  std::vector<RotaryRule> rotary;      // empty: no rotary embedding
  std::vector<float> alibi_slopes;     // one for each query head, or empty; added to the scaled logits
  float alibi_rounded_scale = 0;       // see AlibiBias
  bool mxfp4_experts = false;          // as the checkpoint stores them (OCP Microscaling Formats 1.0)
  Fp8Storage fp8;
  StoredFormat stored;                 // as what is quantised lies in the checkpoint
  std::string stored_unknown;          // why that is not known, or empty
  bool text_part = false;              // of a model that takes pictures or sounds as well: see config_text_part.hpp
  std::string cannot_run;              // why the engine does not run this checkpoint, or empty
  QueryScale query_scale;              // of all layers
  float qkv_clip = 0;                  // q, k and v are clamped to ± this; 0: not
  bool norms_after_rotary = false;     // of q and k; they come before it elsewhere (Hunyuan)
  float logit_scale = 1;
  float logit_softcap = 0;             // after the scale
  RoutingRule routing;
  std::vector<std::int64_t> bos_ids;
  std::vector<std::int64_t> eos_ids;
};

struct ModelConfig {
  ModelShape shape;
  ModelOptions options;

  // Whether one of the model's mixers, and so of its blocks, is a layer of attention.
  [[nodiscard]] bool attends(std::uint32_t block) const {
    return options.attending.empty() || std::ranges::binary_search(options.attending, block);
  }
  [[nodiscard]] bool has_mlp(std::uint32_t block) const { return !std::ranges::binary_search(options.alone, block); }
  // Which block a layer of attention is.
  [[nodiscard]] std::uint32_t block_of(LayerId layer) const {
    return options.attending.empty() ? layer.value : options.attending[layer.value];
  }
};

// 1/√head_dim.
float default_attention_scale(std::uint32_t head_dim);

// Accepts old and new key names (torch_dtype and dtype; rope_theta and rope_parameters). Refuses, naming key and value:
// an unknown model_type (with the known ones and "did you mean"), unsupported options (kinds of rope_scaling that are
// not built, …), missing or impossible sizes (0, negative, above 2^24, heads not a multiple of kv_heads).
Result<ModelConfig> parse_config_json(std::string_view text);

// One entry a family, sorted by model_type; a new family is one file, its declaration in families.hpp and one line in
// config_json.cpp's table.
struct ConfigFamily {
  std::string_view model_type;
  Result<ModelConfig> (*parse)(std::string_view config_json);
  std::string_view quantised = {};  // the quant_method that its checkpoints may have
};

}  // namespace kvroof
