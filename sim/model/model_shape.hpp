// The shape of a decoder-only transformer: what decides bytes, flops and positions; nothing else about a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/kv_type.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"
#include "sim/model/attention_layers.hpp"
#include "sim/model/compressed_rows.hpp"
#include "sim/model/state_layers.hpp"
#include "sim/model/token_index.hpp"

namespace kvroof {

enum class PositionScheme : std::uint8_t { kRotaryHalfSplit, kRotaryAdjacent, kAlibi, kLearned, kNone };
enum class MlpKind : std::uint8_t { kGated, kPlain };    // gate·up then down (3 matrices), or up then down (2)
enum class NormKind : std::uint8_t { kRms, kLayer };
// Norms of q and k after their projections: none; over each head with one vector for all heads, or with a vector for
// each head; over the whole projection with one vector.
enum class QkNorm : std::uint8_t { kNone, kHead, kEachHead, kWhole };

struct ModelShape {
  std::string name;
  std::string family;            // model_type: llama, opt, …
  std::uint32_t layers = 0;      // that attend, each with a cache; hybrid models have others beside them: `state`
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;       // query heads
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;    // width of q and k rows
  std::uint32_t v_head_dim = 0;  // width of v rows; equal to head_dim in most families
  std::uint32_t ffn = 0;         // hidden size of the MLP
  std::uint32_t vocab = 0;       // rows of the embedding
  std::uint32_t max_positions = 0;
  PositionScheme position = PositionScheme::kRotaryHalfSplit;
  std::uint32_t position_rows = 0;  // rows of a learned position table (OPT: max_positions + 2), else 0
  std::uint32_t embedding_width = 0;  // OPT-350m: differs from hidden, with projections; else = hidden
  MlpKind mlp = MlpKind::kGated;
  NormKind norm = NormKind::kRms;
  std::uint32_t norms_per_layer = 2;
  bool norm_bias = false;
  bool embedding_norm = false;   // BLOOM
  bool final_norm = true;
  bool tied_head = false;
  bool head_bias = false;        // GPT-J
  bool qkv_bias = false;
  bool out_bias = false;         // attention output projection
  bool attention_gate = false;   // q's projection also makes a gate of the output (Qwen3-Next)
  bool head_gate = false;        // a projection makes one number for each query head, its output's gate (Step 3.5)
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  std::vector<std::uint32_t> layer_windows;  // of each layer: tokens it sees, its own included; 0: all. Empty: all 0
  // A learned logit of each query head takes part in its softmax, without a token (gpt-oss); kept in 32 bits.
  bool attention_sinks = false;
  std::vector<std::uint32_t> unturned_layers;  // those without positions, ascending, where others are rotated

  OtherAttention other;  // layers whose heads are not those above
  CompressedRows compressed;  // rows that each stand for several tokens, beside a window
  // The last so many layers attend to the rows of the last one before them that is of their kind, and have none
  // themselves (Gemma 3n, Gemma 4).
  std::uint32_t sharing_layers = 0;
  std::uint32_t sharing_ffn = 0;  // hidden size of their MLPs; 0: ffn

  StateLayers state;  // layers without a cache
  // Layers with an MLP: 0 means all of both kinds. In Nemotron-H an MLP is a layer of its own, as attention is.
  std::uint32_t mlp_layers = 0;

  // A token has a row of so many elements for each layer beside its embedding, which a gate and a projection of the
  // layer add to its output (Gemma 3n, Gemma 4); the table's rows.
  std::uint32_t layer_embedding = 0;
  std::uint32_t layer_embedding_rows = 0;
  // Parameters that no other size describes and that each token passes: of a layer, and outside of layers.
  std::uint32_t layer_extras = 0;
  std::uint32_t model_extras = 0;
  std::uint32_t residual_streams = 0;  // below 2: one, to which mixers and MLPs add (sim/model/residual_streams.hpp)

