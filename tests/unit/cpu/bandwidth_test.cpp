#include "kernels/cpu/bandwidth.hpp"

#include <sys/resource.h>

#include <set>

#include "kernels/cpu/fast_kernels.hpp"
#include "tests/support/in_child.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;

TEST_CASE("the last-level cache and the buffer that it cannot hold have plausible sizes") {
  CHECK(last_level_cache_bytes() >= 256 * 1024);
  CHECK(last_level_cache_bytes() <= (std::uint64_t{1} << 34));
  CHECK(uncached_bytes() >= 4 * last_level_cache_bytes() - (1 << 20));
  CHECK(uncached_bytes() >= 256 << 20);
}

TEST_CASE("read_sum reads every word once: a change anywhere changes the sum by as much") {
  twin::on_every_target([] {
    for (const std::size_t words : {1, 7, 64, 65, 1000}) {
      std::vector<std::uint64_t> buffer(words, 3);
      const auto sum = [&] { return fast::read_sum(std::as_bytes(std::span(buffer))); };
      CHECK(sum() == 3 * words);
      for (std::size_t i = 0; i < words; ++i) {
        buffer[i] += 100;
        CHECK(sum() == 3 * words + 100);
        buffer[i] -= 100;
      }
    }
  });
}

TEST_CASE("stream_copy copies every byte and none behind") {
  twin::on_every_target([] {
    AlignedBytes from(4096), to(4096);
    for (std::size_t i = 0; i < from.size(); ++i) {
      from.data()[i] = static_cast<std::byte>(i * 7 % 251);
      to.data()[i] = std::byte{255};
    }
    fast::stream_copy({from.data(), 4032}, {to.data(), 4032});
    CHECK(std::equal(from.data(), from.data() + 4032, to.data()));
    CHECK(std::all_of(to.data() + 4032, to.data() + 4096, [](std::byte b) { return b == std::byte{255}; }));
  });
}

TEST_CASE("a measured bandwidth is one that a machine can have") {
  // Slower than the slowest memory that runs this, or faster than any memory, means a wrong count of bytes or passes.
  const std::optional<double> bandwidth = measure_read_bandwidth(default_threads(), 0.2);
  REQUIRE(bandwidth);
  CHECK(*bandwidth > 0.2e9);
  CHECK(*bandwidth < 10e12);
}

TEST_CASE("a buffer that was flushed from the caches is read more slowly than one that lies in them") {
  if (!MemoryProbe::can_flush()) return;
  constexpr std::uint64_t kBytes = 1 << 20;
  MemoryProbe probe(1, kBytes);
  Timing cached, flushed;
  for (int i = 0; i < 20; ++i) {
    cached.run([&] { probe.read_next(kBytes); });
    probe.flush();
    flushed.run([&] { CHECK(probe.read_next(kBytes) == kBytes / 8 * 0x0101010101010101U); });
  }
  CHECK(flushed.best() > cached.best());
}

TEST_CASE("a bandwidth is measured in no more memory than a run reads where caches can be flushed") {
  for (const unsigned threads : {1U, 2U, 16U, 64U}) {
    const std::uint64_t bytes = bandwidth_buffer_bytes(threads);
    if (MemoryProbe::can_flush()) CHECK(bytes <= 256 << 20);
    CHECK(bytes >= std::uint64_t{threads} * (4 << 20));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("where not all threads are to be had no bandwidth is measured, and the program goes on") {
  const int code = kvroof::test::in_child([] {
    const rlimit none{1, 1};  // bytes of addresses: no stacks beside those that other threads have left
    setrlimit(RLIMIT_AS, &none);
    _exit(measure_read_bandwidth(512, 0.01) ? 1 : 0);
  });
  CHECK(code == 0);
}
#endif

TEST_CASE("a buffer is read in windows, one after the other and from the start again, every word of each once") {
  constexpr std::uint64_t kBytes = 10 << 20;
  MemoryProbe probe(2, kBytes);
  const std::uint64_t all = probe.read();  // of words that hold eight times the byte 1
  CHECK(all == kBytes / 8 * 0x0101010101010101U);
  for (int i = 0; i < 5; ++i) CHECK(probe.read_next(kBytes / 4) == kBytes / 4 / 8 * 0x0101010101010101U);
  CHECK(probe.read_next(3 * kBytes / 4) == 3 * kBytes / 4 / 8 * 0x0101010101010101U);
  CHECK_THROWS(probe.read_next(kBytes + 64));
}

TEST_CASE("a window divides what no cache holds, and is long beside the start of a parallel loop") {
  for (const unsigned threads : {1U, 2U, 64U}) {
    CHECK(window_bytes(threads) <= uncached_bytes());
    CHECK(window_bytes(threads) >= std::uint64_t{threads} << 20);
  }
}

TEST_CASE("the spread is that of the quicker runs: disturbed ones do not widen it") {
  Timing timing;
  for (const double seconds : {9.0, 1.3, 8.0, 1.0, 30.0, 7.0, 1.1, 10.0, 9.5, 1.2, 50.0, 6.0}) timing.add(seconds);
  CHECK(timing.runs() == 12);
  CHECK(timing.best() == 1.0);
  CHECK(timing.spread() == Approx(0.3));  // a quarter of the runs took less than 1.3
}
