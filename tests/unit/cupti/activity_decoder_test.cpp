// CUPTI's activity buffers, made by hand, to records: what is in them arrives, what is not is counted.
#include "kernels/cupti/activity_decoder.hpp"

#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct Decoded {
  KeepingSink sink;
  MadeLookup lookup;
  ActivityDecoder decoder{sink, lookup, 500};
  void operator()(const std::vector<RecordBytes>& records) { decoder.decode(buffer_of(records)); }
};

}  // namespace

TEST_CASE("A kernel record arrives with its times, shape, memory, names and graph node") {
  Decoded decoded;
  decoded({kernel_bytes(100, 250, 77, 0x1234567890ULL)});
  REQUIRE(decoded.sink.kernels.size() == 1);
  const KernelRecord& kernel = decoded.sink.kernels[0];
  CHECK(decoded.sink.names[0] == "_Z4gemvPf");
  CHECK(kernel.work.start_ns == 100);
  CHECK(kernel.work.end_ns == 250);
  CHECK(kernel.work.device == 1);
  CHECK(kernel.work.stream == 7);
  CHECK(kernel.work.correlation == 77);
  CHECK(kernel.work.graph_node == 0x1234567890ULL);
  CHECK(kernel.work.process == 500);
  CHECK(kernel.grid == std::array<std::uint32_t, 3>{11, 12, 13});
  CHECK(kernel.block == std::array<std::uint32_t, 3>{128, 2, 1});
  CHECK(kernel.registers == 40);
  CHECK(kernel.static_shared == 1000);
  CHECK(kernel.dynamic_shared == 2000);
  CHECK(kernel.shared_executed == 4096);
  CHECK(kernel.local_total == std::uint64_t{5} << 32U);  // the 64-bit field, not the deprecated one
}

TEST_CASE("Copies, fills, calls, allocations, overhead and devices arrive with the fields that name them") {
  Decoded decoded;
  decoded({RecordBytes(1, 96).put<std::uint8_t>(4, 1).put<std::uint8_t>(5, 2).put<std::uint8_t>(6, 3)
               .put<std::uint64_t>(8, 4096).put<std::uint64_t>(16, 10).put<std::uint64_t>(24, 20)
               .put<std::uint32_t>(44, 5).put<std::uint64_t>(64, 66),
           RecordBytes(2, 88).put<std::uint32_t>(4, 0xab).put<std::uint64_t>(8, 64).put<std::uint64_t>(16, 30)
               .put<std::uint64_t>(24, 31).put<std::uint16_t>(50, 3),
           RecordBytes(5, 40).put<std::uint32_t>(4, 211).put<std::uint64_t>(8, 1).put<std::uint64_t>(16, 2)
               .put<std::uint32_t>(24, 500).put<std::uint32_t>(28, 501).put<std::uint32_t>(32, 77),
           RecordBytes(4, 40).put<std::uint32_t>(4, 307).put<std::uint32_t>(36, 2),
           RecordBytes(49, 128).put<std::uint32_t>(4, 2).put<std::uint32_t>(8, 3).put<std::uint64_t>(16, 0xdead)
               .put<std::uint64_t>(24, 1 << 20).put<std::uint64_t>(32, 99).put<std::uint32_t>(52, 1),
           RecordBytes(17, 56).put<std::uint32_t>(4, 1).put<std::uint64_t>(24, 5).put<std::uint64_t>(32, 8),
           RecordBytes(8, 184).put<std::uint64_t>(16, 141ULL << 30U).put<std::uint32_t>(28, 60U << 20U)
               .put<std::uint32_t>(44, 132).put<std::uint32_t>(104, 9).put<std::uint32_t>(112, 1)
               .put<std::uint64_t>(136, 0x2000)});
  const KeepingSink& sink = decoded.sink;
  REQUIRE(sink.copies.size() == 1);
  CHECK(sink.copies[0].bytes == 4096);
  CHECK((sink.copies[0].kind == 1 && sink.copies[0].source_kind == 2 && sink.copies[0].target_kind == 3));
  CHECK((sink.copies[0].work.correlation == 5 && sink.copies[0].work.graph_node == 66));
  REQUIRE(sink.fills.size() == 1);
  CHECK((sink.fills[0].value == 0xab && sink.fills[0].bytes == 64 && sink.fills[0].memory_kind == 3));
  REQUIRE(sink.calls.size() == 2);
  CHECK((sink.call_names == std::vector<std::string>{"cudaLaunchKernel", "driver call 307"}));
  CHECK((sink.calls[0].thread == 501 && sink.calls[0].correlation == 77 && !sink.calls[0].driver));
  CHECK((sink.calls[1].driver && sink.calls[1].result == 2));
  REQUIRE(sink.memory.size() == 1);
  CHECK((sink.memory[0].release && sink.memory[0].address == 0xdead && sink.memory[0].bytes == 1 << 20));
  REQUIRE(sink.overheads.size() == 1);
  CHECK((sink.overheads[0].start_ns == 5 && sink.overheads[0].end_ns == 8 && sink.overheads[0].kind == 1));
  REQUIRE(sink.devices.size() == 1);
  CHECK((sink.devices[0].device == 1 && sink.devices[0].multiprocessors == 132 && sink.devices[0].compute_major == 9));
  CHECK((sink.devices[0].l2_bytes == 60U << 20U && sink.device_names[0] == "forward"));
}

