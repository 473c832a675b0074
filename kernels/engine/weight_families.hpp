// Where each family's checkpoint keeps its tensors; weight_families.cpp holds the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/model.hpp"

namespace kvroof {

// Rows of a stored matrix that become rows of a weight. A vector (norm, bias) is a matrix of one column here, and a
// weight of one row.
struct RowBlock {
  Weight* weight = nullptr;
  std::size_t rows = 0;        // of the whole weight, allocated when its first block is met
  std::size_t cols = 0;
  std::size_t from = 0;        // first stored row
  std::size_t to = 0;          // first row of the weight
  std::size_t count = 0;       // stored rows
  bool transposed = false;     // the block [count, cols'] goes to rows [to, to + cols') of the weight as [cols', count]
  std::size_t col = 0;         // first stored column of a transposed block; it ends with the row or the weight
  std::size_t step = 1;        // rows (of a transposed block, columns) that lie between are another weight's
};

// A tensor that the checkpoint must hold, and where its rows go; every row goes somewhere.
struct TensorBinding {
  std::string name;                   // without the family's prefix
  std::vector<std::uint64_t> shape;   // as stored
  std::vector<RowBlock> blocks;
  bool transposed = false;            // stored [in, out] (GPT-2's Conv1D): rows of the blocks are its columns
  bool exact = false;                 // its weights are f32 whatever the others are
  std::size_t width = 0;              // elements of a stored row, of all but its first dimensions; 0: as `shape` says
  std::string scales = {};            // tensor of the scales of packed elements; empty: they are plain
  std::size_t scale_rows = 1, scale_cols = 1;  // of the matrix, that share one
  DType packed = DType::kU8;          // type of packed elements: kU8 for MXFP4, kF8E4M3
};

// One entry a family: a new family is one file and one line.
struct WeightFamily {
  std::string_view model_type;
  std::span<const std::string_view> prefixes;  // that checkpoints may put before names, beside none
  // The embedding and then every other tensor but the head; weights.layers has been sized.
  std::vector<TensorBinding> (*bind)(const ModelConfig& config, ModelWeights& weights);
  std::string_view head = "lm_head.weight";        // a tied one may be stored as well
  bool draft_layers = false;  // layers behind the model's last one draft tokens, and are not read
  std::string_view drafter = {};  // how names begin of tensors that draft tokens, likewise
  StateKind state = StateKind::kNone;  // of layers in place of attention whose weights it names
  bool attention_gate = false;         // of attention's output, likewise
};

// Whether there is an entry for it.
bool runs_family(std::string_view model_type);
// What of a shape its family, which has an entry, names no weights for; empty: nothing.
std::string unnamed_part(const ModelShape& shape);
// Throws std::logic_error for a family without an entry: the tables of config.json and weights go together.
const WeightFamily& weight_family(std::string_view model_type);

// Every tensor of a checkpoint of this configuration, the embedding first; sizes weights.layers.
std::vector<TensorBinding> bind_tensors(const ModelConfig& config, ModelWeights& weights);
// The head of a model that does not take its embedding for it.
TensorBinding bind_head(const ModelShape& shape, ModelWeights& weights);
// Stored tensors that the model does not use: buffers of masks and rotary embeddings, a copy of the tied head, parts of
// another model. The name has no prefix.
bool is_skipped(const ModelConfig& config, std::string_view tensor);
// What its checkpoints may put before the names of tensors, beside nothing.
std::span<const std::string_view> tensor_prefixes(const ModelConfig& config);

std::vector<TensorBinding> bind_bloom(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_cohere(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_deepseek_v2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_deepseek_v3(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_ernie4_5_moe(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_exaone(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_exaone_moe(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_falcon(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_gemma2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_glm(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_glm4(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_glm4_moe(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_gpt2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_gpt_neox(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_gpt_oss(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_gptj(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_granitemoe(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_granitemoehybrid(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_hunyuan(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_hyperclovax(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_lfm2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_llama(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_minimax_m2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_mixtral(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_mpt(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_nemotron_h(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_olmo2(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_opt(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_phi(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_phi3(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_qwen3_5(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_qwen3_next(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_stablelm(const ModelConfig& config, ModelWeights& weights);
std::vector<TensorBinding> bind_starcoder2(const ModelConfig& config, ModelWeights& weights);

}  // namespace kvroof