  // Mixture of experts: all MLPs but the first `dense_layers`. Every expert is an MLP of the kind above.
  std::uint32_t experts = 0;             // routed; 0: a dense model
  std::uint32_t experts_per_token = 0;
  std::uint32_t expert_ffn = 0;          // hidden size of one routed expert
  std::uint32_t shared_expert_ffn = 0;   // of all shared experts together; 0: none
  bool shared_expert_gate = false;       // the shared output is scaled by a sigmoid of one row
  std::uint32_t expert_width = 0;        // of a token before its experts and after them; 0: hidden (Nemotron 3: less)
  std::uint32_t dense_layers = 0;        // leading layers with one MLP of size ffn
  // Experts are scored by sigmoids and chosen with a bias of each, kept in 32 bits (DeepSeek-V3, arXiv:2412.19437).
  bool router_bias = false;
  bool router_logit_bias = false;  // the router is a linear with biases (gpt-oss)
  std::uint32_t hashed_layers = 0;  // the first so many of them take the experts that a table of tokens names, unbiased

  // Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one row a token, the latent and the
  // rotary part of k; its leading v_head_dim elements serve as v. Then kv_heads is 1, head_dim is latent_rank +
  // latent_rope_dim, and v_head_dim is latent_rank.
  std::uint32_t latent_rank = 0;      // kv_lora_rank; 0: no latent attention
  std::uint32_t latent_q_rank = 0;    // q_lora_rank; 0: q is projected at once. Also beside compressed rows
  std::uint32_t latent_nope_dim = 0;  // of a query head, without rotation
  std::uint32_t latent_rope_dim = 0;  // of a query head, rotated
  std::uint32_t latent_v_dim = 0;     // of a head's output before the output projection
  TokenIndex index;                   // by which queries choose the tokens that they read
  DType weight_type = DType::kBF16;  // as stored in the checkpoint

