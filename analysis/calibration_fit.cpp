#include "analysis/calibration_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "sim/cost/linear_costs.hpp"

namespace kvroof {
namespace {

using F = DeviceField;

constexpr std::size_t kEnough = 8;       // samples of a kind
constexpr double kEnoughRange = 4;       // of their bytes, so that a start-up can be told from a rate
constexpr double kLeastSpread = 0.03;
constexpr double kMostSpread = 2;        // that a device file may state
constexpr double kEnoughGrowth = 1.5;    // of the cache within a run, so that its share of a step can be told
constexpr std::size_t kTerms = 3;        // start, cold start, bytes

// A sample as factors of the coefficients, each divided by the time: a perfect fit gives 1.
struct Equation {
  std::array<double, kTerms> factor{};
  double seconds = 0;
};
using Coefficients = std::array<double, kTerms>;

double fitted(const Equation& e, const Coefficients& c) {
  double sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) sum += c[i] * e.factor[i];
  return sum;
}

// Least squares of relative errors over the terms of `mask`, by elimination; nothing where they cannot be told apart.
std::optional<Coefficients> solve(std::span<const Equation> equations, unsigned mask) {
  std::array<std::array<double, kTerms + 1>, kTerms> m{};
  for (std::size_t i = 0; i < kTerms; ++i) {
    if ((mask >> i & 1U) == 0) {
      m[i][i] = 1;
      continue;
    }
    for (const Equation& e : equations) {
      for (std::size_t j = 0; j < kTerms; ++j) {
        if ((mask >> j & 1U) != 0) m[i][j] += e.factor[i] * e.factor[j] / (e.seconds * e.seconds);
      }
      m[i][kTerms] += e.factor[i] / e.seconds;
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    const double largest = m[i][i];
    if (!(std::abs(largest) > 0)) return std::nullopt;
    for (std::size_t row = 0; row < kTerms; ++row) {
      if (row == i) continue;
      const double times = m[row][i] / largest;
      for (std::size_t j = i; j <= kTerms; ++j) m[row][j] -= times * m[i][j];
    }
  }
  Coefficients c{};
  for (std::size_t i = 0; i < kTerms; ++i) c[i] = m[i][kTerms] / m[i][i];
  return c;
}

double mean_error(std::span<const Equation> equations, const Coefficients& c) {
  double sum = 0;
  for (const Equation& e : equations) sum += std::abs(fitted(e, c) / e.seconds - 1);
  return sum / static_cast<double>(equations.size());
}

// The best of all choices of terms whose coefficients are not negative; bytes always count.
std::optional<Coefficients> fit(std::span<const Equation> equations, unsigned allowed) {
  std::optional<Coefficients> best;
  for (unsigned mask = 4; mask < 8; ++mask) {
    if ((mask & ~allowed) != 0) continue;
    const auto c = solve(equations, mask);
    if (!c || *std::min_element(c->begin(), c->end()) < 0 || !((*c)[2] > 0)) continue;
    if (!best || mean_error(equations, *c) < mean_error(equations, *best)) best = c;
  }
  return best;
}

void refuse_warm(const Device& device, std::span<const KernelSample> samples) {
  std::size_t warm = 0;
  const KernelSample* fastest = nullptr;
  const auto rate = [](const KernelSample& s) { return s.bytes / s.seconds; };
  for (const KernelSample& s : samples) {
    if (rate(s) <= kAboveLimit * device.bandwidth().value) continue;
    ++warm;
    if (fastest == nullptr || rate(s) > rate(*fastest)) fastest = &s;
  }
  if (fastest == nullptr) return;
  throw Error(fmt::format("{} of {} samples move their bytes faster than the memory of {} can ({}: {:.0f} of {:.0f} "
                          "GB/s)", warm, samples.size(), device.name, fastest->where, rate(*fastest) / 1e9,
                          device.bandwidth().value / 1e9))
      .note("they were measured in a warm cache, or move other bytes than stated: rotate over buffers of more than "
            "twice the cache, or leave them out");
}

class KindFit {
 public:
  KindFit(Device& device, KernelKind kind, const std::string& source) : device_(device), source_(source) {
    result_.kind = kind;
  }

  KernelFit of(std::vector<Equation> equations, unsigned allowed, std::span<const F> starts, F share) {
    result_.samples = equations.size();
    if (equations.size() < kEnough) {
      return refused(fmt::format("{} samples, at least {} are needed", equations.size(), kEnough));
    }
    std::sort(equations.begin(), equations.end(),
              [](const Equation& a, const Equation& b) { return a.factor[2] < b.factor[2]; });
    const double range = equations.back().factor[2] / equations.front().factor[2];
    if (range < kEnoughRange) {
      return refused(fmt::format("the largest sample has {:.1f} times the bytes of the smallest, at least {} are "
                                 "needed", range, kEnoughRange));
    }
    std::vector<Equation> half, rest;
    for (std::size_t i = 0; i < equations.size(); ++i) (i % 2 == 0 ? half : rest).push_back(equations[i]);
    const auto tried = fit(half, allowed), all = fit(equations, allowed);
    if (!tried || !all) return refused("no start-up and rate fit the samples");
    std::vector<double> errors;
    for (const Equation& e : rest) errors.push_back(std::abs(fitted(e, *tried) / e.seconds - 1));
    std::sort(errors.begin(), errors.end());
    result_.test_error = mean_error(rest, *tried);
    const double spread = std::max(kLeastSpread, errors[(errors.size() * 4) / 5]);
    for (std::size_t i = 0; i < starts.size(); ++i) put(starts[i], (*all)[i] * 1e6, spread);
    put(share, std::min(1.0, 1 / ((*all)[2] * device_.bandwidth().value)), spread);
    return result_;
  }
  KernelFit refused(std::string why) {
    result_.refused = std::move(why);
    return result_;
  }
  void put(F field, double value, double spread) {
    const double rounded = std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
    const double stated = std::min(std::round(spread * 1000) / 1000, kMostSpread);
    device_.fact(field) = Fact{rounded, Provenance::kMeasured, source_, stated};
    result_.facts.push_back(field);
  }

 private:
  Device& device_;
  const std::string& source_;
  KernelFit result_;
};

// Products bound by arithmetic: the median share of the 16-bit peak, as matmul_fraction is that of the best shape.
void fit_matmul(Device& device, std::span<const KernelSample> samples, KindFit& fit_of, KernelFit& result) {
  constexpr double kBound = 4;  // arithmetic takes so many times what reading does
  constexpr double kLeastSeconds = 50e-6;
  const double peak = device.peak(DType::kBF16).value, bandwidth = device.bandwidth().value;
  std::vector<double> shares;
  for (const KernelSample& s : samples) {
    if (s.kind != KernelKind::kProduct || s.flops / peak < kBound * s.bytes / bandwidth) continue;
    // A small product is bound by its launch.
    if (s.flops / peak < kLeastSeconds) continue;
    shares.push_back(s.flops / (kAnyShapeShare * peak * s.seconds));
  }
  if (shares.size() < kEnough) {
    result.no_matmul = fmt::format("{} products are bound by arithmetic for {:g} us or more, at least {} are needed",
                                   shares.size(), kLeastSeconds * 1e6, kEnough);
    return;
  }
  std::sort(shares.begin(), shares.end());
  const double middle = shares[shares.size() / 2];
  if (middle > 1) {
    throw Error(fmt::format("products reach {:.0f} % of the dense peak of {}: other types than 16 bits, or a wrong "
                            "unit", 100 * middle, device.name));
  }
  fit_of.put(F::kMatmulFraction, middle,
             std::max(kLeastSpread, shares[shares.size() * 9 / 10] / shares[shares.size() / 10] - 1));
  result.facts.push_back(F::kMatmulFraction);
}

}  // namespace

std::vector<KernelFit> fit_kernels(Device& device, std::span<const KernelSample> samples, const std::string& source) {
  const double peak = device.peak(DType::kBF16).value, bandwidth = device.bandwidth().value;
  const double cache = device.fact(F::kL2Mib) ? device.value(F::kL2Mib) * 1024 * 1024 : 0;
  std::array<std::vector<Equation>, 3> equations;
  std::vector<KernelSample> read;  // near the ridge reading does not decide
  for (const KernelSample& s : samples) {
    if (s.flops / peak <= 0.3 * s.bytes / bandwidth) read.push_back(s);
  }
  refuse_warm(device, read);
  for (const KernelSample& s : read) {
    const double cold = cache > 0 ? 1 - std::exp(-s.bytes / cache) : 1;
    equations[static_cast<std::size_t>(s.kind)].push_back({{1, cold, s.bytes}, s.seconds});
  }
  constexpr std::array kProductStart = {F::kLinearT0Us}, kAttentionStart = {F::kAttentionFloorUs};
  constexpr std::array kCallStarts = {F::kAttentionCallUs, F::kAttentionColdUs};
  std::vector<KernelFit> fits;
  const auto of = [&](KernelKind kind, unsigned allowed, std::span<const F> starts, F share) {
    const auto has = std::any_of(samples.begin(), samples.end(), [&](const KernelSample& s) { return s.kind == kind; });
    if (!has) return;
    KindFit fit_of(device, kind, source);
    fits.push_back(fit_of.of(equations[static_cast<std::size_t>(kind)], allowed, starts, share));
    if (kind == KernelKind::kProduct) fit_matmul(device, samples, fit_of, fits.back());
  };
  of(KernelKind::kProduct, 0b101, kProductStart, F::kLinearFraction);
  of(KernelKind::kAttention, 0b101, kAttentionStart, F::kAttentionFraction);
  of(KernelKind::kAttentionCall, 0b111, kCallStarts, F::kAttentionFraction);
  return fits;
}

KernelFit fit_steps(Device& device, std::span<const StepSample> steps, double fixed_seconds,
                    const std::string& source) {
  std::vector<StepSample> kept(steps.begin(), steps.end());
  std::sort(kept.begin(), kept.end(), [](const StepSample& a, const StepSample& b) { return a.seconds < b.seconds; });
  kept.resize(kept.size() - kept.size() / 10);
  std::vector<Equation> equations;
  double weights = 0, least = 0, most = 0;
  for (const StepSample& s : kept) {
    if (!(s.seconds > 0) || !(s.kv_bytes > 0)) continue;
    weights += s.weight_bytes;
    least = equations.empty() ? s.kv_bytes : std::min(least, s.kv_bytes);
    most = std::max(most, s.kv_bytes);
    equations.push_back({{1, 0, s.kv_bytes}, s.seconds});
  }
  weights /= static_cast<double>(std::max<std::size_t>(equations.size(), 1));
  KindFit fit_of(device, KernelKind::kProduct, source);
  if (equations.size() < kEnough) {
    return fit_of.refused(fmt::format("{} timed decode steps, at least {} are needed", equations.size(), kEnough));
  }
  if (most < kEnoughGrowth * least) {
    return fit_of.refused(fmt::format("the cache grows by {:.2f} times within the run, at least {} are needed to tell "
                                      "what it costs: decode more tokens under full attention", most / least,
                                      kEnoughGrowth));
  }
  const auto c = solve(equations, 0b101);
  if (!c) return fit_of.refused("the steps' times cannot be told apart by what they read");
  const double bandwidth = device.bandwidth().value;
  const double reading = (*c)[0] - fixed_seconds;  // of the weights
  const double linear = weights / (reading * bandwidth), attention = 1 / ((*c)[2] * bandwidth);
  if (!(reading > 0) || !((*c)[2] > 0)) {
    return fit_of.refused("the steps' times do not grow with cache and weights: too short a run, or a busy machine");
  }
  constexpr double kLeastShare = 0.01;  // that a device file may state
  if (linear < kLeastShare || attention < kLeastShare) {
    return fit_of.refused("what grows with the cache cannot be told from noise: too short a run, or a busy machine");
  }
  if (linear > kAboveLimit) {
    throw Error(fmt::format("steps read their weights at {:.0f} % of the bandwidth of {}: they lay in a cache",
                            100 * linear, device.name));
  }
  if (attention > kAboveLimit) {
    throw Error(fmt::format("steps read their cache at {:.0f} % of the bandwidth of {}: it lay in a faster one",
                            100 * attention, device.name));
  }
  KernelFit result;
  const double error = mean_error(equations, *c);
  fit_of.put(F::kLinearFraction, std::min(linear, 1.0), std::max(kLeastSpread, error));
  fit_of.put(F::kAttentionFraction, std::min(attention, 1.0), std::max(kLeastSpread, error));
  result.samples = equations.size();
  result.test_error = error;
  result.facts = {F::kLinearFraction, F::kAttentionFraction};
  return result;
}

}  // namespace kvroof
