// Kernels of layers that hold a state, against what they mean in double precision.
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/state_arguments.hpp"
#include "kernels/engine/weight.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/state_reference.hpp"

using namespace kvroof;
using namespace kvroof::cuda;
using namespace kvroof::test;

namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

std::vector<float> poisoned(std::size_t count) {
  return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}

Weight weights_of(const std::vector<float>& x, std::size_t rows) {
  return make_weight(DType::kF32, std::as_bytes(std::span(x)).data(), rows, x.size() / rows, DType::kBF16);
}

double element_of(const Weight& w, std::size_t i) {
  float out = 0;
  convert_to_float(w.type, w.data.data() + i * size_of(w.type), {&out, 1});
  return static_cast<double>(out);
}

void check_close(const std::vector<float>& got, const Numbers& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE_THAT(static_cast<double>(got[i]), Catch::Matchers::WithinAbs(expected[i], tolerance));
  }
}

// A prompt of `prompt` tokens by one launch, and then tokens by a launch each, of sequence 1 of a step of two.
template <class Arguments, class Run>
std::vector<float> in_launches(Arguments a, std::uint32_t prompt, std::uint32_t tokens, std::size_t in_row,
                               std::size_t out_row, const float* Arguments::*in, std::vector<float>& state,
                               const Run& run) {
  std::vector<float> out = poisoned(tokens * out_row), other(state.size(), 3.0F);
  float* states[2] = {state.data(), nullptr};
  const float* x = a.*in;
  a.states.sequences = states;
  a.states.prompt = true;
  a.tokens = prompt;
  a.out = out.data();
  run(a);
  states[0] = other.data();
  states[1] = state.data();
  a.states.prompt = false;
  a.tokens = 2;
  for (std::uint32_t t = prompt; t < tokens; ++t) {
    std::vector<float> two(x + std::size_t{t} * in_row, x + std::size_t{t + 1} * in_row), made = poisoned(2 * out_row);
    two.insert(two.begin(), in_row, 0.5F);
    a.*in = two.data();
    a.out = made.data();
    run(a);
    std::copy_n(made.begin() + static_cast<std::ptrdiff_t>(out_row), out_row,
                out.begin() + static_cast<std::ptrdiff_t>(t * out_row));
  }
  return out;
}

}  // namespace

TEST_CASE("a convolution on the device sees a token and those before it, of a prompt and of steps") {
  constexpr std::uint32_t kTokens = 9;
  for (const bool is_short : {false, true}) {
    for (const std::uint32_t width : {1U, 3U, 4U}) {
      for (const std::uint32_t prompt : {1U, 2U, 7U}) {
        CAPTURE(is_short, width, prompt);
        const std::uint32_t channels = 264, row = is_short ? 3 * channels : channels + 8;
        const std::vector<float> x = random_floats(std::size_t{kTokens} * row, 1);
        const Weight taps = weights_of(random_floats(channels * width, 2), channels);
        const bool biased = !is_short && width == 4;
        const Weight bias = weights_of(biased ? random_floats(channels, 11) : std::vector<float>(channels), 1);
        ConvolveArguments a;
        a.x = x.data();
        a.x_row = row;
        a.channels = channels;
        a.width = width;
        a.taps = taps.data.data();
        a.bias = biased ? bias.data.data() : nullptr;
        a.is_short = is_short;
        a.states.at = 5;
        std::vector<float> state = poisoned(5 + (width - 1) * channels);
        const std::vector<float> out =
            in_launches(a, prompt, kTokens, row, channels, &ConvolveArguments::x, state,
                        [](const ConvolveArguments& c) {
                          Stream stream;
                          run_convolve(stream, Stored::kBF16, c);
                        });
        Numbers expected(kTokens * channels);
        for (std::size_t c = 0; c < channels; ++c) {
          Numbers in(kTokens), of_channel(width);
          for (std::size_t t = 0; t < kTokens; ++t) {
            const float* at = x.data() + t * row + c;
            in[t] = static_cast<double>(at[0]) * (is_short ? static_cast<double>(at[2 * channels]) : 1.0);
          }
          for (std::size_t j = 0; j < width; ++j) of_channel[j] = element_of(taps, c * width + j);
          Numbers sums = convolution_of(in, of_channel);
          for (double& sum : sums) sum += element_of(bias, c);
          for (std::size_t t = 0; t < kTokens; ++t) {
            const double gate = static_cast<double>(x[t * row + channels + (is_short ? c : 0)]);
            expected[t * channels + c] = is_short ? gate * sums[t] : sums[t] * sigmoid_of(sums[t]);
          }
        }
        check_close(out, expected, 1e-4);
      }
    }
  }
}

