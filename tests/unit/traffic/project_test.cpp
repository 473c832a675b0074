#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

ModelShape shape(std::uint32_t layers, std::uint32_t heads, std::uint32_t kv_heads) {
  ModelShape s;
  s.layers = layers;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = s.v_head_dim = 8;
  return s;
}

const Room kAll = [](std::uint32_t prompt, std::uint32_t step) { return std::uint64_t{prompt} + step; };

// floor(share · prompt), which does not grow.
Room share_of_prompt(double share) {
  return [share](std::uint32_t prompt, std::uint32_t) { return static_cast<std::uint64_t>(share * prompt); };
}

}  // namespace

TEST_CASE("projecting on the same shape and lengths changes no count") {
  const std::pair<Residency, Room> cases[] = {{synthetic::full({40, 12}), kAll},
                                              {synthetic::fraction({40, 12}, 0.5), share_of_prompt(0.5)},
                                              {synthetic::sawtooth({40, 32}, 16), share_of_prompt(0.4)}};
  for (const auto& [r, room] : cases) {
    const ModelShape s = shape(r.layers, r.storage_heads, r.storage_heads);
    const Residency same = project(r, s, s, {r.prompt, r.steps}, room);
    for (std::size_t i = 0; i < r.cells.size(); ++i) {
      INFO("cell " << i);
      CHECK(same.cells[i].attended == r.cells[i].attended);
      CHECK(same.cells[i].resident == r.cells[i].resident);
      CHECK(same.cells[i].written == r.cells[i].written);
      CHECK(same.cells[i].moved == r.cells[i].moved);
    }
  }
}

TEST_CASE("what a policy looks at, in the prompt and while decoding, stays so on other shapes and in sums") {
  for (const bool prompt : {false, true}) {
    Residency r = synthetic::fraction({40, 12}, 0.5);
    r.needs_probabilities = prompt;
    r.observes_steps = !prompt;
    const ModelShape s = shape(r.layers, r.storage_heads, r.storage_heads);
    const Residency other = project(r, s, shape(2 * r.layers, 4, 4), {80, 24}, share_of_prompt(0.5));
    for (const ResidencySummary& sum : {summarise(r), summarise(other)}) {
      CHECK(sum.needs_probabilities == prompt);
      CHECK(sum.observes_steps == !prompt);
    }
  }
}

TEST_CASE("full attention stays full attention on every shape and length") {
  const Residency small = synthetic::full({48, 16}, 6, 4);
  for (const synthetic::Lengths to : {synthetic::Lengths{48, 16}, {2048, 2048}, {1000, 7}, {31, 64}}) {
    const Residency projected = project(small, shape(6, 4, 4), shape(32, 32, 8), {to.prompt, to.output}, kAll);
    const Residency expected = synthetic::full(to, 32, 8);
    REQUIRE(projected.cells.size() == expected.cells.size());
    for (std::size_t i = 0; i < expected.cells.size(); ++i) {
      REQUIRE(projected.cells[i].attended == expected.cells[i].attended);
      REQUIRE(projected.cells[i].resident == expected.cells[i].resident);
      REQUIRE(projected.cells[i].written == expected.cells[i].written);
    }
  }
}

TEST_CASE("a budget of half the prompt stays half of the other prompt, however much is generated") {
  const Residency small = synthetic::fraction({48, 16}, 0.5, 6, 4);
  const Residency big = project(small, shape(6, 4, 4), shape(32, 32, 32), {4096, 4096}, share_of_prompt(0.5));
  const Residency expected = synthetic::fraction({4096, 4096}, 0.5, 32, 32);
  CHECK(big.at(4096, 31).resident == expected.at(4096, 31).resident);
  CHECK(big.at(1, 0).attended == expected.at(1, 0).attended);
  CHECK(big.at(0, 7).attended == expected.at(0, 7).attended);
  const double full = summarise(synthetic::full({4096, 4096}, 32, 32)).attended_rows();
  CHECK(full / summarise(big).attended_rows() == Approx(3.0).epsilon(0.02));
}

