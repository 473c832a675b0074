// What the families beyond LLaMA add to the traffic of a call, counted by hand.
#include <cmath>
#include <vector>

#include "sim/traffic/summary.hpp"
#include "sim/traffic/traffic.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

using synthetic::small_llama;

constexpr TrafficTypes kF32 = {DType::kF32, DType::kF32};

StepTraffic one_token(const ModelShape& s, std::optional<std::uint64_t> experts = {}) {
  StepWork work{1, 1, s.kv_heads, {}};
  work.rows.attended = 5;
  work.rows.written = 1;
  work.experts = experts;
  return step_traffic(s, kF32, work);
}

// What a change of the shape adds to one token, in elements.
std::uint64_t added(const ModelShape& s, Cause cause) {
  return (one_token(s).bytes[cause] - one_token(small_llama()).bytes[cause]) / 4;
}

// Two layers, the second of 4 experts of 6, of which a token takes 2, and shared experts of 3 with a gate.
ModelShape small_experts() {
  ModelShape s = small_llama();
  s.layers = 2;
  s.dense_layers = 1;
  s.experts = 4;
  s.experts_per_token = 2;
  s.expert_ffn = 6;
  s.shared_expert_ffn = 3;
  s.shared_expert_gate = true;
  return s;
}

// Latent rows of 4 + 2 elements; 2 heads with queries of 3 + 2 and outputs of 5; q through 7.
ModelShape small_latent() {
  ModelShape s = small_llama();
  s.latent_rank = 4;
  s.latent_rope_dim = 2;
  s.latent_nope_dim = 3;
  s.latent_v_dim = 5;
  s.latent_q_rank = 7;
  s.head_dim = 6;
  s.v_head_dim = 4;
  return s;
}

}  // namespace

TEST_CASE("norms of q and k are read once a call and pass q and k of each token") {
  ModelShape s = small_llama();
  s.qk_norm = QkNorm::kHead;
  CHECK(added(s, Cause::kWeights) == 2 + 2);
  CHECK(added(s, Cause::kActivations) == 2 * (4 + 2));
  for (const QkNorm norm : {QkNorm::kEachHead, QkNorm::kWhole}) {
    s.qk_norm = norm;
    CHECK(added(s, Cause::kWeights) == 4 + 2);
    CHECK(added(s, Cause::kActivations) == 2 * (4 + 2));
  }
}

TEST_CASE("a norm more or less a layer, and one after the embedding, pass the hidden state once more or less") {
  ModelShape s = small_llama();
  s.norms_per_layer = 4;
  CHECK(added(s, Cause::kWeights) == 2 * 4);
  CHECK(added(s, Cause::kActivations) == 2 * 8);
  s.norms_per_layer = 2;
  s.embedding_norm = true;
  CHECK(added(s, Cause::kWeights) == 4);
  CHECK(added(s, Cause::kActivations) == 8);
}

TEST_CASE("an embedding narrower than the hidden state is projected twice, the second time for logits alone") {
  ModelShape s = small_llama();
  s.embedding_width = 3;
  // Two projections of 12; the embedding row and the head are narrower.
  CHECK(one_token(s).bytes[Cause::kWeights] / 4 == 128 + 4 + 2 * 12 + 3 + 30);
  // Embedding 3, in 3 + 4; out 4 + 3, head 3 + 10 instead of 4 + 10.
  CHECK(one_token(s).bytes[Cause::kActivations] / 4 ==
        one_token(small_llama()).bytes[Cause::kActivations] / 4 + (3 - 4) + 7 + 7 + (13 - 14));
  const StepTraffic silent = step_traffic(s, kF32, {1, 0, 1, {}});
  CHECK(silent.bytes[Cause::kWeights] / 4 == 128 + 12 + 3);
  CHECK(one_token(s)[KernelFamily::kLinear].value == 2 * (16 + 8 + 8 + 16 + 72 + 12 + 12 + 30));
}

