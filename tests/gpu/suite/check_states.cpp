// Layers that hold a state, against what they mean in double precision: a prompt, and a token of each of two sequences.
#include "kernels/cuda/state_arguments.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"
#include "tests/support/state_reference.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;
using test::Numbers;

namespace {

Numbers numbers_of(const float* first, std::size_t count) { return {first, first + count}; }

// The memory of two sequences, which a launch finds poisoned where a prompt begins.
struct States {
  States(Stream& stream, std::size_t floats)
      : first(poisoned(stream, floats * sizeof(float))), second(poisoned(stream, floats * sizeof(float))) {
    const std::vector<float*> places = {first.at<float>(), second.at<float>()};
    of_prompts[0] = uploaded(stream, std::vector<float*>{places[0]});
    of_prompts[1] = uploaded(stream, std::vector<float*>{places[1]});
    of_step = uploaded(stream, places);
  }
  DeviceBuffer first, second, of_prompts[2], of_step;
};

struct HeadSizes {
  std::uint32_t heads, key_heads, key_dim, value_dim, prompt;
};

// The head of either rule.
struct HeadTwin {
  HeadTwin(bool is_delta, const HeadSizes& s)
      : delta(is_delta), net(s.key_dim, s.value_dim), mamba(s.key_dim, s.value_dim) {}

  Numbers pass(const Numbers& q, const Numbers& k, const Numbers& v, const float* rates, std::uint32_t heads,
               double decay, double bias, double skip) {
    if (delta) return net.pass(q, k, v, test::kept_of(decay, rates[heads], bias), test::sigmoid_of(rates[0]));
    return mamba.pass(q, k, v, test::step_of(rates[0], bias), -std::exp(decay), skip);
  }

  bool delta;
  test::DeltaHead net;
  test::MambaHead mamba;
};

// Both sequences have the prompt's rows but for those of the step.
Deviation rule_deviation(const HeadSizes& s, bool delta, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  const std::size_t keys = std::size_t{s.key_heads} * s.key_dim, row = 2 * keys + std::size_t{s.heads} * s.value_dim;
  const std::size_t width = std::size_t{s.heads} * s.value_dim, tokens = s.prompt + 2;
  const std::vector<float> x = normal_floats(tokens * row, 0, random);
  const std::uint32_t rates_row = delta ? 2 * s.heads : s.heads + 4;
  const std::vector<float> rates = normal_floats(tokens * rates_row, 0, random);
  const std::vector<float> skip = normal_floats(s.heads, 0, random);
  const std::vector<float> decay = normal_floats(s.heads, 0, random), bias = normal_floats(s.heads, 0, random);
  const DeviceBuffer device_x = uploaded(stream, x), device_rates = uploaded(stream, rates);
  const DeviceBuffer device_decay = uploaded(stream, decay), device_bias = uploaded(stream, bias);
  const DeviceBuffer device_skip = uploaded(stream, skip);
  const States states(stream, std::size_t{s.heads} * s.key_dim * s.value_dim);
  const DeviceBuffer out = poisoned(stream, tokens * width * sizeof(float));
  StateRuleArguments a{{states.of_prompts[0].at<float*>(), true},
                       device_x.at<float>(),
                       device_rates.at<float>(),
                       rates_row,
                       device_decay.at<float>(),
                       device_bias.at<float>(),
                       delta ? nullptr : device_skip.at<float>(),
                       s.prompt,
                       s.heads,
                       s.key_heads,
                       s.key_dim,
                       s.value_dim,
                       out.at<float>()};
  run_state_rule(stream, a);
  a.states.sequences = states.of_prompts[1].at<float*>();
  run_state_rule(stream, a);
  a.states = {states.of_step.at<float*>(), false};
  a.x += s.prompt * row;
  a.rates += s.prompt * rates_row;
  a.tokens = 2;
  a.out += s.prompt * width;
  run_state_rule(stream, a);
  const auto got = downloaded<float>(stream, out, tokens * width);
  Deviation deviation;
  for (std::size_t h = 0; h < s.heads; ++h) {
    HeadTwin head(delta, s);
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* at = x.data() + t * row;
      const float* q = at + h / (s.heads / s.key_heads) * s.key_dim;
      HeadTwin of_token = head;  // sequences of the step follow the prompt, not each other
      const Numbers read = of_token.pass(numbers_of(q, s.key_dim), numbers_of(q + keys, s.key_dim),
                                         numbers_of(at + 2 * keys + h * s.value_dim, s.value_dim),
                                         rates.data() + t * rates_row + h, s.heads, decay[h], bias[h], skip[h]);
      if (t < s.prompt) head = of_token;
      for (std::size_t i = 0; i < s.value_dim; ++i) deviation.add(got[t * width + h * s.value_dim + i], read[i]);
    }
  }
  return deviation;
}

