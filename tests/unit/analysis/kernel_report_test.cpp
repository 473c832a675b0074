#include "analysis/kernel_report.hpp"

#include <algorithm>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

KernelReport report_of(const std::filesystem::path& trace) {
  const KernelReader reader = KernelReader::open(trace);
  KernelReportBuilder builder;
  reader.for_each_work([&](const WorkRow& row) { builder.add(row); });
  reader.for_each_counter([&](const CounterRecord& counter) { builder.add(counter); });
  return builder.finish();
}

WorkRow row(std::uint64_t start, std::uint64_t end, std::uint32_t device = 0, std::uint32_t stream = 0) {
  WorkRow r;
  r.work.start_ns = start;
  r.work.end_ns = end;
  r.work.device = device;
  r.work.stream = stream;
  r.name = "k";
  return r;
}

}  // namespace

// The numbers follow from the times and bytes that tests/support/profile.hpp lists.
TEST_CASE("A kernel report adds up time and bytes by operator, step and cause") {
  const TemporaryFolder folder;
  write_profile_trace(folder.path() / "run.kvt");
  const KernelReport r = report_of(folder.path() / "run.kvt");
  REQUIRE(r.operators.size() == 2);
  const WorkTotals& qkv = r.operators[0];
  CHECK(qkv.name == "qkv");
  CHECK(qkv.calls == 2);
  CHECK(qkv.total_ns == 400 + 300);
  CHECK(qkv.min_ns == 300);
  CHECK(qkv.max_ns == 400);
  CHECK(qkv.bytes == 2 * 800);
  CHECK(qkv.flops == 2 * 1600);
  CHECK(qkv.bytes_per_second() == Approx(1600 / 700e-9));
  const WorkTotals& attention = r.operators[1];
  CHECK(attention.name == "attention");
  CHECK(attention.total_ns == 500);
  CHECK(attention.bytes == 300 + 100 + 450 + 150);
  CHECK(r.all_kernels.calls == 4);
  CHECK(r.all_kernels.total_ns == 1200);
  REQUIRE(r.copies.size() == 1);
  CHECK(r.copies[0].bytes == 4096);
  CHECK(r.copies[0].total_ns == 100);
  REQUIRE(r.steps.size() == 2);
  CHECK(r.steps[0].of(Cause::kWeights) == Approx(700));
  CHECK(r.steps[0].kv_ns() == Approx(200 * 300 / 400.0));
  CHECK(r.steps[0].policy_ns() == Approx(50));
  CHECK(r.steps[1].total_ns() == Approx(300));
  CHECK(r.steps[1].kv_ns() == Approx(225));
  CHECK(r.policy_ns == Approx(50 + 75));
  CHECK(r.policy_bytes == 250);
  CHECK(r.elapsed_ns == 1600);
  CHECK(r.idle_ns == 300);
  CHECK(r.gaps == 3);
  CHECK(r.longest_gap_ns == 100);
  REQUIRE(r.counted.size() == 1);
  CHECK(r.counted[0].counted.bytes == 1200);
  CHECK(r.counted[0].counted.declared == 2 * 800 + 400);
}

TEST_CASE("A kernel that was made ready while the one before it ran is timed from the end of that one on") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.kvt";
  {
    TraceWriter writer(path, profile_manifest());
    ProfileSink& to = writer.profile();
    to.add(kernel(1000, 1400, 10, "gemm", 5));
    to.add(kernel(1100, 1500, 10, kAttention, 6));  // waited for 300
    to.add(kernel(1200, 1700, 10, "gemm", 7));      // and this one for both
    KernelRecord elsewhere = kernel(1250, 1650, 10, "gemm", 7);
    elsewhere.work.stream = 8;  // waits for none of them
    to.add(elsewhere);
    to.add(kernel(1300, 1600, 11, "copy_if"));  // nobody said that it waits
    to.add(OperatorRecord{5, 10, 0, 0, "qkv", "weights", 800, 0});
    to.add(OperatorRecord{6, 10, 0, 0, "attention", "kv_read", 100, 0});
    to.add(OperatorRecord{7, 10, 0, 0, "output", "weights", 400, 0});
    writer.seal();
  }
  const KernelReport r = report_of(path);
  const auto ns_of = [&](std::string_view name) {
    const auto it = std::find_if(r.operators.begin(), r.operators.end(), [&](const auto& o) { return o.name == name; });
    REQUIRE(it != r.operators.end());
    return it->total_ns;
  };
  CHECK(ns_of("qkv") == 400);
  CHECK(ns_of("attention") == 100);
  CHECK(ns_of("output") == 200 + 400);
  CHECK(ns_of("copy_if") == 300);
  CHECK(r.steps[0].total_ns() == Approx(400 + 100 + 600));
}

TEST_CASE("A GPU that two processes share is idle only while neither has work on it") {
  const TemporaryFolder folder;
  {
    TraceWriter writer(folder.path() / "run.kvt", profile_manifest());
    ProfileSink& to = writer.profile();
    for (const std::uint32_t process : {42U, 43U}) {
      DeviceRecord device;
      device.device = process - 42;  // which each numbers for itself
      device.process = process;
      device.uuid = "GPU-a";
      to.add(device);
      for (std::uint64_t start = process == 42 ? 0 : 100; start < 1000; start += 300) {
        KernelRecord work = kernel(1000 + start, 1100 + start, 1, "gemm");
        work.work.process = process;
        work.work.device = device.device;
        to.add(work);
      }
    }
    writer.seal();
  }
  const KernelReport r = report_of(folder.path() / "run.kvt");
  // 1000..1100 of one, 1100..1200 of the other, and again from 1300, 1600 and (of the first alone) 1900 on.
  CHECK(r.elapsed_ns == 1000);
  CHECK(r.idle_ns == 3 * 100);
  CHECK(r.gaps == 3);
  CHECK(r.without_gpu == 0);
}