TEST_CASE("a token reads the router, the experts that it chose, and the shared ones, all weights stay in memory") {
  const ModelShape s = small_experts();
  // Of the second layer: router 16, two experts of 72, shared 36 and its gate 4.
  const std::uint64_t attention_and_norms = 16 + 8 + 8 + 16 + 8;
  const std::uint64_t second = attention_and_norms + 16 + 2 * 72 + 36 + 4;
  CHECK(one_token(s).bytes[Cause::kWeights] / 4 == 128 + second + 4 + 40 + 4);
  CHECK(one_token(s, 2).bytes == one_token(s).bytes);
  CHECK(one_token(s, 3).bytes[Cause::kWeights] == one_token(s).bytes[Cause::kWeights] + 4 * 72);
  CHECK(weight_bytes(s, DType::kF32).value / 4 == 128 + attention_and_norms + 16 + 4 * 72 + 36 + 4 + 4 + 40 + 40);
  // Router 4 + 4; an expert gate and up 10 each, activation 18, down 10, joined 12; shared 7 + 7 + 9 + 7, gate 5, 12.
  ModelShape dense = small_llama();
  dense.layers = 2;
  CHECK(one_token(s).bytes[Cause::kActivations] / 4 ==
        one_token(dense).bytes[Cause::kActivations] / 4 - 48 + 8 + 2 * (48 + 12) + 30 + 5 + 12);
  CHECK(one_token(s)[KernelFamily::kLinear].value ==
        one_token(dense)[KernelFamily::kLinear].value + 2 * (-72 + 16 + 2 * 72 + 36 + 4));
}

TEST_CASE("the experts that a batch reads are those of one token at least and all of them at most") {
  const ModelShape s = small_experts();
  CHECK(expected_experts(s, 0) == 0);
  CHECK(expected_experts(s, 1) == 2);
  CHECK(expected_experts(s, 2) > 2);
  CHECK(expected_experts(s, 2) < 4 * (1 - 0.25));  // as many as tokens read that choose evenly
  CHECK(expected_experts(s, 1000) == Approx(4));
  CHECK(expected_experts(small_llama(), 5) == 0);
  // Two and three tokens miss an expert with (1 − p/16)² and ³; p is 8^u · ln 8 / 7 for u from 0 to 1, whose second and
  // third moments are 9 ln 8 / 14 and 73 ln² 8 / 147.
  ModelShape many = s;
  many.experts = 128;
  many.experts_per_token = 8;
  const double log = std::log(8.0), second = 9 * log / 14, third = 73 * log * log / 147, q = 1 / 16.0;
  CHECK(expected_experts(many, 2) == Approx(128 * (2 * q - second * q * q)).epsilon(1e-3));
  CHECK(expected_experts(many, 3) == Approx(128 * (3 * q - 3 * second * q * q + third * q * q * q)).epsilon(1e-3));
  const StepTraffic all = step_traffic(s, kF32, {1000, 0, 1, {}});
  StepWork none{1000, 0, 1, {}};
  none.experts = 0;
  CHECK(all.bytes[Cause::kWeights] == step_traffic(s, kF32, none).bytes[Cause::kWeights] + 4 * 4 * 72);
}

TEST_CASE("latent attention reads its projections, absorbs those of k and v, and caches one row a token") {
  const ModelShape s = small_latent();
  // q down 28, norm 7, q up 70; kv down 24, norm 4; k up 24, v up 40; o 40; MLP 72, two norms.
  CHECK(one_token(s).bytes[Cause::kWeights] / 4 == 28 + 7 + 70 + 24 + 4 + 24 + 40 + 40 + 72 + 8 + 4 + 40 + 4);
  CHECK(one_token(s).bytes[Cause::kKvRead] == 5 * 6 * 4);
  CHECK(one_token(s).bytes[Cause::kKvWrite] == 6 * 4);
  // q down 11, norm 14, q up 17; kv down 10, norm 8; rotary of 10 and 6; k up 6 + 8, v up 8 + 10; o 14; attention 20.
  const std::uint64_t attention = 11 + 14 + 17 + 10 + 8 + 2 * 16 + 14 + 18 + 14 + 20;
  const std::uint64_t plain = 8 + 6 + 6 + 8 + 12 + 8;
  CHECK(one_token(s).bytes[Cause::kActivations] / 4 ==
        one_token(small_llama()).bytes[Cause::kActivations] / 4 - plain + attention);
  CHECK(one_token(s)[KernelFamily::kLinear].value == 2 * (28 + 70 + 24 + 24 + 40 + 40 + 72 + 40));
  CHECK(one_token(s)[KernelFamily::kAttention].value == 2 * 5 * 2 * (6 + 4));
  ModelShape direct = s;
  direct.latent_q_rank = 0;
  CHECK(one_token(direct).bytes[Cause::kWeights] / 4 == one_token(s).bytes[Cause::kWeights] / 4 - 28 - 7 - 70 + 40);
}

