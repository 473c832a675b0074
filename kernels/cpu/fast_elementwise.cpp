// Kernels over single vectors of floats: softmax, norms, activations, rotation, sums.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/fast_kernels.hpp"
#include "sim/model/clamped_swiglu.hpp"

// As in fast_rows.cpp.
#define HWY_BROKEN_EMU128 0
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fast_elementwise.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace kvroof::fast::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = HWY_LANES(float);
constexpr std::size_t kSums = 4;  // independent sums, so that additions need not wait for each other

// e^x: x = n ln 2 + r with |r| ≤ ln 2 / 2, and the Taylor polynomial of degree 7 for e^r (error below 2^-26). 0 below
// −87.
HWY_INLINE V exp_of(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -87.0F)), hn::Set(d, 88.0F));
  const V n = hn::Round(hn::Mul(bounded, hn::Set(d, 1.442695041F)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), bounded);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  V p = hn::Set(d, 1.0F / 5040);
  for (const float c : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    p = hn::MulAdd(p, r, hn::Set(d, c));
  const auto scale = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V result = hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Zero(d), hn::Mul(p, hn::BitCast(d, scale)));
  return hn::IfThenElse(hn::Eq(x, x), result, x);  // the bounds above would hide a NaN
}

// The first `count` elements at p, filled up with `fill`.
HWY_INLINE V load(const float* p, std::size_t count, float fill = 0) {
  if (count >= kLanes) return hn::LoadU(D(), p);
  alignas(64) std::array<float, kLanes> rest;
  rest.fill(fill);
  std::copy_n(p, count, rest.begin());
  return hn::Load(D(), rest.data());
}

HWY_INLINE void store(V v, float* to, std::size_t count) {
  if (count >= kLanes) {
    hn::StoreU(v, D(), to);
    return;
  }
  alignas(64) std::array<float, kLanes> rest;
  hn::Store(v, D(), rest.data());
  std::copy_n(rest.begin(), count, to);
}

// Calls body(vector, index) for whole vectors, then once for the rest, filled up with `fill`.
template <class Body>
HWY_INLINE void for_vectors(const float* x, std::size_t count, float fill, const Body& body) {
  for (std::size_t i = 0; i < count; i += kLanes) body(load(x + i, count - i, fill), i);
}

void softmax_row(std::span<const float> logits, std::span<float> weights, AttentionSink sink) {
  const D d;
  const std::size_t n = logits.size();
  V highest = hn::Set(d, logits[0]);
  for_vectors(logits.data(), n, logits[0], [&](V v, std::size_t) HWY_ATTR { highest = hn::Max(highest, v); });
  if (sink) highest = hn::Max(highest, hn::Set(d, *sink));
  const V top = hn::MaxOfLanes(d, highest);
  std::array<V, kSums> sums;
  sums.fill(hn::Zero(d));
  std::size_t turn = 0;
  for_vectors(logits.data(), n, -HUGE_VALF, [&](V v, std::size_t i) HWY_ATTR {
    const V e = exp_of(hn::Sub(v, top));
    store(e, weights.data() + i, n - i);
    sums[turn] = hn::Add(sums[turn], e);
    turn = (turn + 1) % kSums;
  });
  V total = hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  if (sink) total = hn::Add(total, exp_of(hn::Sub(hn::Set(d, *sink), top)));
  const V factor = hn::Div(hn::Set(d, 1.0F), total);
  for_vectors(weights.data(), n, 0.0F,
              [&](V v, std::size_t i) HWY_ATTR { store(hn::Mul(v, factor), weights.data() + i, n - i); });
}

void rms_norm_row(std::span<const float> x, std::span<const float> w, float eps, float offset, std::span<float> out) {
  const D d;
  const V shift = hn::Set(d, offset);
  std::array<V, kSums> sums;
  sums.fill(hn::Zero(d));
  std::size_t turn = 0;
  for_vectors(x.data(), x.size(), 0.0F, [&](V v, std::size_t) HWY_ATTR {
    sums[turn] = hn::MulAdd(v, v, sums[turn]);
    turn = (turn + 1) % kSums;
  });
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  const V factor = hn::Set(d, 1.0F / std::sqrt(total / static_cast<float>(x.size()) + eps));
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    const V scaled = hn::Mul(hn::LoadU(d, x.data() + i), factor);
    hn::StoreU(hn::Mul(scaled, hn::Add(hn::LoadU(d, w.data() + i), shift)), d, out.data() + i);
  }
  for (; i < x.size(); ++i) out[i] = x[i] * hn::GetLane(factor) * (w[i] + offset);
}

