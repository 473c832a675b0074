// The emulator of a device, by itself.
#include "kernels/cuda/emulator.hpp"

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pinned.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

TEST_CASE("lanes hand each other what they had at that exchange, however many follow at once") {
  constexpr unsigned kThreads = 48;  // the second warp is half full
  std::vector<std::vector<unsigned>> got(kThreads);
  emulator::run({3, 1, 1}, {kThreads, 1, 1}, [&] {
    const unsigned thread = emulator::thread_index.x, lanes = thread < 32 ? 32 : 16;
    for (unsigned round = 0; round < 5; ++round) {
      got[thread].push_back(emulator::from_lane(1000 * round + thread, (thread + round) % lanes));
      if (round == 2) emulator::sync_block();
    }
  });
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    const unsigned first = thread / 32 * 32, lanes = thread < 32 ? 32 : 16;
    REQUIRE(got[thread].size() == 15);
    for (unsigned i = 0; i < 15; ++i) {
      const unsigned round = i % 5;
      CHECK(got[thread][i] == 1000 * round + first + (thread + round) % lanes);
    }
  }
}

TEST_CASE("votes count the lanes that are there, and none of an earlier vote") {
  std::vector<std::uint32_t> votes(4);
  emulator::run({1, 1, 1}, {40, 1, 1}, [&] {
    const unsigned thread = emulator::thread_index.x;
    const std::uint32_t all = emulator::ballot(true), odd = emulator::ballot(thread % 2 == 1);
    if (thread % 32 != 0) return;
    votes[thread / 32 * 2] = all;
    votes[thread / 32 * 2 + 1] = odd;
  });
  CHECK(votes == std::vector<std::uint32_t>{0xffffffff, 0xaaaaaaaa, 0xff, 0xaa});
}

TEST_CASE("threads that wait in different places are reported, and the next launch starts from its beginning") {
  const auto stuck = [] {
    if (emulator::thread_index.x == 0) return emulator::sync_warp();
    emulator::sync_block();
  };
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_AS(emulator::run({1, 1, 1}, {32, 1, 1}, stuck), std::logic_error);
    unsigned began = 0, ended = 0;
    emulator::run({2, 1, 1}, {64, 1, 1}, [&] {
      ++began;
      emulator::sync_block();
      ended += began % 64 == 0;  // none goes on before all of its block are there
    });
    CHECK(began == 128);
    CHECK(ended == 128);
  }
}

TEST_CASE("a thread that has left is waited for no longer") {
  unsigned ended = 0;
  emulator::run({1, 1, 1}, {64, 1, 1}, [&] {
    if (emulator::thread_index.x % 2 == 1) return;
    emulator::sync_warp();
    emulator::sync_block();
    ++ended;
  });
  CHECK(ended == 32);
}

TEST_CASE("lanes that come to an exchange by different ways are reported: a device hands them anything") {
  const auto warp = [](const std::function<void(unsigned lane)>& body) {
    emulator::run({1, 1, 1}, {32, 1, 1}, [&] { body(emulator::thread_index.x); });
  };
  const auto branches = [](unsigned lane) {
    if (lane < 16) {
      from_lane_xor(lane, 1);
    } else {
      from_lane_xor(lane, 1);
    }
  };
  const auto votes = [](unsigned lane) {
    if (lane == 3) return sync_warp();
    lanes_where(true);
  };
  const auto together = [](unsigned lane) {
    for (unsigned mask = 16; mask > 0; mask /= 2) lane += from_lane_xor(lane, mask);
  };
  CHECK_THROWS_WITH(warp(branches), Catch::Contains("in different places: emulator_test.cpp:"));
  CHECK_THROWS_AS(warp(votes), std::logic_error);
  CHECK_NOTHROW(warp(together));
}

TEST_CASE("a value of a lane that has left, or never was, is reported") {
  const auto take = [](unsigned threads, unsigned from, unsigned leaving) {
    emulator::run({1, 1, 1}, {threads, 1, 1}, [=] {
      if (thread_x() == leaving) return;
      sync_warp();
      from_lane(thread_x(), from);
    });
  };
  CHECK_NOTHROW(take(32, 5, 32));
  CHECK_THROWS_WITH(take(32, 5, 5), Catch::Contains("a lane that is not there"));
  CHECK_THROWS_WITH(take(16, 20, 32), Catch::Contains("a lane that is not there"));
}

TEST_CASE("shared memory holds nothing that a block could count on when it begins") {
  std::vector<unsigned> found;
  emulator::run({3, 1, 1}, {2, 1, 1}, [&] {
    KV_SHARED(unsigned, shared, 1);
    if (thread_x() == (emulator::backwards ? 1 : 0)) found.push_back(*shared);
    sync_block();
    *shared = 7;
    sync_block();
    CHECK(*shared == 7);
  });
  CHECK(found == std::vector<unsigned>(3, 0xffffffffU));
}