Deviation convolution_deviation(std::uint32_t channels, std::uint32_t width, bool is_short, std::uint32_t prompt,
                                std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  const std::size_t row = is_short ? 3 * channels : channels, tokens = prompt + 2;
  const std::vector<float> x = normal_floats(tokens * row, 0, random);
  const StoredRows taps = stored_rows(Stored::kBF16, 1, channels * width, 1, random);
  const StoredRows bias = stored_rows(Stored::kBF16, 1, channels, 1, random);
  const DeviceBuffer device_x = uploaded(stream, x), device_taps = uploaded(stream, taps.bytes);
  const DeviceBuffer device_bias = uploaded(stream, bias.bytes);
  const States states(stream, std::size_t{channels} * (width - 1));
  const DeviceBuffer out = poisoned(stream, tokens * channels * sizeof(float));
  ConvolveArguments a{{states.of_prompts[0].at<float*>(), true},
                      device_x.at<float>(),
                      static_cast<std::uint32_t>(row),
                      prompt,
                      channels,
                      width,
                      device_taps.at(),
                      is_short ? nullptr : device_bias.at(),
                      is_short,
                      out.at<float>()};
  run_convolve(stream, Stored::kBF16, a);
  a.states.sequences = states.of_prompts[1].at<float*>();
  run_convolve(stream, Stored::kBF16, a);
  a.states = {states.of_step.at<float*>(), false};
  a.x += prompt * row;
  a.tokens = 2;
  a.out += std::size_t{prompt} * channels;
  run_convolve(stream, Stored::kBF16, a);
  const auto got = downloaded<float>(stream, out, tokens * channels);
  Deviation deviation;
  for (std::size_t c = 0; c < channels; ++c) {
    const auto input = [&](std::size_t t) {
      return double{x[t * row + c]} * (is_short ? double{x[t * row + 2 * channels + c]} : 1.0);
    };
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t end = std::min<std::size_t>(t, prompt);
      Numbers seen;  // of the sequence, as much as the convolution sees
      for (std::size_t i = end - std::min<std::size_t>(end, width - 1); i < end; ++i) seen.push_back(input(i));
      seen.push_back(input(t));
      const double sum = test::convolution_of(seen, numbers_of(taps.values.data() + c * width, width)).back() +
                         (is_short ? 0.0 : double{bias.values[c]});
      const double gate = is_short ? double{x[t * row + channels + c]} : test::sigmoid_of(sum);
      deviation.add(got[t * channels + c], gate * sum);
    }
  }
  return deviation;
}

Deviation gate_deviation(std::uint32_t dim, bool normed, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  constexpr std::uint32_t kTokens = 5, kHeads = 7;
  const std::size_t width = std::size_t{kHeads} * dim;
  const std::vector<float> x = normal_floats(kTokens * width, 0, random), gate = normal_floats(x.size(), 0, random);
  const StoredRows scale = stored_rows(Stored::kBF16, 1, dim, 1, random);
  const DeviceBuffer device_x = uploaded(stream, x), device_gate = uploaded(stream, gate);
  const DeviceBuffer device_scale = uploaded(stream, scale.bytes);
  run_gate_heads(stream, Stored::kBF16,
                 {device_x.at<float>(), device_gate.at<float>(), static_cast<std::uint32_t>(width), kTokens, kHeads,
                  dim, normed ? ActivationMode::kSilu : ActivationMode::kSigmoid, normed ? device_scale.at() : nullptr,
                  1e-5F});
  const auto got = downloaded<float>(stream, device_x, x.size());
  Deviation deviation;
  for (std::size_t first = 0; first < x.size(); first += dim) {
    double squares = 0;
    for (std::size_t d = 0; d < dim; ++d) squares += double{x[first + d]} * x[first + d];
    for (std::size_t d = 0; d < dim; ++d) {
      const double g = gate[first + d];
      const double norm = normed ? double{scale.values[d]} / std::sqrt(squares / dim + 1e-5) * g : 1;
      deviation.add(got[first + d], double{x[first + d]} * norm * test::sigmoid_of(g));
    }
  }
  return deviation;
}

