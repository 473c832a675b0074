// Layers that hold a state, on the CPU, against what they mean in double precision.
#include "kernels/cpu/state_layer.hpp"

#include "tests/support/state_reference.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::test;
using namespace kvroof::twin;

namespace {

constexpr std::uint32_t kHidden = 16, kHeads = 4, kKeyHeads = 2, kKeyDim = 6, kValueDim = 10, kWidth = 4;
constexpr std::uint32_t kKeys = kKeyHeads * kKeyDim, kValues = kHeads * kValueDim, kChannels = 2 * kKeys + kValues;

// With what both rules have; rows of `in` are q, k, v and gate, or C, B, x, gate and steps.
Model matrix_model(StateKind kind, std::size_t rows_of_in, std::size_t normed) {
  Model model;
  ModelShape& shape = model.config.shape;
  shape.layers = 1;
  shape.hidden = kHidden;
  shape.state = {kind, 1, kHeads, kKeyHeads, kKeyDim, kValueDim, kWidth, DType::kF32};
  StateWeights& w = model.weights.layers.emplace_back().state;
  w.in.matrix = random_weight(DType::kF32, rows_of_in, kHidden, 1);
  w.taps = random_weight(DType::kF32, kChannels, kWidth, 3);
  w.decay = random_weight(DType::kF32, 1, kHeads, 4);
  w.rate_bias = random_weight(DType::kF32, 1, kHeads, 5);
  w.norm.scale = random_weight(DType::kF32, 1, normed, 6);
  w.out.matrix = random_weight(DType::kF32, kHidden, kValues, 7);
  return model;
}

Model delta_model() {
  Model model = matrix_model(StateKind::kGatedDelta, 2 * kKeys + 2 * kValues, kValueDim);
  model.weights.layers[0].state.rates.matrix = random_weight(DType::kF32, 2 * kHeads, kHidden, 2);
  return model;
}

// B and C are of two groups.
Model mamba_model() {
  Model model = matrix_model(StateKind::kMamba2, 2 * kKeys + 2 * kValues + kHeads, kValues);
  StateWeights& w = model.weights.layers[0].state;
  w.taps_bias = random_weight(DType::kF32, 1, kChannels, 2);
  w.skip = random_weight(DType::kF32, 1, kHeads, 8);
  return model;
}

Model short_model() {
  Model model;
  ModelShape& shape = model.config.shape;
  shape.layers = 1;
  shape.hidden = kHidden;
  shape.state = {.kind = StateKind::kShortConvolution, .layers = 1, .convolution = 3};
  StateWeights& w = model.weights.layers.emplace_back().state;
  w.in.matrix = random_weight(DType::kF32, 3 * kHidden, kHidden, 1);
  w.taps = random_weight(DType::kF32, kHidden, 3, 2);
  w.out.matrix = random_weight(DType::kF32, kHidden, kHidden, 3);
  return model;
}

// [rows, tokens] of [tokens, hidden].
std::vector<Numbers> product(const Weight& w, std::span<const float> in) {
  const std::size_t tokens = in.size() / w.cols;
  std::vector<Numbers> out(w.rows, Numbers(tokens));
  for (std::size_t r = 0; r < w.rows; ++r) {
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t c = 0; c < w.cols; ++c) {
        out[r][t] += at(w.view(), r, c) * static_cast<double>(in[t * w.cols + c]);
      }
    }
  }
  return out;
}

Numbers taps_of(const Weight& w, std::size_t channel) {
  Numbers taps(w.cols);
  for (std::size_t j = 0; j < w.cols; ++j) taps[j] = at(w.view(), channel, j);
  return taps;
}

// [tokens, hidden] of heads [value][token].
Numbers output(const Weight& w, const std::vector<Numbers>& read, std::size_t tokens) {
  Numbers out(tokens * w.rows);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t r = 0; r < w.rows; ++r) {
      for (std::size_t c = 0; c < w.cols; ++c) out[t * w.rows + r] += at(w.view(), r, c) * read[c][t];
    }
  }
  return out;
}

