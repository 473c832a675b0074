// Layers of attention that are not all alike: other heads, rows of an earlier layer, embeddings and states beside them.
#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

using synthetic::small_llama;

constexpr TrafficTypes kF32 = {DType::kF32, DType::kF32};

ModelShape of_layers(std::uint32_t layers) {
  ModelShape s = small_llama();
  s.layers = layers;
  return s;
}

// Heads twice as wide, of which k and v have as many as q.
OtherAttention wide(std::vector<std::uint32_t> layers) { return {std::move(layers), 2, 2, 4, 4}; }

StepTraffic mean_step(const ModelShape& s, std::uint64_t batch = 1, StepTokens tokens = {}) {
  return mean_decode_traffic(s, kF32, full_attention_summary(s, 10, 2), batch, tokens);
}

std::uint64_t weights_of(const ModelShape& s) { return mean_step(s).bytes[Cause::kWeights] / 4; }

}  // namespace

TEST_CASE("a layer of other heads reads, holds and multiplies by its own") {
  ModelShape s = of_layers(3);
  s.other = wide({1});
  REQUIRE(shape_problem(s).empty());
  // A token has 1 · (2 + 2) elements in two layers and 2 · (4 + 4), four rows, in one.
  CHECK(kv_bytes_per_token(s, DType::kF32).value == 4 * (4 + 16 + 4));
  const ResidencySummary sum = full_attention_summary(s, 10, 2);
  CHECK(sum.decode.attended == (11 + 12) * (1 + 4 + 1));
  CHECK(sum.decode.attended_other == (11 + 12) * 4);
  CHECK(sum.prefill.written == 10 * (1 + 4 + 1));
  CHECK(sum.peak_rows == 12 * (1 + 4 + 1));
  CHECK(sum.layer_prompt_rows == 4 * 10);
  const StepTraffic step = mean_step(s);
  CHECK(2 * step.bytes[Cause::kKvRead] == (11 + 12) * 4 * (4 + 16 + 4));
  CHECK(step.bytes[Cause::kKvWrite] == 4 * (4 + 16 + 4));
  // Two query heads everywhere: k and v of 2 elements each, or of 4.
  CHECK(step[KernelFamily::kAttention].value == 2 * 11.5 * 2 * (2 * (2 + 2) + (4 + 4)));
}

TEST_CASE("a model all of whose layers are of other heads is one of these heads") {
  ModelShape plain = of_layers(2);
  plain.kv_heads = 2;
  plain.head_dim = plain.v_head_dim = 4;
  plain.qk_norm = QkNorm::kHead;
  ModelShape s = of_layers(2);
  s.qk_norm = QkNorm::kHead;
  s.other = wide({0, 1});
  CHECK(parameter_count(s) == parameter_count(plain));
  CHECK(active_parameters(s) == active_parameters(plain));
  CHECK(kv_bytes(s, DType::kBF16, 100) == kv_bytes(plain, DType::kBF16, 100));
  for (const StepTokens tokens : {StepTokens{}, StepTokens{3, 2.5}}) {
    const StepTraffic a = mean_step(s, 3, tokens), b = mean_step(plain, 3, tokens);
    CHECK(a.bytes == b.bytes);
    CHECK(a[KernelFamily::kAttention].value == Approx(b[KernelFamily::kAttention].value));
    CHECK(a[KernelFamily::kLinear].value == b[KernelFamily::kLinear].value);
  }
}

TEST_CASE("layers without rows of their own read those of earlier ones, and project and hold none") {
  const ModelShape plain = of_layers(4);
  ModelShape s = plain;
  s.layer_windows = {8, 0, 8, 0};
  ModelShape shared = s;
  shared.sharing_layers = 2;
  CHECK(parameter_count(s) - parameter_count(shared) == 2 * (8 + 8));  // of k and of v
  CHECK(weights_of(s) - weights_of(shared) == 2 * (8 + 8));
  CHECK(2 * kv_bytes(shared, DType::kBF16, 30).value == kv_bytes(s, DType::kBF16, 30).value);
  CHECK(2 * kv_bytes_per_token(shared, DType::kBF16).value == kv_bytes_per_token(s, DType::kBF16).value);
  const ResidencySummary all = full_attention_summary(s, 10, 2), some = full_attention_summary(shared, 10, 2);
  CHECK(some.decode.attended == all.decode.attended);
  CHECK(some.prefill.attended == all.prefill.attended);
  CHECK(2 * some.decode.written == all.decode.written);
  CHECK(2 * some.decode.resident == all.decode.resident);
  CHECK(2 * some.peak_rows == all.peak_rows);
  CHECK(2 * some.peak_paged_rows == all.peak_paged_rows);
  shared.sharing_ffn = 12;
  CHECK(weights_of(s) - weights_of(shared) + 2 * 72 == 2 * (8 + 8));  // twice the MLP of 72
}

