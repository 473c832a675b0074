#include "sim/cost/speculation.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

constexpr std::uint32_t kEagle3Vocab = 32000;  // draft_vocab_size of the published heads

u64 matrices(const ModelShape& s) { return s.mlp == MlpKind::kGated ? 3 : 2; }

// A layer's MLP grows so that it holds so many parameters more: they are read and multiplied like those of an MLP.
void add_parameters(ModelShape& s, u64 more) {
  const u64 width = matrices(s) * s.hidden;
  const auto wider = static_cast<std::uint32_t>((more + width / 2) / width);
  (s.experts > 0 ? s.shared_expert_ffn : s.ffn) += wider;
}

// The target's last layer by itself. A window is the target's alone: drafts are trained with full attention.
ModelShape last_layer(const ModelShape& target) {
  ModelShape s = target;
  s.layers = 1;
  s.state = {};
  s.mlp_layers = 0;
  s.dense_layers = 0;
  s.layer_windows.clear();
  if (s.index) s.index.layers = 1;
  if (s.compressed) {  // whose last layer has a window alone (num_nextn_predict_layers of DeepSeek-V4)
    s.layer_windows = {target.window(target.layers - 1)};
    s.compressed.rates = {0};
    s.compressed.chosen_rate = s.hashed_layers = 0;
    s.index = {};
  }
  s.unturned_layers.clear();
  s.other = {};
  s.sharing_layers = s.sharing_ffn = 0;
  s.layer_embedding = s.layer_embedding_rows = s.layer_extras = s.model_extras = 0;
  s.embedding_width = s.hidden;
  s.position_rows = 0;
  s.embedding_norm = false;
  s.tied_head = true;
  return s;
}

ModelShape dense_layer(const ModelShape& target) {
  ModelShape s = last_layer(target);
  s.ffn = static_cast<std::uint32_t>(widest_mlp(target));
  s.experts = s.experts_per_token = s.expert_ffn = s.shared_expert_ffn = s.expert_width = 0;
  s.shared_expert_gate = false;
  s.index = {};
  s.hashed_layers = 0;
  return s;
}

// Of embedding and hidden state to one of them.
u64 joining_parameters(const ModelShape& s) { return 2 * u64{s.hidden} * s.hidden; }

}  // namespace

u64 Draft::parameters() const {
  if (!shape) return 0;
  if (!of_target) return parameter_count(*shape);
  return layers_parameters(*shape) + norm_vectors_outside_layers(*shape) + (own_head ? head_parameters(*shape) : 0);
}

double Speculation::tokens_a_step() const {
  double sum = 1, chance = 1;
  for (std::uint32_t i = 0; i < tokens; ++i) sum += chance *= acceptance;
  return sum;
}

// E[n] = 1 + the mean of E over what a step leaves to be made; `left` is that of steps in which a draft was refused,
// Σ α^(k − 1) E[n − k] over k = 1 … γ, from n to n.
double Speculation::steps_of(std::uint64_t tokens_made) const {
  std::vector<double> steps(tokens_made + 1, 0.0);
  const auto before = [&](std::uint64_t n, std::uint64_t k) { return n > k ? steps[n - k] : 0.0; };
  const double all = std::pow(acceptance, tokens);
  double left = 0;
  for (std::uint64_t n = 1; n <= tokens_made; ++n) {
    left = before(n, 1) + acceptance * left - all * before(n, tokens + 1);
    steps[n] = 1 + (1 - acceptance) * left + all * before(n, std::uint64_t{tokens} + 1);
  }
  return steps[tokens_made];
}

Draft mtp_draft(const ModelShape& target) {
  ModelShape s = last_layer(target);
  add_parameters(s, joining_parameters(s));
  return {"mtp", std::move(s), std::nullopt, true, false};
}

Draft eagle_draft(const ModelShape& target) {
  ModelShape s = dense_layer(target);
  add_parameters(s, joining_parameters(s));
  return {"eagle", std::move(s), plain_format(DType::kBF16), true, false};
}

Draft eagle3_draft(const ModelShape& target) {
  ModelShape s = dense_layer(target);
  const u64 q = s.latent() ? u64{s.heads} * (s.latent_nope_dim + s.latent_rope_dim) : u64{s.heads} * s.head_dim;
  add_parameters(s, s.hidden * (q + u64{s.kv_heads} * s.row_width()));
  s.vocab = std::min(s.vocab, kEagle3Vocab);
  s.tied_head = false;
  return {"eagle3", std::move(s), plain_format(DType::kBF16), true, true};
}

Draft model_draft(const ModelShape& model, const std::string& name) {
  return {name, model, plain_format(model.weight_type), false, true};
}

Draft free_draft(const std::string& name) { return {name, std::nullopt, std::nullopt, false, false}; }

}  // namespace kvroof
