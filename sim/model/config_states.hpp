// What the configurations of hybrid models have in common: some layers attend, the others hold a state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// Which of num_hidden_layers attend, as layer_types says or else `attends`. The model's shape has as many layers as
// attend, and the others beside them as layers of `state`, whose sizes the family reads.
void read_mixers(ConfigFields& fields, ModelConfig& config, StateLayers state,
                 const std::function<bool(std::uint32_t layer)>& attends);

// Says in the options that the engine does not run `part` of a model. Of what not_built() knows, and of families whose
// weights the engine does not name, no parser has to.
void say_not_run(ModelConfig& config, std::string_view part);

// Gated delta nets under Qwen3-Next's names: linear_num_value_heads, linear_key_head_dim …; mamba_ssm_dtype.
StateLayers read_gated_delta(ConfigFields& fields);
// Mamba-2 under a family's names; its matrices are in mamba_ssm_cache_dtype, else in 32 bits, as vLLM takes it.
struct Mamba2Keys {
  std::string_view heads, head_dim, groups, state_size, convolution;
};
StateLayers read_mamba2(ConfigFields& fields, const Mamba2Keys& keys, std::optional<std::uint32_t> head_dim = {});

// Under `key`, the type of the matrices of states; where it is absent, that of the weights, as vLLM takes it.
DType state_type(ConfigFields& fields, std::string_view key);

// Qwen3-Next's attention (its output is gated, a part of each head turns, q and k have norms) in every fourth layer,
// gated delta nets in the others; MLPs are the family's.
ModelConfig read_qwen3_hybrid(ConfigFields& fields, std::string_view family);

}  // namespace kvroof
