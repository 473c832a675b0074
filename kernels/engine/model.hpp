// A loaded model: its configuration and its weights, read from a Hugging Face folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/engine/weight.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

// Matrices are [out, in]; norms and biases have one row. What a family lacks stays empty.
struct LayerWeights {
  Weight attention_norm;
  Weight q, k, v, o;
  Weight q_bias, k_bias, v_bias, o_bias;
  Weight mlp_norm;
  Weight gate, up, down;
  Weight gate_bias, up_bias, down_bias;
};

struct ModelWeights {
  Weight embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Weight final_norm;
  Weight head;  // [vocab, hidden]; empty when tied: the embedding serves
};

struct Model {
  ModelConfig config;
  DType type = DType::kF32;  // of all weights in memory
  ModelWeights weights;
  std::string name;  // of the folder
  std::filesystem::path path;

  [[nodiscard]] const Weight& head() const { return weights.head.empty() ? weights.embedding : weights.head; }
};

// Reads config.json, generation_config.json (end-of-text ids) if there is one, and the safetensors files, single or
// sharded. Weights are converted to `type`, or keep the checkpoint's own (that of the embedding). Everything is
// validated before memory for weights is allocated, and tensors are streamed: the peak is the weights and a few
// megabytes. Throws Error: usage for a missing folder or file, failure for damaged or unsupported content; messages
// name file and tensor.
Model load_model(const std::filesystem::path& folder, std::optional<DType> type);

// The configuration alone, with the same checks and messages.
ModelConfig load_model_config(const std::filesystem::path& folder);

}  // namespace kvroof