TEST_CASE("a share of the prompt is rounded for the target's prompt, not scaled from the recorded rounding") {
  // Half of 7 is 3, which is 3/7 of the prompt; half of 4096 is 2048.
  const Residency small = synthetic::fraction({7, 6}, 0.5, 2, 2);
  const Residency big = project(small, shape(2, 2, 2), shape(4, 8, 8), {4096, 100}, share_of_prompt(0.5));
  const Residency expected = synthetic::fraction({4096, 100}, 0.5, 4, 8);
  for (std::uint32_t step = 0; step <= 100; ++step) {
    CHECK(big.at(step, 2).resident == expected.at(step, 2).resident);
    CHECK(big.at(step, 2).moved == expected.at(step, 2).moved);
    if (step > 0) CHECK(big.at(step, 2).attended == expected.at(step, 2).attended);
    if (step > 0) CHECK(big.at(step, 2).allocated == expected.at(step, 2).allocated);
  }
}

TEST_CASE("a budget that grows with the length is followed step by step, however few steps were recorded") {
  const Room third = [](std::uint32_t prompt, std::uint32_t step) { return (std::uint64_t{prompt} + step) / 3; };
  Residency small = synthetic::fraction({32, 5}, 1.0 / 3, 1, 1);
  for (std::uint32_t step = 0; step <= 5; ++step) small.at(step, 0).resident = third.target(32, step, 0);
  const Residency big = project(small, shape(1, 1, 1), shape(1, 4, 4), {1000, 2000}, third);
  for (std::uint32_t step = 0; step <= 2000; ++step) CHECK(big.at(step, 0).resident == 4 * third.target(1000, step, 0));
}

TEST_CASE("one layer of a projection is that layer of the whole") {
  const Residency small = synthetic::fraction({48, 16}, 0.25, 6, 4);
  const Residency whole = project(small, shape(6, 4, 4), shape(8, 16, 2), {300, 40}, share_of_prompt(0.25));
  for (std::uint32_t layer = 0; layer < 8; ++layer) {
    const Residency one =
        project_layer(small, shape(6, 4, 4), shape(8, 16, 2), {300, 40}, share_of_prompt(0.25), layer);
    CHECK(one.layers == 1);
    for (std::uint32_t step = 0; step <= 40; ++step) CHECK(one.at(step, 0) == whole.at(step, layer));
  }
}

TEST_CASE("a layer takes the counts of the layer at its relative depth") {
  Residency small = synthetic::full({10, 2}, 3, 1);
  for (std::uint32_t layer = 0; layer < 3; ++layer) small.at(0, layer).moved = 10 * (layer + 1);
  const Residency six = project(small, shape(3, 1, 1), shape(6, 1, 1), {10, 2}, share_of_prompt(0.5));
  for (std::uint32_t layer = 0; layer < 6; ++layer) CHECK(six.at(0, layer).moved == 10 * (layer / 2 + 1));
  const Residency one = project(small, shape(3, 1, 1), shape(1, 1, 1), {10, 2}, share_of_prompt(0.5));
  CHECK(one.at(0, 0).moved == 20);
}

TEST_CASE("layers that a policy leaves alone are the first ones of every model, and the depth is that of the others") {
  Residency small = synthetic::full({10, 2}, 4, 1);
  small.dense_layers = 2;
  for (std::uint32_t layer = 0; layer < 4; ++layer) small.at(0, layer).moved = 10 * (layer + 1);
  const Residency big = project(small, shape(4, 1, 1), shape(8, 1, 1), {10, 2}, share_of_prompt(0.5));
  const std::uint64_t from[] = {1, 2, 3, 3, 3, 4, 4, 4};
  for (std::uint32_t layer = 0; layer < 8; ++layer) CHECK(big.at(0, layer).moved == 10 * from[layer]);
  small.dense_layers = 4;
  CHECK_THROWS_AS(project(small, shape(4, 1, 1), shape(8, 1, 1), {10, 2}, kAll), Error);
  CHECK(project(small, shape(4, 1, 1), shape(3, 1, 1), {10, 2}, kAll).at(0, 2).written == 10);
}

