// Work that is measured: made once, captured, and made again and again.
#include "kernels/cuda/measure/timing.hpp"

#include "kernels/cuda/measure/cold_memory.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

TEST_CASE("work is made once before its launches are captured: no graph meets code or memory that is not there") {
  OpenStream open;
  std::vector<std::pair<unsigned, bool>> calls;
  const auto note = [&](unsigned i) { calls.emplace_back(i, open.get().captured != nullptr); };
  TimedWork work(open.get(), 2, note, kEmulatedBytesPerSecond);
  CHECK(calls == std::vector<std::pair<unsigned, bool>>{{0, false}, {0, true}, {1, true}});
  CHECK(work.run() == 1 + kEmulatedStartSeconds);  // a second's bytes
  CHECK(calls.size() == 3);  // what was captured is what runs
}

TEST_CASE("what is measured runs its launches once in every run") {
  OpenStream open;
  const DeviceBuffer from = uploaded(open.get(), std::vector<std::uint32_t>{1, 2, 3, 4}), to(16);
  TimedWork work(open.get(), 3, [&](unsigned) { run_copy(open.get(), from.at(), to.at(), 16); });
  DeviceBuffer fresh = uploaded(open.get(), std::vector<std::uint32_t>{5, 6, 7, 8});
  copy_to_device(open.get(), from.at(), {fresh.at(), 16});
  work.run();
  std::vector<std::uint32_t> got(4);
  copy_to_host(open.get(), std::as_writable_bytes(std::span(got)), to.at());
  CHECK(got == std::vector<std::uint32_t>{5, 6, 7, 8});
}

TEST_CASE("work that throws while its launches are captured leaves a stream that launches") {
  OpenStream open;
  unsigned calls = 0;
  const auto work = [&](unsigned) {
    if (++calls == 3) throw Error("refused");
  };
  CHECK_THROWS_WITH(TimedWork(open.get(), 4, work), "refused");
  CHECK(calls == 3);
  CHECK(open.get().captured == nullptr);
  CHECK(synchronize(open.get()) == nullptr);
}