TEST_CASE("states on the device change by their papers' rules, of a prompt and of steps, whatever the sizes of heads") {
  constexpr std::uint32_t kTokens = 7;
  struct Sizes {
    std::uint32_t heads, key_heads, key_dim, value_dim;
  };
  for (const auto& [heads, key_heads, key_dim, value_dim] :
       {Sizes{2, 1, 8, 24}, Sizes{4, 2, 32, 40}, Sizes{2, 2, 40, 130}, Sizes{3, 1, 96, 8}, Sizes{2, 1, 128, 128},
        Sizes{1, 1, 200, 17}, Sizes{2, 2, 256, 64}}) {
    for (const bool delta : {true, false}) {
      for (const std::uint32_t prompt : {1U, 5U}) {
        CAPTURE(heads, key_heads, key_dim, value_dim, delta, prompt);
        const std::uint32_t keys = key_heads * key_dim, row = 2 * keys + heads * value_dim;
        const std::uint32_t rates_row = delta ? 2 * heads : heads + 3;  // of Mamba-2 a part of wider rows
        const std::vector<float> rates = random_floats(std::size_t{kTokens} * rates_row, 4);
        const std::vector<float> decay = random_floats(heads, 5), bias = random_floats(heads, 6);
        const std::vector<float> skip = random_floats(heads, 10);
        const std::vector<float> rows = random_floats(std::size_t{kTokens} * row, 3);
        StateRuleArguments a;
        a.x = rows.data();
        a.rates_row = rates_row;
        a.decay = decay.data();
        a.rate_bias = bias.data();
        a.skip = delta ? nullptr : skip.data();
        a.heads = heads;
        a.key_heads = key_heads;
        a.key_dim = key_dim;
        a.value_dim = value_dim;
        a.states.at = 3;
        std::vector<float> state = poisoned(3 + std::size_t{heads} * key_dim * value_dim);
        std::uint32_t passed = 0;
        const std::vector<float> out =
            in_launches(a, prompt, kTokens, row, std::size_t{heads} * value_dim, &StateRuleArguments::x, state,
                        [&](StateRuleArguments d) {
                          std::vector<float> of_launch(rates.begin() + passed * rates_row, rates.end());
                          if (!d.states.prompt) of_launch.insert(of_launch.begin(), rates_row, 0.25F);
                          d.rates = of_launch.data();
                          Stream stream;
                          run_state_rule(stream, d);
                          passed += d.states.prompt ? d.tokens : 1;
                        });
        Numbers expected(out.size());
        for (std::size_t h = 0; h < heads; ++h) {
          DeltaHead delta_head(key_dim, value_dim);
          MambaHead mamba_head(key_dim, value_dim);
          const auto of_head = [&](const std::vector<float>& x) { return static_cast<double>(x[h]); };
          for (std::size_t t = 0; t < kTokens; ++t) {
            const float* at = rows.data() + t * row;
            const float* q = at + h / (heads / key_heads) * key_dim;
            const float* first = at + 2 * keys + h * value_dim;
            const Numbers query(q, q + key_dim), key(q + keys, q + keys + key_dim), v(first, first + value_dim);
            const auto rate = [&](std::size_t i) { return static_cast<double>(rates[t * rates_row + i]); };
            const Numbers read =
                delta ? delta_head.pass(query, key, v, kept_of(of_head(decay), rate(heads + h), of_head(bias)),
                                        sigmoid_of(rate(h)))
                      : mamba_head.pass(query, key, v, step_of(rate(h), of_head(bias)), -std::exp(of_head(decay)),
                                        of_head(skip));
            std::copy(read.begin(), read.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>((t * heads + h) * value_dim));
          }
          for (std::size_t d = 0; d < key_dim; d += 7) {
            const double held = static_cast<double>(state[3 + (h * key_dim + d) * value_dim + value_dim - 1]);
            const double of_paper = delta ? delta_head.at(value_dim - 1, d) : mamba_head.at(value_dim - 1, d);
            CHECK_THAT(held, Catch::Matchers::WithinAbs(of_paper, 1e-5));
          }
        }
        double largest = 1;
        for (const double value : expected) largest = std::max(largest, std::abs(value));
        check_close(out, expected, 1e-5 * (delta ? 1 : largest));
      }
    }
  }
}