TEST_CASE("rows in pages are those of heads that hold alike, and what uneven heads took beside it in the recording") {
  Residency r = synthetic::full({20, 1}, 1, 2);
  for (std::uint32_t step = 0; step <= 1; ++step) r.at(step, 0).allocated_paged = 64;  // 20 rows each, and 21
  const Room room = kAll;
  CHECK(project(r, shape(1, 2, 2), shape(1, 2, 2), {20, 1}, room).at(1, 0).allocated_paged == 64);
  CHECK(project(r, shape(1, 2, 2), shape(1, 8, 8), {35, 1}, room).at(1, 0).allocated_paged == 8 * 48);
  for (std::uint32_t step = 0; step <= 1; ++step) r.at(step, 0).allocated_paged = 48;  // 10 and 32 of them
  CHECK(project(r, shape(1, 2, 2), shape(1, 2, 2), {20, 1}, room).at(1, 0).allocated_paged == 48);
  CHECK(project(r, shape(1, 2, 2), shape(1, 8, 8), {35, 1}, room).at(1, 0).allocated_paged == 8 * 48 - 4 * 16);
}

TEST_CASE("a saw-tooth keeps its mean occupancy of three quarters and never exceeds its budget") {
  const Residency small = synthetic::sawtooth({128, 512}, 64);
  const Residency big = project(small, shape(1, 1, 1), shape(1, 1, 1), {1024, 2000}, share_of_prompt(0.5));
  double sum = 0;
  for (std::uint32_t step = 1; step <= big.steps; ++step) {
    CHECK(big.at(step, 0).resident <= 512);
    sum += static_cast<double>(big.at(step, 0).resident);
  }
  CHECK(sum / big.steps == Approx(0.75 * 512).epsilon(0.02));
}

TEST_CASE("occasional compaction moves as many rows a decoded token on the other shape") {
  const Residency small = synthetic::sawtooth({128, 512}, 64);
  const Residency big = project(small, shape(1, 1, 1), shape(1, 1, 1), {1024, 4096}, share_of_prompt(0.5));
  const double before = static_cast<double>(summarise(small).decode.moved) / 512;
  const double after = static_cast<double>(summarise(big).decode.moved) / 4096;
  CHECK(after == Approx(before).epsilon(0.01));
}

TEST_CASE("policy state follows the attended rows and the heads") {
  Residency small = synthetic::fraction({100, 10}, 0.5, 1, 2);
  for (LayerCounts& c : small.cells) c.state_read = 4 * c.attended;
  const Residency big = project(small, shape(1, 2, 2), shape(1, 8, 8), {1000, 100}, share_of_prompt(0.5));
  CHECK(big.at(50, 0).state_read == 4 * big.at(50, 0).attended);
  CHECK(big.at(0, 0).state_read == 4 * big.at(0, 0).attended);
}

TEST_CASE("what is stored per query head is stored per query head of the other model") {
  const Residency per_query = synthetic::full({10, 2}, 1, 8);
  CHECK(project(per_query, shape(1, 8, 2), shape(1, 32, 4), {10, 2}, kAll).storage_heads == 32);
  CHECK(project(synthetic::full({10, 2}, 1, 2), shape(1, 8, 2), shape(1, 32, 4), {10, 2}, kAll).storage_heads == 4);
}

TEST_CASE("a recording without decoded tokens projects a prompt only") {
  const Residency r = synthetic::fraction({100, 0}, 0.5, 1, 1);
  CHECK_THROWS_AS(project(r, shape(1, 1, 1), shape(2, 1, 1), {200, 5}, share_of_prompt(0.5)), Error);
  CHECK(project(r, shape(1, 1, 1), shape(2, 1, 1), {200, 0}, share_of_prompt(0.5)).at(0, 1).resident == 100);
}

}  // namespace kvroof