TEST_CASE("Memory pools arrive as they are created, trimmed and destroyed, local ones with sizes, trims with limits") {
  Decoded decoded;
  const auto pool = [](std::uint32_t operation, std::uint32_t type, std::uint64_t time) {
    return RecordBytes(50, 80).put(4, operation).put(8, type).put<std::uint32_t>(12, 77).put<std::uint32_t>(16, 500)
        .put<std::uint32_t>(20, 1).put<std::uint64_t>(24, 4096).put<std::uint64_t>(32, 0xbeef0000)
        .put<std::uint64_t>(40, 1 << 25).put<std::uint64_t>(48, 1 << 21).put(56, time)
        .put<std::uint64_t>(64, 3 << 20).put<std::uint8_t>(72, 1);
  };
  decoded({pool(1, 1, 10), pool(3, 1, 20), pool(2, 2, 30), kernel_bytes(40, 50, 78)});
  const std::vector<PoolRecord>& pools = decoded.sink.pools;
  REQUIRE(pools.size() == 3);
  for (const PoolRecord& p : pools) {
    CHECK((p.correlation == 77 && p.process == 500 && p.device == 1 && p.pool.address == 0xbeef0000));
  }
  CHECK((pools[0].operation == 1 && pools[0].time_ns == 10 && pools[0].least_bytes == 0 && pools[0].pool.type == 1));
  CHECK((pools[1].operation == 3 && pools[1].time_ns == 20 && pools[1].least_bytes == 4096));
  CHECK((pools[1].pool.bytes == 1 << 25 && pools[1].pool.release_threshold == 1 << 21));
  CHECK(pools[1].pool.used_bytes == 3 << 20);
  CHECK((pools[2].operation == 2 && pools[2].pool.type == 2 && pools[2].pool.bytes == 0));
  CHECK((pools[2].pool.release_threshold == 0 && pools[2].pool.used_bytes == 0));
  CHECK(decoded.sink.kernels.size() == 1);
  CHECK(decoded.decoder.counts().lost_bytes == 0);
}

