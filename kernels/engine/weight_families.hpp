// Where each family's checkpoint keeps its tensors: the table of families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/model.hpp"

// A new family is a file with its binder, bind_NAME, and a line here: its model_type, what may stand before names of
// tensors (weight_families.cpp), the binder, and what else WeightFamily says. gemma3_text is also the text part of
// gemma3, with its configuration alone.
#define KVROOF_WEIGHT_FAMILIES(line) \
  line(arcee, kModel, llama) \
  line(bloom, kTransformer, bloom) \
  line(cohere, kModel, cohere) \
  line(cohere2, kModel, cohere) \
  line(cwm, kModel, llama) \
  line(deepseek_v2, kModel, deepseek_v2) \
  line(deepseek_v3, kModel, deepseek_v3, .draft_layers = true) \
  line(dots1, kModel, glm4_moe) \
  line(ernie4_5, kModel, llama) \
  line(ernie4_5_moe, kModel, ernie4_5_moe, .drafter = "mtp_") \
  line(exaone, kTransformer, exaone) \
  line(exaone4, kModel, olmo2) \
  line(exaone_moe, kModel, exaone_moe, .drafter = "mtp.") \
  line(falcon, kTransformer, falcon) \
  line(flex_olmo, kModel, olmo2) \
  line(gemma, kModel, llama) \
  line(gemma2, kModel, gemma2) \
  line(gemma3_text, kTextPart, gemma2) \
  line(glm, kModel, glm) \
  line(glm4, kModel, glm4) \
  line(glm4_moe, kModel, glm4_moe, .draft_layers = true) \
  line(gpt2, kTransformer, gpt2) \
  line(gpt_neox, kGptNeox, gpt_neox, .head = "embed_out.weight") \
  line(gpt_oss, kModel, gpt_oss) \
  line(gptj, kTransformer, gptj) \
  line(granite, kModel, llama) \
  line(granitemoe, kModel, granitemoe) \
  line(granitemoehybrid, kModel, granitemoehybrid, .state = StateKind::kMamba2) \
  line(helium, kModel, llama) \
  line(hunyuan_v1_dense, kModel, hunyuan) \
  line(hunyuan_v1_moe, kModel, hunyuan) \
  line(hyperclovax, kModel, hyperclovax) \
  line(internlm3, kModel, llama) \
  line(lfm2, kModel, lfm2, .state = StateKind::kShortConvolution) \
  line(lfm2_moe, kModel, lfm2, .state = StateKind::kShortConvolution) \
  line(llama, kModel, llama) \
  line(minimax_m2, kModel, minimax_m2, .draft_layers = true) \
  line(mistral, kModel, llama) \
  line(mistral4, kModel, deepseek_v2) \
  line(mixtral, kModel, mixtral) \
  line(mpt, kTransformer, mpt) \
  line(nemotron, kModel, llama) \
  line(nemotron_h, kBackbone, nemotron_h, .drafter = "mtp.", .state = StateKind::kMamba2) \
  line(olmo2, kModel, olmo2) \
  line(olmo3, kModel, olmo2) \
  line(olmoe, kModel, llama) \
  line(opt, kModel, opt) \
  line(phi, kModel, phi) \
  line(phi3, kModel, phi3) \
  line(phimoe, kModel, mixtral) \
  line(qwen2, kModel, llama) \
  line(qwen2_moe, kModel, llama) \
  line(qwen3, kModel, llama) \
  line(qwen3_5_moe_text, kModel, qwen3_5, .drafter = "mtp.", .state = StateKind::kGatedDelta, .attention_gate = true) \
  line(qwen3_5_text, kModel, qwen3_5, .drafter = "mtp.", .state = StateKind::kGatedDelta, .attention_gate = true) \
  line(qwen3_moe, kModel, llama) \
  line(qwen3_next, kModel, qwen3_next, .drafter = "mtp.", .state = StateKind::kGatedDelta, .attention_gate = true) \
  line(seed_oss, kModel, llama) \
  line(smollm3, kModel, llama) \
  line(solar_open, kModel, glm4_moe) \
  line(stablelm, kModel, stablelm) \
  line(starcoder2, kModel, starcoder2)

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
// Why the engine does not run a checkpoint of this configuration, in a sentence; empty: it does.
std::string not_run(const ModelConfig& config);
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

#define KVROOF_DECLARE(type, before, binder, ...) \
  std::vector<TensorBinding> bind_##binder(const ModelConfig& config, ModelWeights& weights);
KVROOF_WEIGHT_FAMILIES(KVROOF_DECLARE)
#undef KVROOF_DECLARE

}  // namespace kvroof
