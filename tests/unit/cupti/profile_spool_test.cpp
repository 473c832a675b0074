// The spool of a recorded process: what goes in comes out, cut files give what is whole, damaged ones a sentence.
#include "kernels/cupti/profile_spool.hpp"

#include <csignal>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/cupti/blocked_signals.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

void write_one_of_each(SpoolWriter& spool) {
  KernelRecord kernel;
  kernel.work = {10, 20, 1, 2, 3, 4, 5, 6};
  kernel.mangled_name = "gemv";
  kernel.grid = {7, 8, 9};
  kernel.local_total = 1ULL << 40U;
  spool.add(kernel);
  kernel.mangled_name = "softmax";
  spool.add(kernel);
  kernel.mangled_name = "gemv";
  spool.add(kernel);
  CopyRecord copy;
  copy.bytes = 4096;
  copy.target_kind = 3;
  spool.add(copy);
  spool.add(FillRecord{{}, 64, 5, 2});
  spool.add(CallRecord{1, 2, 3, 4, 5, 6, true, "cuLaunchKernel"});
  spool.add(RangeRecord{1, 2, 3, 4, "forward"});
  spool.add(MemoryRecord{1, 2, 3, 4, 5, 6, 7, true});
  spool.add(MemoryRecord{1, 2, 3, 4, 15, 6, 7, false, {1, 8, 9, 10, 11, 12}, 13, 14, 15, "weights"});
  spool.add(PoolRecord{1, 2, 3, 4, 3, 6, {1, 7, 8, 9, 10, 11}});
  spool.add(OverheadRecord{1, 2, 3});
  spool.add(EnvironmentRecord{1, 2, 3, 4, 5, 6});
  spool.add(DeviceRecord{1, "H200", "GH100", 2, 3, 4, 9, 0, 4711, "GPU-1"});
  spool.add(ProcessRecord{4711, "python3"});
  OperatorRecord meaning;
  meaning.layer = -1;
  meaning.name = "qkv";
  meaning.declared_flops = 12;
  spool.add(meaning);
  spool.add(CounterRecord{1, 2, 0, 3, "dram__bytes_read.sum", 1.5});
  spool.note("dropped", "0");
}

}  // namespace

TEST_CASE("A spool that was removed under its writer takes no more bytes of the disk, and its writer is told") {
  const TemporaryFolder folder;
  SpoolWriter spool(folder.file("a.spool"));
  spool.add(CounterRecord{1, 2, 0, 3, "dram__bytes_read.sum", 1.5});
  spool.flush();
  std::filesystem::remove(folder.file("a.spool"));
  CHECK_NOTHROW(spool.flush());  // there is nothing to write
  spool.add(CounterRecord{2, 2, 0, 3, "dram__bytes_read.sum", 1.5});
  CHECK_THROWS_WITH(spool.flush(), folder.file("a.spool") + ": cannot be written: it was removed");
}

TEST_CASE("Every kind of record comes out of a spool as it went in") {
  const TemporaryFolder folder;
  {
    SpoolWriter spool(folder.file("a.spool"));
    write_one_of_each(spool);
  }
  KeepingSink sink;
  const auto counts = read_spool(folder.path() / "a.spool", sink);
  REQUIRE(counts.ok());
  CHECK((counts.value().records == 17 && counts.value().kernels == 3 && !counts.value().cut));
  CHECK((sink.names == std::vector<std::string>{"gemv", "softmax", "gemv"}));
  const DeviceWork& work = sink.kernels[2].work;
  CHECK((work.start_ns == 10 && work.end_ns == 20 && work.device == 1 && work.context == 2 && work.stream == 3));
  CHECK((work.correlation == 4 && work.graph_node == 5 && work.process == 6));
  CHECK((sink.kernels[0].grid == std::array<std::uint32_t, 3>{7, 8, 9} && sink.kernels[0].local_total == 1ULL << 40U));
  CHECK((sink.copies[0].bytes == 4096 && sink.copies[0].target_kind == 3 && sink.fills[0].value == 5));
  CHECK((sink.calls[0].driver && sink.calls[0].result == 6 && sink.call_names[0] == "cuLaunchKernel"));
  CHECK((sink.ranges[0].thread == 4 && sink.range_texts[0] == "forward" && sink.memory[0].release));
  CHECK((sink.memory[0].address == 5 && sink.overheads[0].kind == 3 && sink.environments[0].temperature_c == 6));
  REQUIRE((sink.memory.size() == 2 && sink.pools.size() == 1));
  CHECK((sink.memory[0].pool.type == 0 && sink.memory[1].address == 15 && !sink.memory[1].release));
  CHECK((sink.memory[0].stream == -1 && sink.memory[1].stream == 15 && sink.memory[1].correlation == 14));
  CHECK((sink.memory[1].code_address == 13 && sink.memory_names == std::vector<std::string>{"", "weights"}));
  const PoolState& from = sink.memory[1].pool;
  CHECK((from.type == 1 && from.address == 8 && from.release_threshold == 9 && from.bytes == 10));
  CHECK((from.used_bytes == 11 && from.owner == 12));
  const PoolRecord& pool = sink.pools[0];
  CHECK((pool.time_ns == 1 && pool.process == 2 && pool.device == 3 && pool.correlation == 4 && pool.operation == 3));
  CHECK((pool.least_bytes == 6 && pool.pool.type == 1 && pool.pool.address == 7 && pool.pool.release_threshold == 8));
  CHECK((pool.pool.bytes == 9 && pool.pool.used_bytes == 10 && pool.pool.owner == 11));
  CHECK((sink.devices[0].compute_major == 9 && sink.device_names[0] == "H200"));
  CHECK((sink.devices[0].process == 4711 && sink.processes[0] == std::pair(4711U, std::string("python3"))));
  CHECK((sink.operators[0].layer == -1 && sink.operators[0].declared_flops == 12 && sink.operator_names[0] == "qkv"));
  CHECK((sink.counters[0].value == 1.5 && sink.counter_names[0] == "dram__bytes_read.sum"));
  CHECK(sink.notes.at("dropped") == "0");
}