TEST_CASE("a gate on the device multiplies each head, which is normed by itself before where there is a norm") {
  constexpr std::uint32_t kTokens = 3, kHeads = 5;
  for (const std::uint32_t dim : {8U, 40U, 128U}) {
    for (const bool normed : {false, true}) {
      CAPTURE(dim, normed);
      const std::uint32_t gate_row = kHeads * dim + 16;
      std::vector<float> x = random_floats(std::size_t{kTokens} * kHeads * dim, 7, 3);
      const std::vector<float> gate = random_floats(std::size_t{kTokens} * gate_row, 8);
      const Weight scale = weights_of(random_floats(dim, 9), 1);
      Numbers expected(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t first = i / dim * dim, t = i / (kHeads * dim);
        double squares = 0;
        for (std::size_t d = 0; d < dim; ++d) squares += std::pow(static_cast<double>(x[first + d]), 2);
        const double norm = normed ? element_of(scale, i - first) / std::sqrt(squares / dim + 0.01) : 1;
        const auto g = static_cast<double>(gate[t * gate_row + i % (kHeads * dim)]);
        expected[i] = static_cast<double>(x[i]) * norm * sigmoid_of(g) * (normed ? g : 1);
      }
      GateArguments a{x.data(), gate.data(), gate_row, kTokens, kHeads, dim};
      a.f = normed ? ActivationMode::kSilu : ActivationMode::kSigmoid;
      a.scale = normed ? scale.data.data() : nullptr;
      a.eps = 0.01F;
      Stream stream;
      run_gate_heads(stream, Stored::kBF16, a);
      check_close(x, expected, 2e-5);
    }
  }
}

TEST_CASE("a gate of groups on the device multiplies before the group is normed, with a scale of each element") {
  constexpr std::uint32_t kTokens = 3, kGroups = 2;
  for (const std::uint32_t dim : {8U, 264U, 1000U}) {
    CAPTURE(dim);
    const std::uint32_t width = kGroups * dim, gate_row = width + 16;
    std::vector<float> x = random_floats(std::size_t{kTokens} * width, 7, 3);
    const std::vector<float> gate = random_floats(std::size_t{kTokens} * gate_row, 8);
    const Weight scale = weights_of(random_floats(width, 9), 1);
    Numbers expected;
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t g = 0; g < kGroups; ++g) {
        const float *first = x.data() + t * width + g * dim, *of_gate = gate.data() + t * gate_row + g * dim;
        Numbers scales(dim);
        for (std::size_t d = 0; d < dim; ++d) scales[d] = element_of(scale, g * dim + d);
        const Numbers normed = gated_norm_of({first, first + dim}, {of_gate, of_gate + dim}, scales, 0.01);
        expected.insert(expected.end(), normed.begin(), normed.end());
      }
    }
    GateArguments a{x.data(), gate.data(), gate_row, kTokens, kGroups, dim};
    a.scale = scale.data.data();
    a.eps = 0.01F;
    Stream stream;
    run_gate_groups(stream, Stored::kBF16, a);
    check_close(x, expected, 2e-5);
  }
}
