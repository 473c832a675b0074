// The shape of a decoder-only transformer: what decides bytes, flops and positions; nothing else about a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace kvroof {

enum class PositionScheme : std::uint8_t { kRotaryHalfSplit, kRotaryAdjacent, kAlibi, kLearned, kNone };
enum class MlpKind : std::uint8_t { kGated, kPlain };    // gate·up then down (3 matrices), or up then down (2)
enum class NormKind : std::uint8_t { kRms, kLayer };

struct ModelShape {
  std::string name;
  std::string family;            // model_type: llama, opt, …
  std::uint32_t layers = 0;
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
  bool mlp_bias = false;
  DType weight_type = DType::kBF16;  // as stored in the checkpoint

  [[nodiscard]] std::uint32_t group() const { return heads / kv_heads; }
};

// Parameters that a checkpoint of this shape stores (a tied head counts once).
std::uint64_t parameter_count(const ModelShape& shape);
// Weights in `type`, tied head once.
Bytes weight_bytes(const ModelShape& shape, DType type);
// k and v of one token in all layers, unquantised.
Bytes kv_bytes_per_token(const ModelShape& shape, DType type);

// Parts of the count, for traffic.
std::uint64_t layer_parameters(const ModelShape& shape);       // attention, MLP and norms of one layer
std::uint64_t head_parameters(const ModelShape& shape);        // matrix and bias of the LM head, tied or not
std::uint64_t projection_parameters(const ModelShape& shape);  // between embedding_width and hidden, both ways
std::uint64_t norm_vectors_outside_layers(const ModelShape& shape);  // embedding norm and final norm

// Why no model can have these sizes, or nothing. Sizes that pass never wrap around in the functions above.
std::string shape_problem(const ModelShape& shape);

// Every field; reading is strict (unknown keys are errors), and fills kv_heads, head_dim, v_head_dim and
// embedding_width when they are absent and follow from other sizes.
std::string shape_to_json(const ModelShape& shape);
Result<ModelShape> shape_from_json(std::string_view text);

// catalog/models/<name>.yaml, a YAML file of that form, a Hugging Face config.json, or a folder that holds one.
// Throws Error (usage) with "did you mean" for an unknown name.
ModelShape find_model_shape(const std::string& name_or_path, const std::filesystem::path& catalog);
// Names of all catalog entries, sorted.
std::vector<std::string> catalog_model_names(const std::filesystem::path& catalog);

}  // namespace kvroof