Numbers expected_of_delta(const StateWeights& w, std::span<const float> in) {
  const std::size_t tokens = in.size() / kHidden;
  const std::vector<Numbers> x = product(w.in.matrix, in), rates = product(w.rates.matrix, in);
  std::vector<Numbers> convolved(kChannels), read(kValues, Numbers(tokens));
  for (std::size_t c = 0; c < kChannels; ++c) {
    convolved[c] = convolution_of(x[c], taps_of(w.taps, c));
    for (double& y : convolved[c]) y *= sigmoid_of(y);
  }
  for (std::size_t h = 0; h < kHeads; ++h) {
    DeltaHead head(kKeyDim, kValueDim);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto rows = [&](std::size_t first, std::size_t count) {
        Numbers out;
        for (std::size_t c = first; c < first + count; ++c) out.push_back(convolved[c][t]);
        return out;
      };
      const std::size_t key = h / 2 * kKeyDim;
      const double alpha = kept_of(at(w.decay.view(), 0, h), rates[kHeads + h][t], at(w.rate_bias.view(), 0, h));
      const Numbers o = head.pass(rows(key, kKeyDim), rows(kKeys + key, kKeyDim),
                                  rows(2 * kKeys + h * kValueDim, kValueDim), alpha, sigmoid_of(rates[h][t]));
      double squares = 0;
      for (const double value : o) squares += value * value;
      for (std::size_t i = 0; i < kValueDim; ++i) {
        const double gate = x[kChannels + h * kValueDim + i][t];
        read[h * kValueDim + i][t] = o[i] / std::sqrt(squares / kValueDim + 1e-5) * at(w.norm.scale.view(), 0, i) *
                                     gate * sigmoid_of(gate);
      }
    }
  }
  return output(w.out.matrix, read, tokens);
}

Numbers elements_of(const Weight& w, std::size_t first, std::size_t count) {
  Numbers out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = at(w.view(), 0, first + i);
  return out;
}

Numbers expected_of_mamba(const StateWeights& w, std::span<const float> in) {
  const std::size_t tokens = in.size() / kHidden;
  const std::vector<Numbers> x = product(w.in.matrix, in);
  std::vector<Numbers> convolved(kChannels), read(kValues, Numbers(tokens));
  for (std::size_t c = 0; c < kChannels; ++c) {
    convolved[c] = convolution_of(x[c], taps_of(w.taps, c));
    for (double& y : convolved[c]) {
      y += at(w.taps_bias.view(), 0, c);
      y *= sigmoid_of(y);
    }
  }
  std::vector<MambaHead> heads(kHeads, MambaHead(kKeyDim, kValueDim));
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto column = [&](const std::vector<Numbers>& of, std::size_t first, std::size_t count) {
      Numbers out;
      for (std::size_t c = first; c < first + count; ++c) out.push_back(of[c][t]);
      return out;
    };
    Numbers made;
    for (std::size_t h = 0; h < kHeads; ++h) {
      const std::size_t group = h / 2 * kKeyDim;
      const double step = step_of(x[kChannels + kValues + h][t], at(w.rate_bias.view(), 0, h));
      const Numbers y = heads[h].pass(column(convolved, group, kKeyDim), column(convolved, kKeys + group, kKeyDim),
                                      column(convolved, 2 * kKeys + h * kValueDim, kValueDim), step,
                                      -std::exp(at(w.decay.view(), 0, h)), at(w.skip.view(), 0, h));
      made.insert(made.end(), y.begin(), y.end());
    }
    constexpr std::size_t kGroup = kValues / kKeyHeads;
    for (std::size_t first = 0; first < kValues; first += kGroup) {
      const auto begin = made.begin() + static_cast<std::ptrdiff_t>(first);
      const Numbers normed = gated_norm_of({begin, begin + kGroup}, column(x, kChannels + first, kGroup),
                                           elements_of(w.norm.scale, first, kGroup), 1e-5);
      for (std::size_t i = 0; i < kGroup; ++i) read[first + i][t] = normed[i];
    }
  }
  return output(w.out.matrix, read, tokens);
}

Numbers expected_of_short(const StateWeights& w, std::span<const float> in) {
  const std::size_t tokens = in.size() / kHidden;
  const std::vector<Numbers> x = product(w.in.matrix, in);
  std::vector<Numbers> made(kHidden);
  for (std::size_t c = 0; c < kHidden; ++c) {
    Numbers gated(tokens);
    for (std::size_t t = 0; t < tokens; ++t) gated[t] = x[c][t] * x[2 * kHidden + c][t];
    made[c] = convolution_of(gated, taps_of(w.taps, c));
    for (std::size_t t = 0; t < tokens; ++t) made[c][t] *= x[kHidden + c][t];
  }
  return output(w.out.matrix, made, tokens);
}