TEST_CASE("Two processes that number their devices alike are timed each for itself") {
  KernelReportBuilder builder;
  builder.add(row(0, 100));
  WorkRow other = row(1000, 1100);
  other.work.process = 7;
  builder.add(other);
  const KernelReport r = builder.finish();
  CHECK(r.elapsed_ns == 200);
  CHECK(r.idle_ns == 0);
  CHECK(r.without_gpu == 2);  // which a reader is told
}

TEST_CASE("Counted bytes stand beside what the engine counted for the same steps, kernels or not") {
  KernelReportBuilder builder;
  for (std::uint32_t step = 0; step < 4; ++step) builder.add_step(step, ByteCounters{{100, 20, 0, 0, 0, step}});
  builder.add(CounterRecord{1, 2, 0, 0, "dram__bytes_read.sum", 240});
  builder.add(CounterRecord{1, 2, 0, 0, "dram__bytes_write.sum", 10});
  builder.add(CounterRecord{3, 0xffffffffU, 0, 0, "dram__bytes_read.sum", 1});
  const KernelReport r = builder.finish();
  REQUIRE(r.counted.size() == 2);
  CHECK(r.counted[0].counted.bytes == 250);
  CHECK(r.counted[0].counted.declared == 121 + 122);
  CHECK(r.counted[0].counted.comparable());
  CHECK(r.counted[1].counted.declared == 123);
  CHECK_FALSE(r.counted[1].counted.comparable());
}

TEST_CASE("Launches that were counted one by one give their operator counted bytes, and what was declared for them") {
  KernelReportBuilder builder;
  for (const std::uint32_t step : {0U, 1U}) {
    builder.add_step(step, ByteCounters{{500, 0, 0, 0, 0, 0}});
    builder.add(CounterRecord{step, 1, 0, 0, "dram__bytes_read.sum", 210, 3, "qkv", 200});
    builder.add(CounterRecord{step, 1, 0, 0, "dram__bytes_write.sum", 10, 3, "qkv", 200});
    builder.add(CounterRecord{step, 1, 0, 0, "sm__cycles_active.avg", 7, 3, "qkv", 200});
  }
  builder.add(CounterRecord{1, 1, 0, 0, "dram__bytes_read.sum", 300, -1, "head", 300});
  const KernelReport r = builder.finish();
  REQUIRE(r.operators.size() == 2);
  CHECK(r.operators[0].name == "qkv");  // no kernels were recorded: by their counted bytes
  CHECK(r.operators[0].calls == 0);
  CHECK(r.operators[0].counted.bytes == 2 * 220);
  CHECK(r.operators[0].counted.declared == 2 * 200);
  CHECK(r.operators[0].bytes == 2 * 200);
  CHECK_FALSE(r.operators[1].counted.comparable());  // of one direction alone
  CHECK(r.all_kernels.counted.bytes == 2 * 220 + 300);
  REQUIRE(r.counted.size() == 2);
  CHECK(r.counted[1].counted.bytes == 220 + 300);
  CHECK(r.counted[1].counted.declared == 500);  // of the step
}

TEST_CASE("A device idles only while none of its streams works, and each device for itself") {
  KernelReportBuilder builder;
  builder.add(row(0, 100, 0, 1));
  builder.add(row(10, 20, 0, 2));  // inside the first
  builder.add(row(50, 60, 1, 1));
  builder.add(row(90, 150, 0, 2));
  builder.add(row(170, 180, 0, 1));
  builder.add(row(260, 300, 1, 1));
  const KernelReport r = builder.finish();
  CHECK(r.idle_ns == (170 - 150) + (260 - 60));
  CHECK(r.gaps == 2);
  CHECK(r.longest_gap_ns == 200);
  CHECK(r.elapsed_ns == 180 + 250);
}

TEST_CASE("Launches without times count as calls and not as time") {
  KernelReportBuilder builder;
  WorkRow untimed = row(0, 0);
  untimed.meaning = KernelMeaning{3, 0, "attention", "scores", {}, 0};
  untimed.meaning->declared.add(Cause::kKvRead, 1000);
  builder.add(untimed);
  WorkRow timed = untimed;
  timed.work.start_ns = 500;
  timed.work.end_ns = 700;
  builder.add(timed);
  const KernelReport r = builder.finish();
  REQUIRE(r.operators.size() == 1);
  CHECK(r.operators[0].calls == 2);
  CHECK(r.operators[0].mean_ns() == Approx(200));
  CHECK(r.operators[0].min_ns == 200);
  CHECK(r.operators[0].bytes_per_second() == Approx(1000 / 200e-9));
  CHECK(r.elapsed_ns == 200);
}

TEST_CASE("A kernel that declares no bytes gives its time to its cause") {
  KernelReportBuilder builder;
  WorkRow compaction = row(100, 140);
  compaction.meaning = KernelMeaning{0, -1, "move", "compaction", {}, 0};
  builder.add(compaction);
  CHECK(builder.finish().policy_ns == Approx(40));
}