// Four interleaved sums of f(x) over all elements; `fill` pads the last vector and has to give 0.
template <class F>
HWY_INLINE float sum_of(std::span<const float> x, float fill, const F& f) {
  const D d;
  std::array<V, kSums> sums;
  sums.fill(hn::Zero(d));
  std::size_t turn = 0;
  for_vectors(x.data(), x.size(), fill, [&](V v, std::size_t) HWY_ATTR {
    sums[turn] = hn::Add(sums[turn], f(v));
    turn = (turn + 1) % kSums;
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

void layer_norm_row(std::span<const float> x, std::span<const float> w, std::span<const float> bias,
                    LayerNormRule rule, std::span<float> out) {
  const D d;
  const auto count = static_cast<float>(x.size());
  const float mean = sum_of(x, 0.0F, [](V v) HWY_ATTR { return v; }) / count;
  const V centre = hn::Set(d, mean);
  const float squares = sum_of(x, mean, [centre](V v) HWY_ATTR {
    const V c = hn::Sub(v, centre);
    return hn::Mul(c, c);
  });
  const float factor = 1.0F / std::sqrt(squares / count + rule.eps);
  const V scale = hn::Set(d, factor);
  const V shift = hn::Set(d, rule.offset);
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    const V weight = hn::Add(hn::LoadU(d, w.data() + i), shift);
    V v = hn::Mul(hn::Mul(hn::Sub(hn::LoadU(d, x.data() + i), centre), scale), weight);
    if (!bias.empty()) v = hn::Add(v, hn::LoadU(d, bias.data() + i));
    hn::StoreU(v, d, out.data() + i);
  }
  for (; i < x.size(); ++i) out[i] = (x[i] - mean) * factor * (w[i] + rule.offset) + (bias.empty() ? 0.0F : bias[i]);
}

HWY_INLINE V silu(V x) {
  const D d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exp_of(hn::Neg(x))));
}

// 0.5 x (1 + tanh(y)) is x · sigmoid(2 y).
HWY_INLINE V gelu_tanh(V x) {
  const D d;
  const V cube = hn::Mul(hn::Mul(x, x), x);
  const V y = hn::Mul(hn::Set(d, 2 * 0.79788456F), hn::MulAdd(hn::Set(d, 0.044715F), cube, x));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exp_of(hn::Neg(y))));
}

// x Φ(x), where 1 − Φ(|x|) = erfc(z) / 2 with z = |x| / √2 is a polynomial in t = 1 / (1 + 0.3275911 z) times e^(−z²):
// Abramowitz and Stegun 7.1.26, absolute error of erfc below 1.5e-7.
HWY_INLINE V gelu(V x) {
  const D d;
  const V one = hn::Set(d, 1.0F);
  const V z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678F));
  const V t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911F), z, one));
  V p = hn::Set(d, 1.061405429F);
  for (const float c : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F}) p = hn::MulAdd(p, t, hn::Set(d, c));
  const V outside = hn::Mul(hn::Mul(hn::Set(d, 0.5F), exp_of(hn::Neg(hn::Mul(z, z)))), hn::Mul(p, t));
  return hn::Mul(x, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, outside), outside));
}

// Relative error below 4e-7. Below 0.6 the fourth convergent of Lambert's continued fraction; above, of the magnitude,
// 1 − 2 / (1 + e^2x).
HWY_INLINE V tanh_of(V x) {
  const D d;
  const V square = hn::Mul(x, x);
  const V top = hn::MulAdd(square, hn::Add(square, hn::Set(d, 105.0F)), hn::Set(d, 945.0F));
  const V bottom = hn::MulAdd(square, hn::MulAdd(hn::Set(d, 15.0F), square, hn::Set(d, 420.0F)), hn::Set(d, 945.0F));
  const V magnitude = hn::Abs(x);
  const V e = exp_of(hn::Add(magnitude, magnitude));
  const V one = hn::Set(d, 1.0F);
  const V large = hn::CopySign(hn::NegMulAdd(hn::Set(d, 2.0F), hn::Div(one, hn::Add(one, e)), one), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.6F)), hn::Div(hn::Mul(x, top), bottom), large);
}

// Negative numbers become 0; a NaN stays.
HWY_INLINE V relu(V x) { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(D())), x); }