  [[nodiscard]] std::uint32_t group() const { return heads / kv_heads; }
  [[nodiscard]] bool latent() const { return latent_rank > 0; }
  [[nodiscard]] bool is_expert_layer(std::uint32_t layer) const { return experts > 0 && layer >= dense_layers; }
  // That mix tokens, by attention or by a state.
  [[nodiscard]] std::uint32_t mixers() const {
    return state.beside_attention ? std::max(layers, state.layers) : layers + state.layers;
  }
  [[nodiscard]] std::uint32_t mlps() const { return mlp_layers > 0 ? mlp_layers : mixers(); }
  // As a model's card counts them: each mixer and each MLP by itself where their numbers differ.
  [[nodiscard]] std::uint32_t blocks() const { return mlps() == mixers() ? mixers() : mixers() + mlps(); }
  // As many layers of a mixer and an MLP as have the same number of both together.
  [[nodiscard]] double depth() const { return 0.5 * (mixers() + mlps()); }
  [[nodiscard]] std::uint64_t expert_layers() const {
    return experts > 0 && dense_layers < mlps() ? mlps() - dense_layers : 0;
  }
  [[nodiscard]] std::uint32_t routed_width() const { return expert_width > 0 ? expert_width : hidden; }
  [[nodiscard]] std::uint32_t window(std::uint32_t layer) const {
    return layer_windows.empty() ? 0 : layer_windows[layer];
  }
  [[nodiscard]] bool is_other(std::uint32_t layer) const {
    return std::binary_search(other.layers.begin(), other.layers.end(), layer);
  }
  [[nodiscard]] bool has_own_rows(std::uint32_t layer) const { return layer + sharing_layers < layers; }
  // Rows of row_width() that a token's k and v are in this layer: its KV heads, of which a wider one counts as several,
  // with their scales. Where it has no rows of its own: those that it reads.
  [[nodiscard]] std::uint32_t rows_of_token(std::uint32_t layer) const {
    return is_other(layer) ? other.kv_heads * other.head_dim / head_dim : kv_heads;
  }
  // Of layers that hold and read the same it is the same.
  [[nodiscard]] std::uint64_t cache_kind(std::uint32_t layer) const {
    const std::uint64_t rate = compressed.rate(layer);  // at most 2^16, and a window at most 2^30
    return rate << 40U | std::uint64_t{window(layer)} << 2U | (is_other(layer) ? 2U : 0U) |
           (has_own_rows(layer) ? 0U : 1U);
  }
  // Elements of a cached row: k and v of one token in one KV head. A latent row holds its v inside k, and beside
  // compressed rows both are the same.
  [[nodiscard]] std::uint32_t row_width() const { return head_dim + (latent() || compressed ? 0 : v_head_dim); }
  // Of layers whose experts are chosen by scores with a bias each.
  [[nodiscard]] std::uint64_t biased_routers() const {
    return router_bias ? expert_layers() - std::min<std::uint64_t>(hashed_layers, expert_layers()) : 0;
  }
};

// Parameters that a checkpoint of this shape stores (a tied head counts once).
std::uint64_t parameter_count(const ModelShape& shape);
// Of these, what one decoded token reads: of the routed experts those that it takes, one row of the embedding and of
// the position table, and the head, also where it is the embedding.
std::uint64_t active_parameters(const ModelShape& shape);
// Weights in `type`, but for what stays in 32 bits; tied head once.
Bytes weight_bytes(const ModelShape& shape, DType type);
// k and v of one token in all layers, and its keys in their index; with a residual window, once it has left the window.
// Of compressed rows, which several tokens share, its part, rounded up; the window beside them, which does not grow,
// not.
Bytes kv_bytes_per_token(const ModelShape& shape, KvType type);
// The cache of one sequence of `tokens` tokens: a layer with a window holds no more than its window.
Bytes kv_bytes(const ModelShape& shape, KvType type, std::uint64_t tokens);
// What layers without a cache, and what makes compressed rows, hold of one sequence, however long; convolutions' rows
// in the type `weights`.
Bytes state_bytes(const ModelShape& shape, DType weights);

// Parts of the count, for traffic.
std::uint64_t layers_parameters(const ModelShape& shape);      // of all layers
std::uint64_t expert_parameters(const ModelShape& shape);      // of one routed expert
std::uint64_t routed_parameters(const ModelShape& shape);      // of all routed experts
std::uint64_t exact_parameters(const ModelShape& shape);       // in 32 bits: biases that choose experts, sinks, what
                                                             // heads of states have each by itself, biases of
                                                             // compressors, what mixes residual streams
std::uint64_t head_parameters(const ModelShape& shape);        // matrix and bias of the LM head, tied or not
std::uint64_t embedding_parameters(const ModelShape& shape);   // tables of tokens, of positions and of each layer
std::uint64_t embedding_row(const ModelShape& shape);          // of these, what a token reads
std::uint64_t projection_parameters(const ModelShape& shape);  // between embedding_width and hidden, both ways
std::uint64_t norm_vectors_outside_layers(const ModelShape& shape);  // embedding norm and final norm

// Rows of row_width() that a token has in all layers.
std::uint64_t rows_of_token(const ModelShape& shape);

// Why no model can have these sizes, or nothing. Sizes that pass never wrap around in the functions above.
std::string shape_problem(const ModelShape& shape);

// Every field; reading is strict (unknown keys are errors), and fills kv_heads, head_dim, v_head_dim and
// embedding_width when they are absent and follow from other sizes.
std::string shape_to_json(const ModelShape& shape);
Result<ModelShape> shape_from_json(std::string_view text);

// The folder of a model that comes with the program: models/<name> beside the catalog; nothing: there is none.
std::optional<std::filesystem::path> bundled_model(const std::string& name, const std::filesystem::path& catalog);
// catalog/models/<name>.yaml, a YAML file of that form, a Hugging Face config.json, a folder that holds one, a GGUF
// file, or the name of a bundled model. Throws Error (usage) with "did you mean" for an unknown name.
ModelShape find_model_shape(const std::string& name_or_path, const std::filesystem::path& catalog);
// Names of all catalog entries, sorted.
std::vector<std::string> catalog_model_names(const std::filesystem::path& catalog);

}  // namespace kvroof
