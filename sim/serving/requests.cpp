#include "sim/serving/requests.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/core/philox.hpp"

namespace kvroof {
namespace {

// What is drawn for a request; each has random numbers of its own.
enum class Purpose : std::uint32_t { kArrival, kPrompt, kOutput, kPause };

// A sequence of numbers in (0, 1) for one purpose of one request.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint32_t request, Purpose purpose)
      : seed_(seed), request_(request), purpose_(static_cast<std::uint32_t>(purpose)) {}

  double uniform() {
    const Philox4 bits = philox4x32_10({{next_++, request_, purpose_, 0x73657276U}}, seed_);
    const std::uint64_t wide = (std::uint64_t{bits.x[0]} << 32 | bits.x[1]) >> 11;
    return (static_cast<double>(wide) + 0.5) * 0x1p-53;
  }
  // Box and Muller's.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  // Marsaglia and Tsang's (2000), mean `shape`.
  double gamma(double shape) {
    if (shape < 1) {
      const double power = std::pow(uniform(), 1 / shape);
      return gamma(shape + 1) * power;
    }
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  std::uint64_t seed_;
  std::uint32_t request_, purpose_;
  std::uint32_t next_ = 0;
};

std::uint32_t length_of(double mean, double spread, Draws draws) {
  if (spread == 0) return static_cast<std::uint32_t>(mean);
  const double variance = std::log1p(spread * spread);  // of the logarithm
  const double length = mean * std::exp(std::sqrt(variance) * draws.normal() - variance / 2);
  return static_cast<std::uint32_t>(std::clamp(std::round(length), 1.0, 1e9));
}

}  // namespace

std::vector<double> draw_pauses(std::uint32_t count, double mean, std::uint64_t seed) {
  std::vector<double> pauses(count);
  for (std::uint32_t i = 0; i < count; ++i) pauses[i] = -mean * std::log(Draws(seed, i, Purpose::kPause).uniform());
  return pauses;
}

std::vector<Request> draw_requests(const DrawnRequests& drawn) {
  std::vector<Request> requests;
  requests.reserve(drawn.count);
  double arrival = 0;
  for (std::uint32_t i = 0; i < drawn.count; ++i) {
    const std::uint32_t turn = i % drawn.turns;
    if (i > 0 && turn == 0) {
      const double gap = drawn.burstiness == 0 ? 1
                                               : Draws(drawn.seed, i, Purpose::kArrival).gamma(drawn.burstiness) /
                                                     drawn.burstiness;
      arrival += gap * drawn.turns / drawn.rate;
    }
    Request request{arrival,
                    length_of(turn == 0 ? drawn.prompt : drawn.message, drawn.spread,
                              {drawn.seed, i, Purpose::kPrompt}),
                    length_of(drawn.output, drawn.spread, {drawn.seed, i, Purpose::kOutput})};
    request.conversation = i / drawn.turns;
    request.turn = turn + 1;
    request.thoughts = static_cast<std::uint32_t>(drawn.thoughts * request.output + 1e-9);  // 0.29 of 100 are 29
    request.follows = turn > 0;
    requests.push_back(request);
  }
  return requests;
}

}  // namespace kvroof