TEST_CASE("An allocation of a spool from before pools and calls were recorded is read, as one from no pool") {
  std::string bytes = "kvroof spool 3\n";
  const auto put = [&bytes](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint8_t{6});
  put(std::uint32_t{41});
  put(std::uint64_t{700});
  for (const std::uint32_t number : {42U, 0U, 1U}) put(number);
  for (const std::uint64_t number : {0xf000ULL, 4096ULL}) put(number);
  put(std::uint32_t{3});
  put(std::uint8_t{1});
  KeepingSink sink;
  const auto counts = parse_spool(bytes, sink).or_throw("spool");
  CHECK((counts.damage.empty() && !counts.cut));
  REQUIRE(sink.memory.size() == 1);
  CHECK((sink.memory[0].time_ns == 700 && sink.memory[0].process == 42 && sink.memory[0].context == 1));
  CHECK((sink.memory[0].address == 0xf000 && sink.memory[0].bytes == 4096 && sink.memory[0].release));
  CHECK((sink.memory[0].pool.type == 0 && sink.memory[0].correlation == 0 && sink.memory[0].stream == -1));
}

TEST_CASE("Of millions of different texts a writer remembers 16 MiB, and every one arrives") {
  const TemporaryFolder folder;
  constexpr std::uint32_t kRanges = 200'000;
  const auto text = [](std::uint32_t i) { return fmt::format("request {} of a server {}", i, std::string(60, 'x')); };
  {
    SpoolWriter spool(folder.file("a.spool"));
    for (std::uint32_t i = 0; i < kRanges; ++i) {
      spool.add(RangeRecord{i, i, 3, 4, text(i)});
      if (i % 2 == 0) spool.note(text(i), text(i + 1));  // two texts of one record
    }
    spool.add(RangeRecord{1, 1, 3, 4, text(0)});
  }
  const std::string bytes = slurp(folder.path() / "a.spool");
  std::size_t remembered = 0;
  for (std::size_t at = kSpoolMagic.size(); at < bytes.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 1, sizeof length);
    if (bytes[at] == '\0') remembered += length;
    at += 5 + length;
  }
  CHECK((remembered > 4'000'000 && remembered < kMostTextBytes));
  KeepingSink sink;
  const auto counts = parse_spool(bytes, sink).or_throw("spool");
  CHECK((counts.damage.empty() && !counts.cut && counts.records == kRanges + kRanges / 2 + 1));
  REQUIRE(sink.range_texts.size() == kRanges + 1);
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < kRanges; ++i) wrong += sink.range_texts[i] != text(i);
  for (std::uint32_t i = 0; i < kRanges; i += 2) wrong += sink.notes.at(text(i)) != text(i + 1);
  CHECK(wrong == 0);
  CHECK(sink.range_texts.back() == text(0));
}