TEST_CASE("what is copied to shared memory is there when its thread has waited for it, and not before") {
  alignas(16) const std::uint32_t from[4] = {1, 2, 3, 4};
  std::vector<std::uint32_t> found;
  emulator::run({1, 1, 1}, {1, 1, 1}, [&] {
    KV_SHARED(std::uint32_t, shared, 4);
    copy_to_shared(shared, from);
    sync_block();
    found.push_back(shared[3]);
    await_copies();
    found.push_back(shared[3]);
  });
  CHECK(found == std::vector<std::uint32_t>{0xffffffffU, 4});
}

TEST_CASE("a copy from the host takes what lies there when it is made, as late as it may be") {
  Stream stream;
  REQUIRE(open_stream(stream) == nullptr);
  void* memory = nullptr;
  REQUIRE(allocate(sizeof(int), &memory) == nullptr);
  int sent = 1, got = 0;
  REQUIRE(copy_in(stream, memory, &sent, sizeof sent) == nullptr);
  sent = 2;  // too early
  REQUIRE(copy_out(stream, &got, memory, sizeof got) == nullptr);
  CHECK(got == 2);
  release(memory);
  close_stream(stream);
}

namespace {

// A number of the device, and what a kernel found of it before and after it waited for the launch before.
struct SeenArguments {
  unsigned* number = nullptr;
  unsigned* seen = nullptr;  // [2]
  bool writes_early = false;
};

KV_PLAIN_KERNEL void add_seven(SeenArguments a) {
  await_previous();
  if (block_x() == 0 && thread_x() == 0) *a.number += 7;
}

KV_PLAIN_KERNEL void look(SeenArguments a) {
  KV_SHARED(unsigned, first, 1);
  allow_next();
  if (thread_x() == 0) *first = *a.number;
  if (a.writes_early) *a.number = 100;
  sync_block();
  await_previous();
  if (thread_x() > 0) return;
  a.seen[0] = *first;
  a.seen[1] = *a.number;
}

// What is found of a number that is 1 until `launches` add seven to it.
std::pair<unsigned, unsigned> found_after(const std::function<void(Stream&, SeenArguments)>& launches,
                                          bool writes_early = false) {
  Stream stream;
  REQUIRE(open_stream(stream) == nullptr);
  void* memory = nullptr;
  REQUIRE(allocate(3 * sizeof(unsigned), &memory) == nullptr);
  auto* const numbers = static_cast<unsigned*>(memory);
  const unsigned one = 1;
  REQUIRE(copy_in(stream, numbers, &one, sizeof one) == nullptr);
  launches(stream, {numbers, numbers + 1, writes_early});
  unsigned seen[2] = {};
  REQUIRE(copy_out(stream, seen, numbers + 1, sizeof seen) == nullptr);
  release(memory);
  close_stream(stream);
  return {seen[0], seen[1]};
}

}  // namespace

TEST_CASE("what a kernel reads before it waits is as old as it may be: no launch before it has written by then") {
  using Found = std::pair<unsigned, unsigned>;
  const auto both = [](Stream& stream, const SeenArguments& a) {
    launch(stream, &add_seven, {2}, 32, a);
    launch(stream, &add_seven, {1}, 64, a);  // as early as its own predecessor: launches overlap in a chain
    launch(stream, &look, {1}, 64, a);
  };
  CHECK(found_after(both) == Found{1, 15});
  CHECK(found_after([&](Stream& stream, const SeenArguments& a) {
          void* graph = nullptr;
          REQUIRE(begin_capture(stream) == nullptr);
          both(stream, a);
          REQUIRE(end_capture(stream, &graph) == nullptr);
          REQUIRE(launch_graph(stream, graph) == nullptr);
          release_graph(graph);
        }) == Found{1, 15});
  // Nothing overlaps what is launched one by one, or a copy, or a library's launch.
  CHECK(found_after([&](Stream& stream, const SeenArguments& a) {
          stream.one_by_one = true;
          both(stream, a);
        }) == Found{15, 15});
  CHECK(found_after([&](Stream& stream, const SeenArguments& a) {
          launch(stream, &add_seven, {1}, 32, a);
          static_cast<emulator::LaunchQueue*>(stream.handle)->submit([=] { *a.number *= 2; });
          launch(stream, &look, {1}, 64, a);
        }) == Found{16, 16});
}

TEST_CASE("what a kernel writes before it waits is found by the launches before it") {
  CHECK(found_after(
            [](Stream& stream, const SeenArguments& a) {
              launch(stream, &add_seven, {1}, 32, a);
              launch(stream, &look, {1}, 64, a);
            },
            true)
            .second == 107);
}
