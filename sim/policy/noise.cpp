#include "sim/policy/noise.hpp"

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

}  // namespace kvroof
#endif
