#include "sim/replay/bounds.hpp"

#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

PointResult point(const std::string& spec, double recall) {
  PointResult result;
  result.spec = parse_policies(spec).front();
  result.quality.emplace().recall_mean = recall;
  return result;
}

}  // namespace

TEST_CASE("a point's position is the share of the way from random to oracle that its mean recall goes") {
  const std::vector<PointResult> all = {point("h2o:budget=0.5", 0.75), point("random:budget=50%", 0.5),
                                        point("oracle:budget=0.5", 0.9), point("window:budget=0.5", 0.4)};
  CHECK(*position_between_bounds(all[0], all) == Approx(0.625));  // 0.25 / 0.4
  CHECK(*position_between_bounds(all[1], all) == 0);
  CHECK(*position_between_bounds(all[2], all) == 1);
  CHECK(*position_between_bounds(all[3], all) == Approx(-0.25));  // worse than random
}

TEST_CASE("a point has no position unless random and oracle were replayed at its own budget and differ") {
  const std::vector<PointResult> all = {point("random:budget=0.5", 0.5), point("oracle:budget=0.2", 0.7),
                                        point("h2o:budget=0.5", 0.6),    point("h2o:budget=0.2", 0.6),
                                        point("random:budget=64", 1),    point("oracle:budget=64", 1),
                                        point("h2o:budget=64", 1),       point("random:budget=0.5@current", 0.2),
                                        point("full", 1),                point("random:budget=0.2:recent=4", 0.3)};
  for (const PointResult& p : all) CHECK_FALSE(position_between_bounds(p, all));
  PointResult undecoded = point("h2o:budget=0.5", 0.6);
  undecoded.quality.reset();
  const std::vector<PointResult> bounds = {point("random:budget=0.5", 0.5), point("oracle:budget=0.5", 0.9)};
  CHECK_FALSE(position_between_bounds(undecoded, bounds));
}
