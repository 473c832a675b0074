// A loaded model: its configuration and its weights, read from a Hugging Face folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine/weight.hpp"
#include "sim/model/config_json.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// What a family lacks stays empty.
struct Norm {
  Weight scale;  // [rows, cols]: row r of the input takes row r mod rows; one row unless each head has its own
  Weight bias;

  [[nodiscard]] bool empty() const { return scale.empty(); }
};

struct Linear {
  Weight matrix;  // [out, in]
  Weight bias;    // [1, out]

  [[nodiscard]] bool empty() const { return matrix.empty(); }
  [[nodiscard]] const Weight* bias_or_none() const { return bias.empty() ? nullptr : &bias; }
};

struct Mlp {
  Linear gate;  // empty in a plain MLP
  Linear up, down;
};

struct ExpertWeights {
  Linear router;               // [experts, hidden]
  Weight router_bias;          // [1, experts] that the choice alone adds, in f32 whatever the others are; empty: none
  std::vector<Mlp> routed;     // [experts]
  Mlp shared;                  // all shared experts as one
  Weight shared_gate;          // [1, hidden]
};

// Multi-head latent attention: k and v of a token come from one latent row. The up projections act on q and on the
// output instead (absorbed), so that attention runs over the latent rows themselves.
struct LatentWeights {
  Linear q_down;    // [q rank, hidden]; empty: q_up takes the layer's input
  Norm q_norm;
  Weight q_up;      // [heads · (nope + rope), q rank or hidden]
  Linear kv_down;   // [rank + rope, hidden]
  Norm kv_norm;     // over the rank
  Weight k_up;      // [heads · rank, nope]: for each head, the transpose of its key projection
  Weight v_up;      // [heads · v dim, rank]
};

// A layer that holds a state in place of a cache (sim/model/state_layers.hpp).
struct StateWeights {
  Linear in;         // [2 · keys + 2 · values, hidden]: q, k, v (Mamba-2: C, B, x), the gate of the output, and of
                     // Mamba-2 the step of each head; of short convolutions [3 · hidden, hidden]: the gates before and
                     // after, and what they run over
  Linear rates;      // gated delta nets: [2 · heads, hidden], how much of v a head takes, and how much it forgets
  Weight taps;       // [channels, convolution], the oldest token's first
  Weight taps_bias;  // [1, channels], or empty
  Weight decay;      // [1, heads] in f32 whatever the others are: logarithms of the rates at which heads forget
  Weight rate_bias;  // [1, heads] likewise, of steps or the second half of `rates`
  Weight skip;       // [1, heads] likewise: how much of v passes by the state (Mamba-2's D); empty: nothing
  Norm norm;         // of each head's output; Mamba-2: [values], of the output of each group's heads together
  Linear out;        // [hidden, values]
};

struct LayerWeights {
  Norm attention_norm;      // before attention (kNormAfterAdd: after adding it)
  Linear q, k, v, o;
  Linear gate;              // [heads · v_head_dim, hidden], of attention's output before o; empty: none
  Norm q_norm, k_norm;
  Weight sinks;             // [1, heads] in f32 whatever the others are, always in memory; empty: none
  Norm attention_out_norm;  // of attention's output, before it is added
  Norm mlp_norm;            // before the MLP (kNormAfterAdd: after adding it)
  Mlp mlp;                  // of dense layers
  Norm mlp_out_norm;        // of the MLP's output, before it is added
  ExpertWeights experts;    // of expert layers
  LatentWeights latent;
  StateWeights state;       // of layers that do not attend

  // [heads], or empty.
  [[nodiscard]] std::span<const float> attention_sinks() const {
    return {reinterpret_cast<const float*>(sinks.data.data()), sinks.cols};
  }
};

struct ModelWeights {
  Weight embedding;      // [vocab, embedding width]
  Weight positions;      // [position rows, hidden], learned
  Weight project_in;     // [hidden, embedding width]; empty when they are equal
  Norm embedding_norm;
  std::vector<LayerWeights> layers;  // of each mixer (ModelShape::mixers())
  Norm final_norm;
  Weight project_out;    // [embedding width, hidden]
  Weight head;           // [vocab, embedding width]; empty when tied: the embedding serves
  Weight head_bias;      // [1, vocab]
};

class Checkpoint;

struct Model {
  ModelConfig config;
  DType type = DType::kF32;  // of all weights but biases that choose experts, and sinks
  ModelWeights weights;
  std::shared_ptr<const Checkpoint> checkpoint;  // what the weights' stored blocks lie in; null: random weights
  std::string name;  // of the folder
  std::filesystem::path path;
  std::vector<std::string> notes;  // what the checkpoint says otherwise than its configuration
  std::vector<TokenKind> token_kinds;  // by id; empty: not read (add_token_kinds())

  [[nodiscard]] const LayerWeights& layer(LayerId attends) const { return weights.layers[config.block_of(attends)]; }
  [[nodiscard]] const Weight& head() const { return weights.head.empty() ? weights.embedding : weights.head; }
};

// Reads config.json, generation_config.json (end-of-text ids) if there is one, and the headers of the safetensors
// files, single or sharded. Weights have their sizes and say where their elements lie; few are read yet: a device takes
// them from there, make_elements() (elements.hpp) puts them into memory. They are converted to `type`, or keep the
// checkpoint's own (that of the embedding). Everything is validated. Throws Error: usage for a missing folder or file,
// failure for damaged or unsupported content; messages name file and tensor.
Model open_model(const std::filesystem::path& folder, std::optional<DType> type);

// The configuration alone, with the same checks and messages.
ModelConfig load_model_config(const std::filesystem::path& folder);

}  // namespace kvroof
