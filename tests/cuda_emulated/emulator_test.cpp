// The emulator of a device, by itself.
#include "kernels/cuda/emulator.hpp"

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/device.cuh"
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