HWY_INLINE V activated(Activation f, V x) {
  switch (f) {
    case Activation::kSilu: return silu(x);
    case Activation::kGelu: return gelu(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kSigmoid: return hn::Div(hn::Set(D(), 1.0F), hn::Add(hn::Set(D(), 1.0F), exp_of(hn::Neg(x))));
    case Activation::kRelu2: return hn::Mul(relu(x), x);
    case Activation::kRelu:
    case Activation::kClampedSwiglu: break;  // of gates: see below
  }
  return relu(x);
}

void activate(Activation f, std::span<float> x) {
  for_vectors(x.data(), x.size(), 0.0F,
              [&](V v, std::size_t i) HWY_ATTR { store(activated(f, v), x.data() + i, x.size() - i); });
}

// As clamped_swiglu.hpp says; a NaN stays.
HWY_INLINE V clamped_swiglu(V gate, V up) {
  const D d;
  const V limit = hn::Set(d, kSwigluLimit), one = hn::Set(d, 1.0F);
  const V g = hn::Min(gate, limit);
  const V u = hn::Max(hn::Min(up, limit), hn::Neg(limit));
  const V y = hn::Mul(hn::Add(u, one), hn::Div(g, hn::Add(one, exp_of(hn::Mul(hn::Set(d, -kSwigluSlope), g)))));
  const V sum = hn::Add(gate, up);
  return hn::IfThenElse(hn::IsNaN(sum), sum, y);
}

void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  if (f == Activation::kClampedSwiglu) {
    for_vectors(gate.data(), gate.size(), 0.0F, [&](V v, std::size_t i) HWY_ATTR {
      const std::size_t left = gate.size() - i;
      store(clamped_swiglu(v, load(up.data() + i, left)), out.data() + i, left);
    });
    return;
  }
  for_vectors(gate.data(), gate.size(), 0.0F, [&](V v, std::size_t i) HWY_ATTR {
    const std::size_t left = gate.size() - i;
    store(hn::Mul(activated(f, v), load(up.data() + i, left)), out.data() + i, left);
  });
}

void soft_cap(std::span<float> x, float cap) {
  const D d;
  const V limit = hn::Set(d, cap);
  for_vectors(x.data(), x.size(), 0.0F, [&](V v, std::size_t i) HWY_ATTR {
    store(hn::Mul(limit, tanh_of(hn::Div(v, limit))), x.data() + i, x.size() - i);
  });
}

void add_scaled(std::span<float> x, float factor, std::span<const float> y) {
  const D d;
  const V f = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(d, y.data() + i), hn::LoadU(d, x.data() + i)), d, x.data() + i);
  }
  for (; i < x.size(); ++i) x[i] += factor * y[i];
}

void add(std::span<float> x, std::span<const float> y) {
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(D(), x.data() + i), hn::LoadU(D(), y.data() + i)), D(), x.data() + i);
  }
  for (; i < x.size(); ++i) x[i] += y[i];
}

void rotate_half_split(float* x, std::span<const float> cosines, std::span<const float> sines) {
  const D d;
  const std::size_t pairs = cosines.size();
  std::size_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const V a = hn::LoadU(d, x + i);
    const V b = hn::LoadU(d, x + pairs + i);
    const V c = hn::LoadU(d, cosines.data() + i);
    const V s = hn::LoadU(d, sines.data() + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, x + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, x + pairs + i);
  }
  for (; i < pairs; ++i) {
    const float a = x[i];
    const float b = x[pairs + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[pairs + i] = b * cosines[i] + a * sines[i];
  }
}

void rotate_adjacent(float* x, std::span<const float> cosines, std::span<const float> sines) {
  const D d;
  std::size_t i = 0;
  for (; i + kLanes <= cosines.size(); i += kLanes) {
    V a = hn::Zero(d);
    V b = hn::Zero(d);
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const V c = hn::LoadU(d, cosines.data() + i);
    const V s = hn::LoadU(d, sines.data() + i);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, x + 2 * i);
  }
  for (; i < cosines.size(); ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace kvroof::fast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::fast {

HWY_EXPORT(softmax_row);
HWY_EXPORT(rms_norm_row);
HWY_EXPORT(layer_norm_row);
HWY_EXPORT(gated);
HWY_EXPORT(activate);
HWY_EXPORT(soft_cap);
HWY_EXPORT(add_scaled);
HWY_EXPORT(add);
HWY_EXPORT(rotate_half_split);
HWY_EXPORT(rotate_adjacent);

void softmax_row(std::span<const float> logits, std::span<float> weights, AttentionSink sink) {
  HWY_DYNAMIC_DISPATCH(softmax_row)(logits, weights, sink);
}

void rms_norm_row(std::span<const float> x, std::span<const float> w, float eps, float offset, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_row)(x, w, eps, offset, out);
}

void layer_norm_row(std::span<const float> x, std::span<const float> w, std::span<const float> bias,
                    LayerNormRule rule, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(layer_norm_row)(x, w, bias, rule, out);
}

void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(gated)(f, gate, up, out);
}

void activate(Activation f, std::span<float> x) { HWY_DYNAMIC_DISPATCH(activate)(f, x); }

void soft_cap(std::span<float> x, float cap) { HWY_DYNAMIC_DISPATCH(soft_cap)(x, cap); }

void add_scaled(std::span<float> x, float factor, std::span<const float> y) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(x, factor, y);
}

void add(std::span<float> x, std::span<const float> y) { HWY_DYNAMIC_DISPATCH(add)(x, y); }

void rotate_half_split(float* x, std::span<const float> cosines, std::span<const float> sines) {
  HWY_DYNAMIC_DISPATCH(rotate_half_split)(x, cosines, sines);
}

void rotate_adjacent(float* x, std::span<const float> cosines, std::span<const float> sines) {
  HWY_DYNAMIC_DISPATCH(rotate_adjacent)(x, cosines, sines);
}

}  // namespace kvroof::fast
#endif
