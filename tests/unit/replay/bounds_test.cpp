#include "sim/replay/bounds.hpp"

#include <optional>
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

// One layer of two heads, 10 tokens of prompt and two steps, which read `first` and `second` rows of both together.
PointResult reading(const std::string& spec, std::uint64_t first, std::uint64_t second) {
  PointResult result = point(spec, 0.75);
  Residency head;
  head.prompt = 10;
  head.steps = 2;
  head.layers = 1;
  head.storage_heads = 2;
  ResidencyLog& log = result.residency.emplace_back(head);
  for (const std::uint64_t rows : {std::uint64_t{110}, first, second}) {
    LayerCounts counts;
    counts.attended = rows;
    log.append(0, counts);
  }
  return result;
}

std::optional<double> position(const PointResult& p, const std::vector<PointResult>& all) {
  const std::optional<BoundRecalls> bounds = bounds_of(p, all);
  return bounds ? std::optional(bounds->position(p.quality->recall_mean)) : std::nullopt;
}

std::vector<std::string> texts(const std::vector<PolicySpec>& specs) {
  std::vector<std::string> texts;
  for (const PolicySpec& spec : specs) texts.push_back(spec.text());
  return texts;
}

}  // namespace

TEST_CASE("a point's position is the share of the way from random to oracle that its mean recall goes") {
  const std::vector<PointResult> all = {point("h2o:budget=0.5", 0.75), point("random:budget=50%", 0.5),
                                        point("oracle:budget=0.5", 0.9), point("window:budget=0.5", 0.4)};
  CHECK(*position(all[0], all) == Approx(0.625));  // 0.25 / 0.4
  CHECK(*position(all[1], all) == 0);
  CHECK(*position(all[2], all) == 1);
  CHECK(*position(all[3], all) == Approx(-0.25));  // worse than random
}

TEST_CASE("a point has no position unless random and oracle were replayed at its own budget and differ") {
  const std::vector<PointResult> all = {point("random:budget=0.5", 0.5), point("oracle:budget=0.2", 0.7),
                                        point("h2o:budget=0.5", 0.6),    point("h2o:budget=0.2", 0.6),
                                        point("random:budget=64", 1),    point("oracle:budget=64", 1),
                                        point("h2o:budget=64", 1),       point("random:budget=0.5@current", 0.2),
                                        point("full", 1),                point("random:budget=0.2:recent=4", 0.3)};
  for (const PointResult& p : all) CHECK_FALSE(bounds_of(p, all));
  PointResult undecoded = point("h2o:budget=0.5", 0.6);
  undecoded.quality.reset();
  const std::vector<PointResult> bounds = {point("random:budget=0.5", 0.5), point("oracle:budget=0.5", 0.9)};
  CHECK_FALSE(bounds_of(undecoded, bounds));
}

TEST_CASE("a policy without a budget meets the bounds at as many tokens as its heads read in the mean") {
  const PointResult duo = reading("duo", 12, 16);  // 6 and 8 a head, its own token among them
  CHECK(bound_budget(duo)->kind == Budget::Kind::kTokens);
  CHECK(bound_budget(duo)->value == 6);
  const std::vector<PointResult> all = {duo, point("random:budget=6", 0.5), point("oracle:budget=6", 1)};
  CHECK(*position(duo, all) == Approx(0.5));
  CHECK_FALSE(bound_budget(reading("threshold", 22, 24)));  // 11 and 12 of 11 and 12 tokens: all there are
  CHECK(bound_budget(reading("h2o:budget=3", 8, 8))->text == "3");
}

TEST_CASE("the bounds that are missing are those of each budget once, but for those that were asked for") {
  const std::vector<PointResult> points = {point("h2o:budget=0.5", 0.7), point("window:budget=50%", 0.6),
                                           point("random:budget=0.5", 0.5), reading("duo", 12, 16),
                                           point("full", 1)};
  CHECK(texts(missing_bounds(std::span(points).first(4))) ==
        std::vector<std::string>{"oracle:budget=0.5", "random:budget=6", "oracle:budget=6"});
  CHECK(missing_bounds(std::span(points).last(1)).empty());
}