Deviation group_deviation(std::uint32_t dim, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  constexpr std::uint32_t kTokens = 5, kGroups = 3;
  const std::size_t width = std::size_t{kGroups} * dim;
  const std::vector<float> x = normal_floats(kTokens * width, 0, random), gate = normal_floats(x.size(), 0, random);
  const StoredRows scale = stored_rows(Stored::kBF16, 1, kGroups * dim, 1, random);
  const DeviceBuffer device_x = uploaded(stream, x), device_gate = uploaded(stream, gate);
  const DeviceBuffer device_scale = uploaded(stream, scale.bytes);
  run_gate_groups(stream, Stored::kBF16,
                  {device_x.at<float>(), device_gate.at<float>(), static_cast<std::uint32_t>(width), kTokens, kGroups,
                   dim, ActivationMode::kSilu, device_scale.at(), 1e-5F});
  const auto got = downloaded<float>(stream, device_x, x.size());
  Deviation deviation;
  for (std::size_t first = 0; first < x.size(); first += dim) {
    const Numbers normed = test::gated_norm_of(numbers_of(x.data() + first, dim), numbers_of(gate.data() + first, dim),
                                               numbers_of(scale.values.data() + first % width, dim), 1e-5);
    for (std::size_t d = 0; d < dim; ++d) deviation.add(got[first + d], normed[d]);
  }
  return deviation;
}

}  // namespace

void check_states(const Options& options, Report& report) {
  constexpr double kTolerance = 2e-5;
  std::uint64_t seed = options.seed + 7000;
  const auto check = [&](const char* name, const Json& parameters, const auto& deviation_of) {
    ++seed;
    report.guarded(name, parameters, [&] {
      const Deviation d = deviation_of(seed);
      report.check(name, parameters, d.relative() <= kTolerance, results_of({{"outputs", d}}, kTolerance, seed));
    });
  };
  const std::uint32_t longest = options.small ? 9 : 300;
  for (const HeadSizes& s : {HeadSizes{2, 1, 8, 24, 3}, HeadSizes{4, 2, 32, 40, 1}, HeadSizes{2, 2, 40, 130, 7},
                             HeadSizes{32, 16, 128, 128, longest}, HeadSizes{2, 1, 256, 64, 66}}) {
    for (const bool delta : {true, false}) {
      check(delta ? "delta_rule" : "mamba2",
            {{"heads", s.heads}, {"key_heads", s.key_heads}, {"key_dim", s.key_dim}, {"value_dim", s.value_dim},
             {"prompt", s.prompt}},
            [&](std::uint64_t with) { return rule_deviation(s, delta, with); });
    }
  }
  for (const bool is_short : {false, true}) {
    for (const std::uint32_t prompt : {1U, 2U, longest}) {
      const std::uint32_t channels = options.small ? 264 : 8192, width = is_short ? 3 : 4;
      check("convolve", {{"channels", channels}, {"width", width}, {"short", is_short}, {"prompt", prompt}},
            [&](std::uint64_t with) { return convolution_deviation(channels, width, is_short, prompt, with); });
    }
  }
  for (const std::uint32_t dim : {8U, 128U, 256U}) {
    for (const bool normed : {false, true}) {
      check("gate_heads", {{"dim", dim}, {"normed", normed}},
            [&](std::uint64_t with) { return gate_deviation(dim, normed, with); });
    }
  }
  for (const std::uint32_t dim : {8U, 1000U, 8192U}) {
    check("gate_groups", {{"dim", dim}}, [&](std::uint64_t with) { return group_deviation(dim, with); });
  }
}

}  // namespace kvroof::suite