TEST_CASE("An allocation from a pool says which, one from another process's pool whose, others nothing of a pool") {
  Decoded decoded;
  const auto allocation = [](std::uint32_t pool_type) {
    return RecordBytes(49, 128).put<std::uint32_t>(4, 1).put<std::uint64_t>(16, 0xdead).put(80, pool_type)
        .put<std::uint64_t>(88, 0xbeef).put<std::uint64_t>(96, 100).put<std::uint64_t>(104, 4711)
        .put<std::uint64_t>(112, 300);
  };
  decoded({allocation(1), allocation(2), RecordBytes(49, 128).put<std::uint32_t>(4, 1)});
  REQUIRE(decoded.sink.memory.size() == 3);
  const PoolState &local = decoded.sink.memory[0].pool, &imported = decoded.sink.memory[1].pool;
  CHECK((local.type == 1 && local.address == 0xbeef && local.release_threshold == 100 && local.bytes == 4711));
  CHECK((local.used_bytes == 300 && local.owner == 0));
  CHECK((imported.type == 2 && imported.address == 0xbeef && imported.owner == 4711));
  CHECK((imported.bytes == 0 && imported.release_threshold == 0 && imported.used_bytes == 0));
  CHECK((decoded.sink.memory[2].pool.type == 0 && decoded.sink.memory[2].pool.address == 0));
}

TEST_CASE("An allocation says its call, the code that asked for it, its variable, and the stream where it is of one") {
  Decoded decoded;
  const auto allocation = [](std::uint32_t in_order) {
    return RecordBytes(49, 128).put<std::uint32_t>(4, 1).put<std::uint32_t>(12, 77).put<std::uint64_t>(40, 0xc0de)
        .put<std::uint32_t>(60, 13).put<std::uint64_t>(64, 0x2000).put(72, in_order);
  };
  decoded({allocation(1), allocation(0)});
  REQUIRE(decoded.sink.memory.size() == 2);
  for (const MemoryRecord& m : decoded.sink.memory) CHECK((m.correlation == 77 && m.code_address == 0xc0de));
  CHECK((decoded.sink.memory[0].stream == 13 && decoded.sink.memory[1].stream == -1));
  CHECK(decoded.sink.memory_names == std::vector<std::string>{"forward", "forward"});
}

TEST_CASE("A buffer that ends inside a record gives the records before it, and the cut is counted, at every byte") {
  const std::vector<std::byte> whole = buffer_of({kernel_bytes(1, 2, 3), kernel_bytes(4, 5, 6)});
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    Decoded decoded;
    // A copy of exactly that size: what reads behind it is caught by the sanitizers.
    decoded.decoder.decode(std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    CHECK(decoded.sink.kernels.size() == size / 216);
    CHECK(decoded.decoder.counts().cut == (size % 216 == 0 ? 0 : 1));
    CHECK(decoded.decoder.counts().lost_bytes == size % 216);
  }
}

TEST_CASE("A kind that is not known ends the walk of its buffer, and what lies behind it is counted as lost") {
  Decoded decoded;
  decoded({kernel_bytes(1, 2, 3), RecordBytes(4711, 64), kernel_bytes(4, 5, 6)});
  CHECK(decoded.sink.kernels.size() == 1);
  CHECK(decoded.decoder.counts().unknown == 1);
  CHECK(decoded.decoder.counts().lost_bytes == 64 + 216);
  decoded({kernel_bytes(7, 8, 9)});  // the next buffer is read
  CHECK(decoded.sink.kernels.size() == 2);
}

TEST_CASE("Work without times, or that ends before it starts, is kept without a duration and counted") {
  Decoded decoded;
  decoded({kernel_bytes(0, 0, 1), kernel_bytes(9, 5, 2), kernel_bytes(0, 7, 3), kernel_bytes(5, 5, 4)});
  REQUIRE(decoded.sink.kernels.size() == 4);
  for (int i = 0; i < 3; ++i) {
    CHECK(decoded.sink.kernels[i].work.start_ns == 0);
    CHECK(decoded.sink.kernels[i].work.end_ns == 0);
  }
  CHECK(decoded.sink.kernels[3].work.end_ns == 5);
  CHECK(decoded.decoder.counts().without_time == 3);
}

TEST_CASE("The kernels of one graph launch share its correlation and are told apart by their node") {
  Decoded decoded;
  decoded({kernel_bytes(1, 2, 50, 1000), kernel_bytes(2, 3, 50, 1001)});
  CHECK(decoded.sink.kernels[0].work.correlation == decoded.sink.kernels[1].work.correlation);
  CHECK(decoded.sink.kernels[0].work.graph_node == 1000);
  CHECK(decoded.sink.kernels[1].work.graph_node == 1001);
}

