#include "kernels/cpu/calibration.hpp"

#include "kernels/cpu/fast_kernels.hpp"
#include "sim/core/error.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;

TEST_CASE("a share of 100 % passes within the resolution, one above is refused with both names and what to do") {
  CHECK_NOTHROW(refuse_above_limit("a product", 10, "reading", 10));
  CHECK_NOTHROW(refuse_above_limit("a product", 10.1, "reading", 10));
  try {
    refuse_above_limit("a product", 10.5, "reading", 10);
    FAIL("105 % was accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("a product reached 105.0 % of reading") != std::string::npos);
    CHECK(error.code() == ExitCode::kFailure);
    CHECK(error.notes().size() == 1);
  }
}

TEST_CASE("multiplying in registers counts what it does: twice the rounds, twice the operations") {
  twin::on_every_target([] {
    const std::uint64_t once = fast::multiply_add_in_registers(1000);
    CHECK(once > 0);
    CHECK(fast::multiply_add_in_registers(2000) == 2 * once);
  });
}
