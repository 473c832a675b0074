#include <array>
#include <atomic>
#include <vector>

#include "sim/core/checked.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/error.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/core/units.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("a typo is answered with the nearest name, a foreign word with none") {
  const std::vector<std::string> names = {"full", "h2o", "keyformer", "window"};
  CHECK(nearest_name("keyfomer", names) == "keyformer");
  CHECK(nearest_name("Window", names) == "window");
  CHECK(nearest_name("h20", names) == "h2o");
  CHECK(nearest_name("fulll", names) == "full");
  CHECK(nearest_name("wnidwo", names) == "window");  // letters exchanged twice, each of which is one step
  CHECK_FALSE(nearest_name("zebra", names).has_value());
  CHECK_FALSE(nearest_name("", names).has_value());
  CHECK_FALSE(nearest_name(std::string(1'000'000, 'k'), names).has_value());
  CHECK(did_you_mean("keyfomer", names) == "; did you mean keyformer?");
  CHECK(did_you_mean("zebra", names).empty());
  CHECK(did_you_mean_any("keyfomer", names) == "; did you mean keyformer?");
  CHECK(join(names) == "full, h2o, keyformer, window");
}

TEST_CASE("what means several names alike is answered with the nearest three, in their order") {
  const std::vector<std::string> names = {"a10", "h20", "h200", "qwen-14b", "qwen-7b", "qwen-72b", "qwen3-4b"};
  CHECK(did_you_mean_any("h10", names) == "; did you mean a10 or h20?");
  CHECK(did_you_mean_any("qwen", names) == "; did you mean qwen-14b, qwen-7b or qwen-72b?");
  CHECK(did_you_mean_any("zebra", names).empty());
}

TEST_CASE("what begins one name alone is answered with that name, however near others are") {
  const std::vector<std::string> names = {"qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b"};
  CHECK(did_you_mean_any("qwen3-235", names) == "; did you mean qwen3-235b-a22b?");
  CHECK(did_you_mean_any("qwen3-3", names) == "; did you mean qwen3-32b?");  // two letters away, where two begin so
}

TEST_CASE("one thing is counted in the singular, and none or several in the plural") {
  CHECK(counted(0, "token") == "0 tokens");
  CHECK(counted(1, "token") == "1 token");
  CHECK(counted(2, "prompt token") == "2 prompt tokens");
}

TEST_CASE("sums and products that wrap are refused, and a zero does not hide a wrap") {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 40;
  CHECK(checked_add(kLarge, 1) == kLarge + 1);
  CHECK_FALSE(checked_add(~std::uint64_t{0}, 1).has_value());
  CHECK_FALSE(checked_mul(kLarge, kLarge).has_value());
  CHECK(checked_product(std::array<std::uint64_t, 3>{2, 3, 4}) == 24);
  CHECK(checked_product(std::array<std::uint64_t, 2>{0, 4}) == 0);
  CHECK_FALSE(checked_product(std::array<std::uint64_t, 3>{kLarge, 0, kLarge}).has_value());
}

TEST_CASE("a parallel loop visits each index once, for one thread and for several") {
  for (const unsigned threads : {1U, 2U, 5U}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const std::size_t count : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      pool.parallel_for(count, [&](std::size_t i) { visits[i] += 1; });
      CHECK(std::ranges::all_of(visits, [](const auto& v) { return v == 1; }));
    }
  }
}

TEST_CASE("a parallel loop passes on an exception and can be used again") {
  ThreadPool pool(3);
  CHECK_THROWS_AS(pool.parallel_for(100,
                                    [](std::size_t i) {
                                      if (i == 42) throw Error("stop");
                                    }),
                  Error);
  std::atomic<std::size_t> sum = 0;
  pool.parallel_for(100, [&](std::size_t i) { sum += i; });
  CHECK(sum == 4950);
}

TEST_CASE("a result holds a value or one sentence, and becomes an error that says where") {
  const Result<int> good(3);
  CHECK(good.ok());
  Result<int> bad(failure("expected {}", 5));
  CHECK(bad.error() == "expected 5");
  try {
    (void)std::move(bad).or_throw("f.bin", ExitCode::kUsage);
    FAIL("an error is thrown");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "f.bin: expected 5");
    CHECK(error.code() == ExitCode::kUsage);
  }
}

TEST_CASE("bytes over bandwidth and flops over peak are seconds") {
  CHECK((Bytes(100) / BytesPerSecond(50)).value == 2);
  CHECK((Flops(30) / FlopsPerSecond(10)).value == 3);
  CHECK(gib(Bytes(std::uint64_t{3} << 30)) == 3);
}
