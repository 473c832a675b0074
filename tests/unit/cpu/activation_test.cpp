#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                                       Activation::kRelu2};

double exact(Activation f, double x) {
  switch (f) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      return x * (1 + std::tanh(inner)) / 2;
    }
    case Activation::kRelu2: return x > 0 ? x * x : 0;
    default: return x > 0 ? x : 0;
  }
}

// The whole range in which the functions bend, and beyond.
std::vector<float> arguments(std::size_t count) {
  std::vector<float> x = numbers(count, 30);
  for (float& value : x) value *= 12;
  const float ends[] = {0.0F, -0.0F, 1e-30F, -1e-6F, 200.0F, -200.0F, -87.5F, 3.0e4F, -3.0e4F};
  for (std::size_t i = 0; i < std::size(ends) && i + 3 < count; ++i) x[i + 3] = ends[i];
  return x;
}

// Of each number by itself, so that large ones cannot hide small ones.
bool all_close(std::span<const float> results, std::span<const double> expected) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double difference = std::abs(static_cast<double>(results[i]) - expected[i]);
    if (!(difference <= 6e-7 * std::max(1.0, std::abs(expected[i])))) {
      UNSCOPED_INFO("element " << i << " is " << results[i] << ", expected " << expected[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("activate equals silu, gelu by erf, gelu by tanh, relu and its square in double precision, in place") {
  for (const Activation f : kActivations) {
    for (const std::size_t count : {1, 15, 16, 17, 1000, 70000}) {
      const std::vector<float> x = arguments(count);
      std::vector<double> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = exact(f, static_cast<double>(x[i]));
      on_every_back_end([&](Ops& ops) {
        INFO("activation " << static_cast<int>(f) << ", count " << count);
        std::vector<float> out = x;
        ops.activate(f, out);
        CHECK(all_close(out, expected));
        CHECK(ops.counters()[Cause::kActivations] == 2 * count * 4);
        CHECK(ops.counters().total() == 2 * count * 4);
      });
    }
  }
}

TEST_CASE("gated equals f(gate) · up for every activation, also in place") {
  for (const Activation f : kActivations) {
    for (const std::size_t count : {1, 15, 16, 17, 1000, 70000}) {
      const std::vector<float> gate = arguments(count);
      const std::vector<float> up = numbers(count, 31);
      std::vector<double> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = exact(f, static_cast<double>(gate[i])) * static_cast<double>(up[i]);
      }
      on_every_back_end([&](Ops& ops) {
        INFO("activation " << static_cast<int>(f) << ", count " << count);
        std::vector<float> out = poisoned(count);
        ops.gated(f, gate, up, out);
        CHECK(all_close(out, expected));
        CHECK(ops.counters()[Cause::kActivations] == 3 * count * 4);
        CHECK(ops.counters().total() == 3 * count * 4);
        std::vector<float> in_place = gate;
        ops.gated(f, in_place, up, in_place);
        CHECK(same_bits(in_place, out));
      });
    }
  }
}

TEST_CASE("the two forms of gelu differ: neither stands in for the other") {
  on_every_back_end([](Ops& ops) {
    std::vector<float> by_erf = {1.0F, -2.0F};
    std::vector<float> by_tanh = by_erf;
    ops.activate(Activation::kGelu, by_erf);
    ops.activate(Activation::kGeluTanh, by_tanh);
    CHECK(by_erf[0] == Approx(0.841344746).epsilon(1e-6));  // Φ(1)
    CHECK(by_erf[1] == Approx(-2 * 0.0227501319).epsilon(2e-5));
    CHECK(by_tanh[0] == Approx(0.841191990).epsilon(1e-6));
    CHECK(by_tanh[1] == Approx(-0.0454022920).epsilon(2e-5));
  });
}

TEST_CASE("a clamped gate is (up + 1) · g · sigmoid(1.702 g) of a gate up to 7 and an up within 7 of 0") {
  for (const std::size_t count : {1, 15, 16, 17, 1000, 70000}) {
    const std::vector<float> gate = arguments(count), up = arguments(count);
    std::vector<double> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double g = std::min(static_cast<double>(gate[i]), 7.0);
      expected[i] = (std::clamp(static_cast<double>(up[i]), -7.0, 7.0) + 1) * g / (1 + std::exp(-1.702 * g));
    }
    on_every_back_end([&](Ops& ops) {
      std::vector<float> out = gate;
      ops.gated(Activation::kClampedSwiglu, out, up, out);
      CHECK(all_close(out, expected));
    });
  }
}

TEST_CASE("no activation hides a NaN, in whole vectors or behind them") {
  for (const Activation f : kActivations) {
    for (const std::size_t last : {std::size_t{0}, std::size_t{15}, std::size_t{39}}) {
      std::vector<float> x(last + 1, 1.0F);
      x[last] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> ones(last + 1, 1.0F);
      on_every_back_end([&](Ops& ops) {
        INFO("activation " << static_cast<int>(f) << ", count " << last + 1);
        std::vector<float> of_gate(last + 1), of_up(last + 1);
        ops.gated(f, x, ones, of_gate);
        ops.gated(f, ones, x, of_up);
        std::vector<float> clamped_gate(last + 1), clamped_up(last + 1);
        ops.gated(Activation::kClampedSwiglu, x, ones, clamped_gate);
        ops.gated(Activation::kClampedSwiglu, ones, x, clamped_up);
        std::vector<float> plain = x;
        ops.activate(f, plain);
        for (std::size_t i = 0; i <= last; ++i) {
          CHECK(std::isnan(of_gate[i]) == (i == last));
          CHECK(std::isnan(of_up[i]) == (i == last));
          CHECK(std::isnan(clamped_gate[i]) == (i == last));
          CHECK(std::isnan(clamped_up[i]) == (i == last));
          CHECK(std::isnan(plain[i]) == (i == last));
        }
      });
    }
  }
}

TEST_CASE("cap multiplies by the scale, then bends by softcap · tanh(x / softcap), and counts nothing") {
  for (const std::size_t count : {1, 16, 33, 70000}) {
    std::vector<float> x = numbers(count, 32);
    for (std::size_t i = 0; i < count; ++i) x[i] *= i % 3 == 0 ? 100.0F : i % 3 == 1 ? 3.0F : 1e-3F;
    for (const float scale : {1.0F, 0.0625F}) {
      for (const float softcap : {0.0F, 30.0F}) {
        on_every_back_end([&](Ops& ops) {
          INFO("count " << count << ", scale " << scale << ", softcap " << softcap);
          std::vector<float> out = x;
          ops.cap(out, scale, softcap);
          bool close = true;
          for (std::size_t i = 0; i < count; ++i) {
            const double scaled = static_cast<double>(scale) * static_cast<double>(x[i]);
            const double cap = static_cast<double>(softcap);
            const double expected = cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
            close = close && std::abs(static_cast<double>(out[i]) - expected) <= 6e-7 * std::abs(expected);
          }
          CHECK(close);
          CHECK(ops.counters().total() == 0);
        });
      }
    }
  }
  on_every_back_end([](Ops& ops) {
    std::vector<float> x(20, 1.0F);
    x[19] = std::numeric_limits<float>::quiet_NaN();
    ops.cap(x, 2.0F, 30.0F);
    CHECK(std::isnan(x[19]));
    CHECK(x[18] == Approx(30 * std::tanh(2.0 / 30)));
  });
}