TEST_CASE("A graph that is traced as a whole is one kernel with the graph's name") {
  Decoded decoded;
  decoded({RecordBytes(51, 56).put<std::uint32_t>(4, 50).put<std::uint64_t>(8, 10).put<std::uint64_t>(16, 90)
               .put<std::uint32_t>(28, 17).put<std::uint32_t>(36, 7)});
  REQUIRE(decoded.sink.kernels.size() == 1);
  CHECK(decoded.sink.names[0] == "CUDA graph 17");
  CHECK((decoded.sink.kernels[0].work.end_ns == 90 && decoded.sink.kernels[0].work.stream == 7));
}

TEST_CASE("The ends of a range are joined in either order, across buffers, and one that never ends is counted") {
  Decoded decoded;
  decoded({marker_bytes(4, 900, 2, 0), marker_bytes(2, 100, 1, 0x2000), marker_bytes(1, 150, 5, 0x1000)});
  decoded({marker_bytes(2, 800, 2, 0x1000), marker_bytes(4, 200, 1, 0), marker_bytes(2, 300, 3, 0x2000)});
  decoded.decoder.finish();
  const KeepingSink& sink = decoded.sink;
  REQUIRE(sink.ranges.size() == 3);
  CHECK((sink.range_texts == std::vector<std::string>{"_Z4gemvPf", "_Z4gemvPf", "forward"}));
  CHECK((sink.ranges[0].start_ns == 150 && sink.ranges[0].end_ns == 0));  // a mark
  CHECK((sink.ranges[1].start_ns == 800 && sink.ranges[1].end_ns == 900));
  CHECK((sink.ranges[2].start_ns == 100 && sink.ranges[2].end_ns == 200 && sink.ranges[2].thread == 501));
  CHECK(decoded.decoder.counts().open_ranges == 1);
}

TEST_CASE("A launch that the engine explained becomes an operator with the launch's correlation, other ids nothing") {
  Decoded decoded;
  decoded({external_bytes(9, 77), external_bytes(10, 78), external_bytes(9, 79).put<std::uint32_t>(4, 1)});
  REQUIRE(decoded.sink.operators.size() == 1);
  CHECK((decoded.sink.operators[0].correlation == 77 && decoded.sink.operators[0].step == 4));
  CHECK(decoded.sink.operator_names[0] == "attention");
}

TEST_CASE("Clocks, temperature and power of a device come one by one and are told together, each device its own") {
  Decoded decoded;
  const auto environment = [](std::uint32_t device, std::uint64_t time, std::uint32_t kind, std::uint32_t a,
                              std::uint32_t b) {
    return RecordBytes(20, 40).put(4, device).put(8, time).put(16, kind).put(20, a).put(24, b);
  };
  decoded({environment(0, 10, 1, 1980, 3201), environment(1, 11, 3, 90000, 0), environment(0, 12, 2, 55, 0),
           environment(0, 13, 9, 1, 1)});
  REQUIRE(decoded.sink.environments.size() == 3);
  const EnvironmentRecord& last = decoded.sink.environments[2];
  CHECK((last.device == 0 && last.time_ns == 12 && last.sm_clock_mhz == 1980 && last.memory_clock_mhz == 3201));
  CHECK((last.temperature_c == 55 && last.power_mw == 0));
  CHECK((decoded.sink.environments[1].device == 1 && decoded.sink.environments[1].power_mw == 90000));
}

TEST_CASE("A record that is shorter than its kind reads as zeros behind its end") {
  Decoded decoded;
  const RecordBytes kernel = kernel_bytes(100, 250, 77, 55);
  decoded.decoder.decode_record(std::span(kernel.bytes()).first(96));  // up to the correlation
  REQUIRE(decoded.sink.kernels.size() == 1);
  CHECK((decoded.sink.kernels[0].work.correlation == 77 && decoded.sink.kernels[0].work.graph_node == 0));
  decoded.decoder.decode_record(std::span(kernel.bytes()).first(2));
  CHECK(decoded.decoder.counts().unknown == 1);
}
