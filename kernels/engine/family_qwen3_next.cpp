// Tensor names of Qwen3-Next and Qwen3.5: LLaMA's, where q's projection also makes a gate of each head, and gated delta
// nets. Qwen3-Next lays the projections of these together by key head, Qwen3.5 one after the other.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_gated_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::string attention = layer + ".self_attn.";
  const std::size_t head = shape.head_dim;
  const bool bias = shape.qkv_bias;
  binder.fused(attention + "q_proj", {{&w.q, head}, {&w.gate, head}}, shape.heads, shape.hidden, bias);
  binder.linear(attention + "k_proj", w.k, shape.kv_heads * head, shape.hidden, bias);
  binder.linear(attention + "v_proj", w.v, shape.kv_heads * head, shape.hidden, bias);
  binder.linear(attention + "o_proj", w.o, shape.hidden, shape.heads * head, shape.out_bias);
  binder.norm(attention + "q_norm", w.q_norm, head, false);
  binder.norm(attention + "k_norm", w.k_norm, head, false);
}

// What both families name alike.
void bind_delta_rule(WeightBinder& binder, const ModelShape& shape, const std::string& net, StateWeights& w) {
  const StateLayers& s = shape.state;
  binder.taps(net + "conv1d.weight", w.taps, convolved_channels(s, shape.hidden), s.convolution);
  binder.exact_vector(net + "A_log", w.decay, s.heads);
  binder.exact_vector(net + "dt_bias", w.rate_bias, s.heads);
  binder.norm(net + "norm", w.norm, s.value_dim, false);
  binder.linear(net + "out_proj", w.out, shape.hidden, s.values(), false);
}

void bind_nets_by_head(WeightBinder& binder, const ModelShape& shape, const std::string& layer, StateWeights& w) {
  const std::string net = layer + ".linear_attn.";
  const StateLayers& s = shape.state;
  const std::size_t shared = s.heads / s.key_heads;  // value heads of a key head
  const std::size_t values = shared * s.value_dim;
  std::vector<RowRun> in, rates;
  for (std::size_t h = 0; h < s.key_heads; ++h) {
    const std::size_t key = h * s.key_dim, value = 2 * s.keys() + h * values;
    for (const RowRun& run : {RowRun{key, s.key_dim}, RowRun{s.keys() + key, s.key_dim}, RowRun{value, values},
                           RowRun{s.values() + value, values}}) {
      in.push_back(run);
    }
    rates.push_back({h * shared, shared});
    rates.push_back({s.heads + h * shared, shared});
  }
  const std::size_t rows = 2 * s.keys() + 2 * s.values();
  binder.matrix_runs(net + "in_proj_qkvz.weight", w.in.matrix, rows, shape.hidden, in);
  binder.matrix_runs(net + "in_proj_ba.weight", w.rates.matrix, std::size_t{2} * s.heads, shape.hidden, rates);
  bind_delta_rule(binder, shape, net, w);
}

void bind_nets(WeightBinder& binder, const ModelShape& shape, const std::string& layer, StateWeights& w) {
  const std::string net = layer + ".linear_attn.";
  const StateLayers& s = shape.state;
  const std::size_t mixed = 2 * s.keys() + s.values(), heads = s.heads;
  const auto part = [&](const char* name, Linear& linear, std::size_t rows, RowRun run) {
    binder.matrix_runs(net + name, linear.matrix, rows, shape.hidden, {&run, 1});
  };
  part("in_proj_qkv.weight", w.in, mixed + s.values(), {0, mixed});
  part("in_proj_z.weight", w.in, mixed + s.values(), {mixed, s.values()});
  part("in_proj_b.weight", w.rates, 2 * heads, {0, heads});
  part("in_proj_a.weight", w.rates, 2 * heads, {heads, heads});
  bind_delta_rule(binder, shape, net, w);
}

std::vector<TensorBinding> bind_with(StateBinding state, const ModelConfig& config, ModelWeights& weights) {
  const AttentionBinding attention = config.shape.attention_gate ? bind_gated_attention : bind_attention;
  return bind_decoder(config, weights, {.attention = attention, .state = state});
}

}  // namespace

std::vector<TensorBinding> bind_qwen3_next(const ModelConfig& config, ModelWeights& weights) {
  return bind_with(bind_nets_by_head, config, weights);
}

std::vector<TensorBinding> bind_qwen3_5(const ModelConfig& config, ModelWeights& weights) {
  return bind_with(bind_nets, config, weights);
}

}  // namespace kvroof
