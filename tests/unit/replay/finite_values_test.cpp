#include "sim/replay/finite_values.hpp"

#include <limits>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof {
namespace {

using namespace kvroof::test;

// Two layers of two KV heads, of which v, or k, of layer 1, head 1 and token 5 has an element that is none.
class DamagedValues {
 public:
  explicit DamagedValues(float element, bool in_keys = false) {
    Qkv shape;
    shape.layers = 2;
    shape.tokens = 16;
    Qkv x = random_qkv(shape, 3);
    (in_keys ? x.k : x.v)[((std::size_t{1} * 2 + 1) * x.tokens + 5) * x.d + 2] = element;
    TraceOptions options;
    options.prompt = 10;
    write_trace(folder_.path() / "x.kvt", x, options);
  }
  std::vector<PointResult> replay_of(const std::string& policies, MeasureOptions measure) const {
    ThreadPool pool(1);
    ReplayOptions options;
    options.measure = measure;
    return replay(TraceReader::open(folder_.path() / "x.kvt"), parse_policies(policies), options, pool);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("a recorded v that is NaN or infinite is refused with its place by every replay that reads v") {
  for (const float element : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const DamagedValues trace(element);
    const MeasureOptions all, recall{true, false}, none{false, false};
    const auto place = ContainsSubstring("v holds NaN or infinity (sequence 0, layer 1, KV head 1, token 5)");
    CHECK_THROWS_WITH(trace.replay_of("window:budget=4", all), place);
    CHECK_THROWS_WITH(trace.replay_of("keyformer:budget=4:score=shared", all), place);  // layers side by side
    CHECK_THROWS_WITH(trace.replay_of("vatp:budget=4", none), place);
    CHECK(trace.replay_of("window:budget=4", recall).front().quality->recall_mean > 0);
  }
}

TEST_CASE("a recorded k that is NaN or infinite is refused with its place by every replay") {
  const DamagedValues trace(std::numeric_limits<float>::quiet_NaN(), true);
  const auto place = ContainsSubstring("k holds NaN or infinity (sequence 0, layer 1, KV head 1, token 5)");
  CHECK_THROWS_WITH(trace.replay_of("window:budget=4", {true, false}), place);
  CHECK_THROWS_WITH(trace.replay_of("h2o:budget=4", {false, false}), place);
}

}  // namespace kvroof
