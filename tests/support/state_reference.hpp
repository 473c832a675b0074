// Layers that hold a state, in double precision and one token after the other, as their papers write them.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace kvroof::test {

using Numbers = std::vector<double>;

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// One channel: out[t] = Σ taps[j] · x[t − width + 1 + j], of a sequence that begins with zeros.
inline Numbers convolution_of(const Numbers& x, const Numbers& taps) {
  Numbers out(x.size());
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t j = 0; j < taps.size(); ++j) {
      const std::size_t back = taps.size() - 1 - j;
      if (t >= back) out[t] += taps[j] * x[t - back];
    }
  }
  return out;
}

// x / |x|, where |x|² counts 1e-6 more.
inline Numbers unit_of(Numbers x) {
  double squares = 1e-6;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares);
  return x;
}

// One head of a gated delta net (arXiv:2412.06464, equation 10): S ← α (S − β (Sk) kᵀ) + β v kᵀ, out = S q. Here S is
// [values][keys], as the paper has it.
class DeltaHead {
 public:
  DeltaHead(std::size_t keys, std::size_t values) : s_(values, Numbers(keys)) {}

  Numbers pass(const Numbers& query, const Numbers& key, const Numbers& v, double alpha, double beta) {
    const Numbers q = unit_of(query), k = unit_of(key);
    Numbers out(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      double known = 0;
      for (std::size_t d = 0; d < k.size(); ++d) known += s_[i][d] * k[d];
      for (std::size_t d = 0; d < k.size(); ++d) {
        s_[i][d] = alpha * (s_[i][d] - beta * known * k[d]) + beta * v[i] * k[d];
        out[i] += s_[i][d] * q[d] / std::sqrt(static_cast<double>(k.size()));
      }
    }
    return out;
  }
  [[nodiscard]] double at(std::size_t value, std::size_t key) const { return s_[value][key]; }

 private:
  std::vector<Numbers> s_;
};

// One head of Mamba-2 (arXiv:2405.21060): h ← e^(Δ A) h + Δ x Bᵀ, out = h C + D x, where h is [values][state].
class MambaHead {
 public:
  MambaHead(std::size_t state, std::size_t values) : h_(values, Numbers(state)) {}

  Numbers pass(const Numbers& c, const Numbers& b, const Numbers& x, double step, double a, double d) {
    Numbers out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t n = 0; n < b.size(); ++n) {
        h_[i][n] = std::exp(step * a) * h_[i][n] + step * x[i] * b[n];
        out[i] += h_[i][n] * c[n];
      }
      out[i] += d * x[i];
    }
    return out;
  }
  [[nodiscard]] double at(std::size_t value, std::size_t n) const { return h_[value][n]; }

 private:
  std::vector<Numbers> h_;
};

// Δ of a head, log(1 + e^(rate + bias)).
inline double step_of(double rate, double bias) { return std::log1p(std::exp(rate + bias)); }

// norm(x · silu(gate)) with a scale of each element.
inline Numbers gated_norm_of(Numbers x, const Numbers& gate, const Numbers& scale, double eps) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= gate[i] * sigmoid_of(gate[i]);
    squares += x[i] * x[i];
  }
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale[i] * factor;
  return x;
}

// α of a head, as Qwen3-Next parametrises it: e^(−e^decay · log(1 + e^(rate + bias))).
inline double kept_of(double decay, double rate, double bias) {
  return std::exp(-std::exp(decay) * step_of(rate, bias));
}

}  // namespace kvroof::test
