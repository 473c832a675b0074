#include "sim/replay/residency_log.hpp"

#include <random>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

Residency head_of(std::uint32_t steps, std::uint32_t layers) {
  Residency head;
  head.policy = "h2o:budget=4";
  head.steps = steps;
  head.layers = layers;
  return head;
}

}  // namespace

TEST_CASE("a residency log gives back every cell it was given") {
  std::mt19937 engine(7);
  Residency expected = head_of(300, 3);
  expected.cells.resize(301 * 3);
  ResidencyLog log(head_of(300, 3));
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t step = 0; step <= 300; ++step) {
      LayerCounts& c = expected.at(step, layer);
      // Layer 0 grows, layer 1 is a saw-tooth, layer 2 has no pattern.
      c.attended = layer == 0 ? 100 + step : layer == 1 ? 50 + step % 17 : engine() % 5;
      c.resident = c.attended - 1;
      c.moved = layer == 2 ? std::uint64_t{engine()} << 32 : 0;
      c.policy_flops.scoring = layer == 1 ? 0.1 * step : 3.0 * static_cast<double>(c.attended);
      log.append(layer, c);
    }
  }
  const Residency full = log.expand();
  CHECK(full.policy == "h2o:budget=4");
  CHECK(full.cells == expected.cells);
  const Residency layer1 = log.expand_layer(1);
  CHECK(layer1.layers == 1);
  CHECK(layer1.at(123, 0) == expected.at(123, 1));
}

TEST_CASE("a residency log of a steady layer does not grow with the steps") {
  std::uint64_t bytes[2] = {};
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t steps = i == 0 ? 100 : 100000;
    ResidencyLog log(head_of(steps, 1));
    for (std::uint32_t step = 0; step <= steps; ++step) {
      LayerCounts c;
      c.attended = step == 0 ? 5050 : 100 + step;
      c.resident = 100 + step;
      log.append(0, c);
    }
    bytes[i] = log.bytes();
    CHECK(log.expand().at(steps, 0).resident == 100 + steps);
  }
  CHECK(bytes[0] == bytes[1]);
  CHECK(bytes[0] < 1024);
}
