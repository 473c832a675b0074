// GPU time by the application's ranges.
#include "analysis/range_report.hpp"

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

RangeReport report_of(const std::filesystem::path& trace) {
  RangeReportBuilder builder;
  for_each_range_and_work(
      trace, [&](const ThreadRange& range) { builder.add(range); },
      [&](const LaunchedWork& work) { builder.add(work); });
  return builder.finish();
}

RangeReport report_of(const std::function<void(ProfileSink&)>& fill) {
  const TemporaryFolder folder;
  TraceWriter writer(folder.path() / "run.kvt", profile_manifest());
  fill(writer.profile());
  writer.seal();
  return report_of(folder.path() / "run.kvt");
}

const RangeTotals& of(const RangeReport& report, std::string_view text) {
  const auto found = std::ranges::find(report.ranges, text, &RangeTotals::text);
  REQUIRE(found != report.ranges.end());
  return *found;
}

// A call at `at` on a thread of process 42, and the kernel that it launches, which runs from `start` to `end`.
void launch(ProfileSink& to, std::uint64_t at, std::uint32_t thread, std::uint64_t start, std::uint64_t end,
            std::uint32_t correlation) {
  to.add(CallRecord{at, at + 5, 42, thread, correlation, 0, false, "cudaLaunchKernel"});
  to.add(kernel(start, end, correlation, "k"));
}

}  // namespace

// The numbers follow from the times that tests/support/profile.hpp lists.
TEST_CASE("A range has the work that its thread launched in it, whenever that ran, and all kernels of a graph") {
  const RangeReport r = report_of(add_small_profile);
  REQUIRE(r.ranges.size() == 2);
  const RangeTotals& first = of(r, "step 0");
  CHECK(first.ranges == 1);
  CHECK(first.kernels == 2);
  CHECK(first.total_ns == 400 + 200);
  CHECK(first.own_ns == 600);
  CHECK(first.span_ns == 1700 - 1000);
  const RangeTotals& second = of(r, "step 1");
  CHECK(second.total_ns == 300 + 300);
  CHECK(second.span_ns == 600);
  // Its call began between the two ranges, and it ran within the second.
  CHECK(r.outside.copies == 1);
  CHECK(r.outside.kernels == 0);
  CHECK(r.outside.total_ns == 100);
  CHECK(r.all.kernels == 4);
  CHECK(r.all.copies == 1);
  CHECK(r.all.total_ns == first.total_ns + second.total_ns + 100);
}

TEST_CASE("A range has what ranges inside it launched, and apart from it what it launched itself") {
  const RangeReport r = report_of([](ProfileSink& to) {
    to.add(RangeRecord{100, 900, 42, 43, "forward"});
    to.add(RangeRecord{100, 300, 42, 43, "layer"});
    to.add(RangeRecord{400, 600, 42, 43, "layer"});
    launch(to, 150, 43, 1000, 1010, 1);
    launch(to, 350, 43, 1010, 1030, 2);
    launch(to, 500, 43, 1030, 1070, 3);
    launch(to, 900, 43, 1070, 1150, 4);  // when the range ends: outside
  });
  const RangeTotals& forward = of(r, "forward");
  CHECK(forward.total_ns == 10 + 20 + 40);
  CHECK(forward.own_ns == 20);
  CHECK(forward.span_ns == 70);
  const RangeTotals& layer = of(r, "layer");
  CHECK(layer.ranges == 2);
  CHECK(layer.kernels == 2);
  CHECK(layer.total_ns == 10 + 40);
  CHECK(layer.own_ns == 50);
  CHECK(layer.span_ns == 50);
  CHECK(r.outside.total_ns == 80);
  CHECK(r.ranges[0].text == "forward");
  // Own times and what is outside are all work, each piece once.
  CHECK(forward.own_ns + layer.own_ns + r.outside.total_ns == r.all.total_ns);
}

TEST_CASE("A range inside one of the same text is the same work, counted once") {
  const RangeReport r = report_of([](ProfileSink& to) {
    to.add(RangeRecord{100, 900, 42, 43, "walk"});
    to.add(RangeRecord{200, 800, 42, 43, "walk"});
    launch(to, 250, 43, 1000, 1100, 1);
    launch(to, 850, 43, 1100, 1400, 2);
  });
  const RangeTotals& walk = of(r, "walk");
  CHECK(walk.ranges == 2);
  CHECK(walk.kernels == 2);
  CHECK(walk.total_ns == 400);
  CHECK(walk.own_ns == 400);
  CHECK(walk.span_ns == 400);
}

TEST_CASE("What other threads and other processes launch meanwhile is not in a range") {
  const RangeReport r = report_of([](ProfileSink& to) {
    to.add(RangeRecord{100, 900, 42, 43, "mine"});
    to.add(RangeRecord{100, 900, 42, 44, "idle"});
    launch(to, 150, 43, 1000, 1010, 1);
    launch(to, 150, 45, 1010, 1030, 2);
    to.add(CallRecord{150, 160, 99, 43, 1, 0, false, "cudaLaunchKernel"});  // the same number in another process
    to.add(kernel(1030, 1070, 7, "k"));  // whose call was not recorded
    // The driver's call within the runtime's has its number too.
    to.add(CallRecord{151, 154, 42, 43, 1, 0, true, "cuLaunchKernel"});
  });
  CHECK(of(r, "mine").total_ns == 10);
  CHECK(of(r, "mine").kernels == 1);
  CHECK(of(r, "idle").ranges == 1);
  CHECK(of(r, "idle").total_ns == 0);
  CHECK(r.outside.total_ns == 20 + 40);
  CHECK(r.all.kernels == 3);
}

TEST_CASE("Ranges that overlap without holding each other end each at its own time") {
  const RangeReport r = report_of([](ProfileSink& to) {
    to.add(RangeRecord{100, 500, 42, 43, "a", true});
    to.add(RangeRecord{300, 900, 42, 43, "b", true});
    launch(to, 400, 43, 1000, 1010, 1);
    launch(to, 600, 43, 1010, 1030, 2);
  });
  CHECK(of(r, "a").total_ns == 10);
  CHECK(of(r, "a").own_ns == 0);  // b began later
  CHECK(of(r, "b").total_ns == 30);
  CHECK(of(r, "b").own_ns == 30);
}