TEST_CASE("full attention is projected on layers that are not alike as they have it") {
  const Room all = [](std::uint32_t prompt, std::uint32_t step) { return std::uint64_t{prompt} + step; };
  ModelShape from = of_layers(2);
  from.kv_heads = from.heads = 4;
  ModelShape to = of_layers(5);
  to.layer_windows = {8, 8, 0, 8, 0};
  to.other = wide({2, 4});
  to.sharing_layers = 2;
  const Residency recorded = synthetic::full({10, 6}, 2, 4);
  for (const std::uint32_t output : {6U, 1U, 0U}) {
    const Residency projected = project(recorded, from, to, {30, output}, all);
    const ResidencySummary found = summarise(projected), expected = full_attention_summary(to, 30, output);
    INFO(output);
    CHECK(found.decode.attended == expected.decode.attended);
    CHECK(found.decode.attended_other == expected.decode.attended_other);
    CHECK(found.decode.written == expected.decode.written);
    CHECK(found.prefill.written == expected.prefill.written);
    CHECK(found.prefill.attended == expected.prefill.attended);
    CHECK(found.peak_rows == expected.peak_rows);
    SummarySum by_layer;
    for (std::uint32_t layer = 0; layer < to.layers; ++layer) {
      by_layer.add(summarise(project_layer(recorded, from, to, {30, output}, all, layer)));
    }
    by_layer.end_sequence(30, output, to.layers);
    CHECK(by_layer.mean().decode == found.decode);
    CHECK(by_layer.mean().prefill == found.prefill);
  }
}

TEST_CASE("an embedding of each layer is a row of its table, and three matrices with a norm in the layer") {
  const ModelShape plain = of_layers(3);
  ModelShape s = plain;
  s.layer_embedding = 2;
  s.layer_embedding_rows = 7;
  // Gate, way back and the way from the token's embedding: 4 · 2 each; a norm of 4, and one of 2 for all.
  const std::uint64_t read = 3 * (3 * 8 + 4) + 2;
  CHECK(parameter_count(s) - parameter_count(plain) == 7 * 3 * 2 + read);
  CHECK(active_parameters(s) - active_parameters(plain) == 3 * 2 + read);
  CHECK(weights_of(s) - weights_of(plain) == 3 * 2 + read);
  CHECK(mean_step(s)[KernelFamily::kLinear].value - mean_step(plain)[KernelFamily::kLinear].value == 2 * 3 * 3 * 8);
}

TEST_CASE("what no size describes is read and multiplied once a token, in each layer or outside of them") {
  const ModelShape plain = of_layers(3);
  ModelShape s = plain;
  s.layer_extras = 5;
  s.model_extras = 11;
  s.head_gate = true;  // two heads: 4 · 2
  CHECK(parameter_count(s) - parameter_count(plain) == 3 * (5 + 8) + 11);
  CHECK(weights_of(s) - weights_of(plain) == 3 * (5 + 8) + 11);
  CHECK(mean_step(s)[KernelFamily::kLinear].value - mean_step(plain)[KernelFamily::kLinear].value ==
        2 * (3 * (5 + 8) + 11));
}

TEST_CASE("states beside attention are in its layers, and have no norm, MLP and residual of their own") {
  const ModelShape plain = of_layers(3);
  ModelShape s = plain;
  s.state = {StateKind::kMamba2, 3, 2, 1, 3, 5, 4};
  s.state.output_norm = false;
  s.state.beside_attention = true;
  REQUIRE(shape_problem(s).empty());
  CHECK(s.mixers() == 3);
  CHECK(s.blocks() == 3);
  CHECK(parameter_count(s) - parameter_count(plain) == 3 * state_parameters(s.state, s.hidden));
  // In: gate and x of 10, B and C of 3, a step for each head; a convolution of 4 with a bias over 16; out.
  CHECK(state_parameters(s.state, 4) == 4 * (20 + 6 + 2) + 16 * 5 + 3 * 2 + 10 * 4);
}

}  // namespace kvroof
