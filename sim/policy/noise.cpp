#include "sim/policy/noise.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/policy/noise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvroof {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
std::size_t draw_vectors(const NoiseKey&, const TokenPos*, std::size_t, float*) { return 0; }
#else
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using U = hn::RebindToUnsigned<F>;
using S = hn::RebindToSigned<F>;
using U64 = hn::RepartitionToWide<U>;
using VF = hn::Vec<F>;
using VU = hn::Vec<U>;

struct Product {
  VU high, low;
};

// The 64-bit products of 32-bit lanes, even and odd lanes apart.
HWY_INLINE Product multiply(VU a, std::uint32_t factor) {
  const U u;
  const U64 wide;
  const VU b = hn::Set(u, factor);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(u, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  return {hn::OddEven(hn::BitCast(u, odd), hn::BitCast(u, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(u, hn::ShiftLeft<32>(odd)), hn::BitCast(u, even))};
}

// The first word of philox4x32_10 in each lane.
HWY_INLINE VU philox(VU x0, VU x1, VU x2, VU x3, std::uint64_t key) {
  const U u;
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(x0, 0xD2511F53U);
    const Product p1 = multiply(x2, 0xCD9E8D57U);
    x0 = hn::Xor(hn::Xor(p1.high, x1), hn::Set(u, k0));
    x2 = hn::Xor(hn::Xor(p0.high, x3), hn::Set(u, k1));
    x1 = p1.low;
    x3 = p0.low;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x0;
}

// portable_log of each lane.
HWY_INLINE VF log_of(VF x) {
  const F f;
  const U u;
  const S s;
  const VU bits = hn::BitCast(u, x);
  auto e = hn::Sub(hn::BitCast(s, hn::ShiftRight<23>(bits)), hn::Set(s, 126));
  VF m = hn::BitCast(f, hn::Or(hn::And(bits, hn::Set(u, 0x007fffffU)), hn::Set(u, 0x3f000000U)));
  const auto small = hn::Lt(m, hn::Set(f, 0.707106781186547524F));
  e = hn::Sub(e, hn::IfThenElseZero(hn::RebindMask(s, small), hn::Set(s, 1)));
  m = hn::Add(m, hn::IfThenElseZero(small, m));
  m = hn::Sub(m, hn::Set(f, 1.0F));
  const VF z = hn::Mul(m, m);
  constexpr float kTerms[] = {-1.1514610310e-1F, 1.1676998740e-1F, -1.2420140846e-1F, 1.4249322787e-1F,
                              -1.6668057665e-1F, 2.0000714765e-1F, -2.4999993993e-1F, 3.3333331174e-1F};
  VF p = hn::Set(f, 7.0376836292e-2F);
  for (const float term : kTerms) p = hn::Add(hn::Mul(p, m), hn::Set(f, term));
  VF y = hn::Mul(hn::Mul(p, m), z);
  const VF fe = hn::ConvertTo(f, e);
  y = hn::Add(y, hn::Mul(fe, hn::Set(f, -2.12194440e-4F)));
  y = hn::Add(y, hn::Mul(hn::Set(f, -0.5F), z));
  y = hn::Add(m, y);
  return hn::Add(y, hn::Mul(fe, hn::Set(f, 0.693359375F)));
}

// Draws for whole vectors of positions; returns how many positions that were.
HWY_ATTR std::size_t draw_vectors(const NoiseKey& key, const TokenPos* positions, std::size_t count, float* out) {
  const F f;
  const U u;
  const S s;
  const std::size_t lanes = hn::Lanes(f);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VU bits = philox(hn::LoadU(u, &positions[i].value), hn::Set(u, key.query_position),
                           hn::Set(u, (key.layer << 16) ^ key.query_head), hn::Set(u, key.sequence), key.seed);
    const VF integer = hn::ConvertTo(f, hn::BitCast(s, hn::ShiftRight<9>(bits)));
    const VF uniform = hn::Mul(hn::Add(integer, hn::Set(f, 0.5F)), hn::Set(f, 0x1p-23F));
    hn::StoreU(hn::Neg(log_of(hn::Neg(log_of(uniform)))), f, out + i);
  }
  return i;
}
#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof {

HWY_EXPORT(draw_vectors);

void gumbel_draws(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out) {
  std::size_t i = HWY_DYNAMIC_DISPATCH(draw_vectors)(key, positions.data(), out.size(), out.data());
  for (; i < out.size(); ++i) {
    key.position = positions[i].value;
    out[i] = gumbel_draw(key);
  }
}

namespace {

constexpr double kGumbelMean = 0.57721566490153286;
constexpr double kGumbelDeviation = 1.2825498301618641;  // π / √6

// The quantile of the standard normal distribution at u: Wichura's PPND7 (Applied Statistics 37, 1988), to 7 digits.
double normal_quantile(double u) {
  const double q = u - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  const double tail = std::sqrt(-static_cast<double>(portable_log(static_cast<float>(std::min(u, 1 - u)))));
  double far = tail - 1.6;
  double z = (((0.17023821103 * far + 1.3067284816) * far + 2.7568153900) * far + 1.4234372777) /
             ((0.12021132975 * far + 0.73700164250) * far + 1);
  if (tail > 5) {
    far = tail - 5;
    z = (((0.017337203997 * far + 0.42868294337) * far + 3.0812263860) * far + 6.6579051150) /
        ((0.012258202635 * far + 0.24197894225) * far + 1);
  }
  return q < 0 ? -z : z;
}

}  // namespace

double normal_draw(const NoiseKey& key) { return normal_quantile(static_cast<double>(uniform_draw(key))); }

void gaussian_draws(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    key.position = positions[i].value;
    out[i] = static_cast<float>(kGumbelMean + kGumbelDeviation * normal_draw(key));
  }
}

void constant_draws(NoiseKey, std::span<const TokenPos>, std::span<float> out) {
  std::ranges::fill(out, static_cast<float>(kGumbelMean));
}

NoiseSource draws_of(Draw draw) {
  return draw == Draw::kGumbel ? gumbel_draws : draw == Draw::kGaussian ? gaussian_draws : constant_draws;
}

NoiseKey noise_key(const PolicyContext& context, std::uint32_t query_head) {
  return {.seed = context.seed,
          .sequence = context.sequence,
          .layer = context.layer.value,
          .query_head = query_head};
}

}  // namespace kvroof
#endif
