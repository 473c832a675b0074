#include "sim/replay/finite_values.hpp"

#include <cmath>
#include <limits>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof {
namespace {

using namespace kvroof::test;

// Two layers of two KV heads, of which v, k or q of layer 1, head 1 and token 5 has an element that is none.
class DamagedValues {
 public:
  explicit DamagedValues(float element, std::vector<float> Qkv::* in = &Qkv::v,
                         std::size_t token = 5) {
    Qkv shape;
    shape.layers = 2;
    shape.tokens = 16;
    Qkv x = random_qkv(shape, 3);
    (x.*in)[((std::size_t{1} * 2 + 1) * x.tokens + token) * x.d + 2] = element;
    TraceOptions options;
    options.prompt = 10;
    write_trace(folder_.path() / "x.kvt", x, options);
  }
  std::vector<PointResult> replay_of(const std::string& policies, MeasureOptions measure) const {
    return replay_of(parse_policies(policies), measure);
  }
  std::vector<PointResult> replay_of(const std::vector<PolicySpec>& points, MeasureOptions measure) const {
    ThreadPool pool(1);
    ReplayOptions options;
    options.measure = measure;
    return replay(TraceReader::open(folder_.path() / "x.kvt"), points, options, pool);
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
  const DamagedValues trace(std::numeric_limits<float>::quiet_NaN(), &Qkv::k);
  const auto place = ContainsSubstring("k holds NaN or infinity (sequence 0, layer 1, KV head 1, token 5)");
  CHECK_THROWS_WITH(trace.replay_of("window:budget=4", {true, false}), place);
  CHECK_THROWS_WITH(trace.replay_of("h2o:budget=4", {false, false}), place);
}

TEST_CASE("a recorded q that is NaN, or a product that overflows, is refused with its place and what holds it") {
  const std::string where = "x.kvt: ", place = " (sequence 0, layer 1, query head 1, token 12), so nothing";
  for (const std::string policy : {"window:budget=4", "h2o:budget=4", "keyformer:budget=4:score=shared"}) {
    INFO(policy);
    const DamagedValues trace(std::numeric_limits<float>::infinity(), &Qkv::q, 12);
    CHECK_THROWS_WITH(trace.replay_of(policy, {}), ContainsSubstring(where + "q holds NaN or infinity" + place));
    const DamagedValues large(std::numeric_limits<float>::max(), &Qkv::q, 12);
    CHECK_THROWS_WITH(large.replay_of(policy, {}),
                      ContainsSubstring(where + "q·k is beyond the range of float" + place));
  }
}

TEST_CASE("queries of a prompt that no policy looks at meet no key, whether the prompt is streamed or not") {
  const DamagedValues trace(std::numeric_limits<float>::infinity(), &Qkv::q, 5);
  for (const std::string how : {"once", "stream", "4"}) {
    INFO(how);
    const PointResult point = trace.replay_of("streaming:budget=6:sinks=1:prompt=" + how, {}).front();
    CHECK(point.residency[0].expand().at(0, 1).resident == 2 * 6);
  }
  CHECK_THROWS_WITH(trace.replay_of("scissorhands:budget=6:prompt=stream", {}), ContainsSubstring("q holds NaN"));
}

TEST_CASE("a recorded v of which sums overflow is refused, and the largest of which none can gives an output error") {
  const float most = std::ldexp(1.0F, 100);
  for (const float element : {most, -most, std::numeric_limits<float>::max()}) {
    const auto place = ContainsSubstring("v holds an element beyond ±2^100, of which a sum may overflow (sequence 0, "
                                         "layer 1, KV head 1, token 5)");
    CHECK_THROWS_WITH(DamagedValues(element).replay_of("window:budget=4", {}), place);
  }
  const DamagedValues largest(std::nextafter(most, 0.0F));
  for (const PointResult& point : largest.replay_of("full,window:budget=4,h2o:budget=4", {})) {
    CHECK(std::isfinite(point.quality->output_error.value()));
  }
}

TEST_CASE("a recorded v that a cache of another type cannot hold is refused with its place and the type") {
  // Half precision ends at 65504; int8 has a scale in single precision.
  const DamagedValues trace(1e6F);
  for (const KvType type : {KvType::kInt4G64, KvType::kKivi2, KvType::kKivi4, KvType::kInt8}) {
    std::vector<PolicySpec> points = parse_policies("window:budget=4");
    points.front().kv = type;
    INFO(name_of(type));
    if (type == KvType::kInt8) {
      CHECK(std::isfinite(trace.replay_of(points, {}).front().quality->output_error.value()));
    } else {
      CHECK_THROWS_WITH(trace.replay_of(points, {}),
                        ContainsSubstring(fmt::format("v holds an element beyond what a cache of {} can hold (sequence "
                                                      "0, layer 1, KV head 1, token 5)", name_of(type))));
      CHECK(trace.replay_of(points, {true, false}).front().quality->recall_mean > 0);
    }
  }
}

}  // namespace kvroof