TEST_CASE("a prompt under a window reads what each block of queries sees") {
  for (const std::uint32_t prompt : {1U, 2U, 9U, 10U, 64U, 100U}) {
    for (const std::uint32_t block : {1U, 3U, 10U, 64U, 200U}) {
      for (const std::uint32_t window : {1U, 2U, 3U, 8U, 9U, 10U, 63U, 100U, 1000U}) {
        std::uint64_t rows = 0;
        for (std::uint32_t first = 0; first < prompt; first += block) {
          const std::uint32_t seen = first >= window ? first + 1 - window : 0;
          rows += std::min(first + block, prompt) - seen;
        }
        INFO("prompt " << prompt << " block " << block << " window " << window);
        CHECK(prefill_rows_read(prompt, block, window) == rows);
      }
    }
  }
  ModelShape s = small_llama();
  s.layers = 2;
  s.layer_windows = {0, 4};
  const Residency r = synthetic::windowed({10, 1}, {0, 4}, 1);
  CHECK(residency_traffic(s, kF32, r, 0, 4).bytes[Cause::kKvRead] == (22 + 4 + (8 - 1) + (10 - 5)) * 4 * 4);
  CHECK(residency_traffic(s, kF32, r, 0).bytes[Cause::kKvRead] == (55 + 10 + 6 * 4) * 4 * 4);
}

TEST_CASE("a layer with a window needs room for its window, also when nothing was decoded") {
  const Residency r = synthetic::windowed({100, 20}, {0, 30}, 2);
  CHECK(summarise(r).peak_rows == 2 * (120 + 30));
  CHECK(summarise(r).attended_rows() == Approx(2 * (110.5 + 30)));
  const Residency prompt = synthetic::windowed({100, 0}, {0, 30}, 2);
  CHECK(summarise(prompt).attended_rows() == 2 * (101 + 30));
}

TEST_CASE("full attention stays full attention on a model with windows, and comes back from one") {
  const Room all = [](std::uint32_t prompt, std::uint32_t step) { return std::uint64_t{prompt} + step; };
  const auto shape = [](std::vector<std::uint32_t> windows) {
    ModelShape s;
    s.layers = static_cast<std::uint32_t>(windows.size());
    s.heads = s.kv_heads = 2;
    s.head_dim = s.v_head_dim = 8;
    s.layer_windows = std::move(windows);
    return s;
  };
  for (const auto& from : {std::vector<std::uint32_t>{0, 0, 0}, {16, 0, 16}, {16, 16, 16}}) {
    for (const auto& to : {std::vector<std::uint32_t>{0, 0}, {50, 0, 50, 0}, {1024, 1024, 0}, {7}}) {
      for (const synthetic::Lengths n : {synthetic::Lengths{40, 24}, {2000, 300}, {9, 60}}) {
        const Residency recorded = synthetic::windowed({40, 24}, from, 2);
        const Residency projected = project(recorded, shape(from), shape(to), {n.prompt, n.output}, all);
        const Residency expected = synthetic::windowed(n, to, 2);
        REQUIRE(projected.cells.size() == expected.cells.size());
        for (std::uint32_t step = 0; step <= n.output; ++step) {
          for (std::uint32_t layer = 0; layer < to.size(); ++layer) {
            INFO("step " << step << " layer " << layer);
            REQUIRE(projected.at(step, layer).attended == expected.at(step, layer).attended);
            REQUIRE(projected.at(step, layer).resident == expected.at(step, layer).resident);
            REQUIRE(projected.at(step, layer).allocated == expected.at(step, layer).allocated);
          }
        }
      }
    }
  }
}

}  // namespace kvroof