TEST_CASE("A spool that is cut anywhere gives the records before the cut, in order") {
  const TemporaryFolder folder;
  {
    SpoolWriter spool(folder.file("a.spool"));
    write_one_of_each(spool);
  }
  const std::string whole = slurp(folder.path() / "a.spool");
  std::uint64_t before = 0;
  for (std::size_t size = kSpoolMagic.size(); size <= whole.size(); ++size) {
    KeepingSink sink;
    const std::string bytes(whole.data(), size);
    const auto counts = parse_spool(bytes, sink);
    REQUIRE(counts.ok());
    CHECK(counts.value().records >= before);
    before = counts.value().records;
  }
  CHECK(before == 17);
}

TEST_CASE("What is no spool, or is damaged, is refused in one sentence with its place") {
  KeepingSink sink;
  const std::string magic(kSpoolMagic);
  const auto damage = [&](const std::string& bytes) { return parse_spool(bytes, sink).or_throw("spool").damage; };
  CHECK(parse_spool("SQLite format 3", sink).error().find("not a spool") != std::string::npos);
  const std::string length4("\4\0\0\0", 4), length0("\0\0\0\0", 4);
  CHECK(damage(magic + "\x63" + length0) == "byte 15: a record of type 99 is not known");
  CHECK(damage(magic + "\x07" + length4 + "abcd") == "byte 15: a record of type 7 is damaged");
  const std::string overhead = magic + "\x07" + std::string("\x18\0\0\0", 4) + std::string(24, '\1');
  CHECK(damage(overhead) == "byte 15: a record of type 7 is damaged");  // its fields are 20 bytes
  // A range whose text was never written.
  CHECK(damage(magic + "\x05" + std::string("\x1c\0\0\0", 4) + std::string(28, '\1')).find("damaged") !=
        std::string::npos);
  CHECK(read_spool("/nowhere/at-all", sink).error() == "cannot be read: No such file or directory");
  CHECK(sink.ranges.empty());
  // Records before the damage were handed on, and count.
  const std::string good = "\x07" + std::string("\x14\0\0\0", 4) + std::string(20, '\1');
  const SpoolCounts counts = parse_spool(magic + good + "\x63" + length0 + good, sink).or_throw("spool");
  CHECK((counts.records == 1 && sink.overheads.size() == 1));
  CHECK(counts.damage == "byte 40: a record of type 99 is not known");
}

TEST_CASE("A spool that finds the disk full says so when it is read, after the records before it") {
  const TemporaryFolder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{600'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  {
    SpoolWriter spool(folder.file("a.spool"));
    CHECK_THROWS_AS(
        [&] {
          for (std::uint32_t i = 0; i < 100'000; ++i) spool.add(OverheadRecord{i, i, 0});
        }(),
        Error);
    spool.note("dropped", "0");  // finds no place any more
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, ignored);
  KeepingSink sink;
  const auto counts = read_spool(folder.path() / "a.spool", sink);
  REQUIRE(counts.ok());
  CHECK(counts.value().records > 10'000);
  CHECK(sink.overheads.size() == counts.value().records);
  CHECK(sink.notes.at("ended_early").find("a.spool: cannot be written: File too large") != std::string::npos);
  CHECK(sink.notes.count("dropped") == 0);
}

TEST_CASE("A write beyond the file size limit sends the program no signal, then or later") {
  const TemporaryFolder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  {
    const BlockedSignals blocked;
    SpoolWriter spool(folder.file("a.spool"));
    for (std::uint32_t i = 0; i < 1'000; ++i) spool.add(OverheadRecord{i, i, 0});
    CHECK_THROWS_AS(spool.flush(), Error);
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);  // and we are still here
}

TEST_CASE("A spool whose descriptor the program has closed and given to a file of its own leaves that file alone") {
  const TemporaryFolder folder;
  const std::string mine = folder.file("mine");
  {
    SpoolWriter spool(folder.file("a.spool"));
    int descriptor = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry, ignored) != folder.path() / "a.spool") continue;
      descriptor = std::stoi(entry.path().filename());
    }
    REQUIRE(descriptor >= 512);  // beyond those that programs close without looking
    const int own = open(mine.c_str(), O_WRONLY | O_CREAT, 0600);
    REQUIRE(dup2(own, descriptor) == descriptor);
    close(own);
    spool.add(OverheadRecord{1, 2, 3});
    CHECK_THROWS_AS(spool.flush(), Error);
    REQUIRE(write(descriptor, "data", 4) == 4);
  }
  CHECK(slurp(mine) == "data");
}

TEST_CASE("A spool that is there already is not overwritten") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("a.spool")) << "mine";
  CHECK_THROWS_AS(SpoolWriter(folder.file("a.spool")), Error);
  CHECK(slurp(folder.path() / "a.spool") == "mine");
}
