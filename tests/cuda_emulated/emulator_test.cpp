// The emulator of a device, by itself.
#include "kernels/cuda/emulator.hpp"

#include <cstdint>
#include <stdexcept>
#include <vector>

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
  std::vector<std::uint32_t> votes;
  emulator::run({1, 1, 1}, {40, 1, 1}, [&] {
    const unsigned thread = emulator::thread_index.x;
    const std::uint32_t all = emulator::ballot(true), odd = emulator::ballot(thread % 2 == 1);
    if (thread % 32 == 0) votes.insert(votes.end(), {all, odd});
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
