// Rate at which a profiler's records reach a trace, and the memory that this takes.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/cupti/profile_spool.hpp"
#include "traces/kernels_db.hpp"

namespace {

using kvroof::KernelRecord;

constexpr std::uint32_t kNames = 40;  // different kernels of a model

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void add_kernels(kvroof::ProfileSink& to, std::uint64_t rows) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < kNames; ++i) {
    names.push_back("_ZN6kvroof9attentionILi" + std::to_string(i) + "EEEvPKfPf");
  }
  KernelRecord record;
  for (std::uint64_t i = 0; i < rows; ++i) {
    record.work = {1'700'000'000'000'000'000 + 1000 * i, 1'700'000'000'000'000'900 + 1000 * i, 0, 1, 7,
                   static_cast<std::uint32_t>(i / 400), 1 + i % 400, 4242};
    record.mangled_name = names[i % kNames];
    record.grid_id = i;
    to.add(record);
  }
}

std::filesystem::path file_named(const std::string& ending) {
  return std::filesystem::temp_directory_path() / ("kvroof-bench-" + std::to_string(getpid()) + ending);
}

void kernel_records(benchmark::State& state) {
  const auto rows = static_cast<std::uint64_t>(state.range(0));
  const std::filesystem::path file = file_named(".sqlite");
  const double before = peak_mib();
  for (auto _ : state) {
    kvroof::KernelDatabase database(file);
    add_kernels(database, rows);
    database.complete({});
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(rows) * static_cast<std::int64_t>(state.iterations()));
  state.counters["bytes_per_row"] = static_cast<double>(std::filesystem::file_size(file)) / static_cast<double>(rows);
  state.counters["growth_mib"] = peak_mib() - before;
  std::filesystem::remove(file);
}
// From the spool of a recorded process to the tables of its trace.
void spooled_records(benchmark::State& state) {
  const auto rows = static_cast<std::uint64_t>(state.range(0));
  const std::filesystem::path spool = file_named(".spool"), file = file_named(".sqlite");
  {
    kvroof::SpoolWriter writer(spool);
    add_kernels(writer, rows);
  }
  const double before = peak_mib();
  for (auto _ : state) {
    kvroof::KernelDatabase database(file);
    if (!kvroof::read_spool(spool, database).ok()) state.SkipWithError("the spool cannot be read");
    database.complete({});
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(rows) * static_cast<std::int64_t>(state.iterations()));
  state.counters["bytes_per_row"] = static_cast<double>(std::filesystem::file_size(spool)) / static_cast<double>(rows);
  state.counters["growth_mib"] = peak_mib() - before;
  std::filesystem::remove(spool);
  std::filesystem::remove(file);
}
BENCHMARK(spooled_records)->Arg(10'000'000)->Iterations(1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(kernel_records)->Arg(10'000'000)->Iterations(1)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