// The tokens in passes of so many each; the last takes what is left.
std::vector<float> run_in_passes(const Model& model, Ops& ops, std::span<const float> in, std::size_t count,
                                 HeldState& held) {
  std::vector<float> out;
  const std::size_t tokens = in.size() / kHidden;
  StateLayer layer(model, ops);
  for (std::size_t first = 0; first < tokens; first += count) {
    const std::size_t n = std::min(count, tokens - first);
    std::vector<float> made = poisoned(n * kHidden);
    const StatePart part{&held, 0, n};
    layer.run(model.weights.layers[0].state, in.subspan(first * kHidden, n * kHidden), {&part, 1}, made);
    out.insert(out.end(), made.begin(), made.end());
  }
  return out;
}

}  // namespace

TEST_CASE("a layer with a state computes its paper's equations, in one pass or in a pass of each token") {
  constexpr std::size_t kTokens = 150;  // more than two pieces
  const std::vector<float> in = numbers(kTokens * kHidden, 20);
  const struct {
    Model model;
    Numbers (*expected)(const StateWeights& w, std::span<const float> in);
  } cases[] = {{delta_model(), expected_of_delta}, {mamba_model(), expected_of_mamba},
               {short_model(), expected_of_short}};
  for (const auto& [model, expected_of] : cases) {
    const Numbers expected = expected_of(model.weights.layers[0].state, in);
    const int kind = static_cast<int>(model.config.shape.state.kind);
    for (const unsigned threads : {0U, 1U, 3U}) {
      const std::unique_ptr<Ops> ops = threads == 0 ? std::make_unique<ReferenceOps>() : make_fast_ops(threads);
      for (const std::size_t count : {kTokens, std::size_t{70}, std::size_t{1}}) {
        CAPTURE(kind, threads, count);
        HeldState held;
        const std::vector<float> out = run_in_passes(model, *ops, in, count, held);
        REQUIRE(out.size() == expected.size());
        double worst = 0;
        for (std::size_t i = 0; i < out.size(); ++i) {
          worst = std::max(worst, std::abs(static_cast<double>(out[i]) - expected[i]));
        }
        CHECK(worst <= 1e-4);
      }
    }
  }
}

TEST_CASE("sequences of a batch keep their states apart, and threads change no bit of them") {
  const Model model = delta_model();
  const StateWeights& w = model.weights.layers[0].state;
  const std::vector<float> in = numbers(5 * kHidden, 21);
  std::vector<float> together[2];
  for (const unsigned threads : {1U, 3U}) {
    const std::unique_ptr<Ops> ops = make_fast_ops(threads);
    StateLayer layer(model, *ops);
    HeldState held[2];
    std::vector<float>& out = together[threads / 3];
    out = poisoned(5 * kHidden);
    const StatePart parts[] = {{&held[0], 0, 2}, {&held[1], 2, 3}};
    layer.run(w, in, parts, out);
    HeldState alone;
    const std::vector<float> second = run_in_passes(model, *ops, std::span(in).subspan(2 * kHidden), 3, alone);
    CHECK(std::equal(second.begin(), second.end(), out.begin() + 2 * kHidden));
    CHECK(alone.matrices == held[1].matrices);
    CHECK(alone.rows == held[1].rows);
  }
  CHECK(together[0] == together[1]);
}

TEST_CASE("a state is written once in each 64 tokens, and read where a token came before") {
  const Model model = delta_model();
  ReferenceOps ops;
  HeldState held;
  run_in_passes(model, ops, numbers(65 * kHidden, 22), 65, held);
  const std::uint64_t prompt = ops.counters()[Cause::kActivations];
  ops.counters() = {};
  run_in_passes(model, ops, numbers(kHidden, 23), 1, held);
  const std::uint64_t step = ops.counters()[Cause::kActivations];
  // 65 tokens: two writes and a read; one token: a write and a read.
  const std::uint64_t state = 4 * (std::uint64_t{kHeads} * kKeyDim * kValueDim + 3 * kChannels);
  CHECK(prompt - 3 * state == 65 * (step - 2 * state));
}
