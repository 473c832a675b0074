#include "apps/generate/spools.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "kernels/cupti/inject/inject.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/profile_spool.hpp"
#include "sim/core/counted.hpp"
#include "traces/forwarding_sink.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

struct Spool {
  fs::path path;
  std::uint32_t pid = 0;
  std::uint32_t program = 0;  // of the pid: 0 the first, which the names below leave out
  std::uint32_t number = 0;   // of the process in the trace: the pid, but for programs that come after its first
  [[nodiscard]] std::string name() const {
    return program == 0 ? fmt::format("process {}", pid) : fmt::format("process {}-{}", pid, program);
  }
};

// Spools by process, then in the order in which it wrote them.
std::vector<Spool> spools_of(const fs::path& folder) {
  std::map<std::pair<unsigned long, unsigned long>, fs::path> sorted;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path path = at->path();
    if (path.extension() != kSpoolEnding) continue;
    const std::string name = path.filename().string();
    char* rest = nullptr;
    const unsigned long process = std::strtoul(name.c_str(), &rest, 10);
    sorted[{process, *rest == '-' ? std::strtoul(rest + 1, nullptr, 10) : 0}] = path;
  }
  if (error) throw Error(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  std::vector<Spool> spools;
  std::uint32_t next = kFirstProcessNumber;
  for (const auto& [key, path] : sorted) {
    const auto pid = static_cast<std::uint32_t>(key.first);
    const bool again = !spools.empty() && spools.back().pid == pid;
    spools.push_back({path, pid, again ? spools.back().program + 1 : 0, again ? next++ : pid});
  }
  return spools;
}

// A process's records go on to the trace, under its number there; its notes are kept for one list of all processes.
class ProcessSink final : public ForwardingSink {
 public:
  ProcessSink(const Spool& spool, ProfileSink& to, const std::atomic<int>& stop)
      : spool_(spool), to_(to), stop_(stop) {}
  using ForwardingSink::add;
  void add(const KernelRecord& r) override { add_work(r); }
  void add(const CopyRecord& r) override { add_work(r); }
  void add(const FillRecord& r) override { add_work(r); }
  void add(const CallRecord& r) override { add_own(r); }
  void add(const RangeRecord& r) override { add_own(r); }
  void add(const MemoryRecord& r) override { add_own(r); }
  void add(const PoolRecord& r) override { add_own(r); }
  void add(const DeviceRecord& r) override { add_own(r); }
  void add(const ProcessRecord& r) override { add_own(ProcessRecord{r.process, r.name, spool_.pid}); }
  void note(std::string_view key, std::string_view value) override { notes[std::string(key)] = value; }
  std::map<std::string, std::string> notes;

 private:
  template <class Record>
  void add_own(Record record) {
    if (record.process == spool_.pid) record.process = spool_.number;
    to().add(record);
  }
  template <class Record>
  void add_work(Record record) {
    if (record.work.process == spool_.pid) record.work.process = spool_.number;
    to().add(record);
  }
  ProfileSink& to() override {
    if (stop_ != 0) throw Error("interrupted before the trace was whole", ended_by(stop_));
    return to_;
  }
  const Spool& spool_;
  ProfileSink& to_;
  const std::atomic<int>& stop_;
};

// A recorder that ends in order writes this note among its last.
constexpr const char* kLastNote = "dropped";

// Notes of a process carry its number: "process 4711: dropped"; of the pid's second program, "process 4711-1: dropped".
void merge_process(const Spool& spool, ProfileSink& to, const std::atomic<int>& stop, MergedSpools& merged) {
  ProcessSink sink(spool, to, stop);
  const bool running = is_being_written(spool.path);
  const Result<SpoolCounts> read = read_spool(spool.path, sink);
  const SpoolCounts counts = read ? read.value() : SpoolCounts{};
  ++merged.processes;
  merged.readable += read.ok();
  merged.records += counts.records;
  merged.kernels += counts.kernels;
  const bool closed = sink.notes.contains("why") || sink.notes.contains(kLastNote);
  const bool outlives = running && read.ok() && counts.damage.empty() && !closed;
  if (!read) {
    sink.notes["why"] = read.error();
  } else if (!counts.damage.empty()) {
    sink.notes["ended_early"] = "what follows is lost: " + counts.damage;
  } else if (outlives) {
    sink.notes["ended_early"] = "still running when the command ended: what it did later is not here";
  } else if (counts.cut || !closed) {
    sink.notes.try_emplace("ended_early",
                           "the process was killed, became another program, or left without exit handlers: its last "
                           "records may be lost");
  }
  if (const auto why = sink.notes.find("why"); why == sink.notes.end()) {
    ++merged.recorded;
  } else if (merged.why.empty()) {
    merged.why = why->second;
  }
  merged.still_running += outlives;
  merged.ended_early += !outlives && sink.notes.contains("ended_early");
  if (const auto lost = sink.notes.find(kLastNote); lost != sink.notes.end()) {
    merged.dropped += std::strtoull(lost->second.c_str(), nullptr, 10);
  }
  for (const auto& [key, value] : sink.notes) {
    to.note(key == "process" ? spool.name() : spool.name() + ": " + key, value);
  }
}

std::string nothing_recorded(const MergedSpools& merged) {
  if (!merged.why.empty()) return merged.why;
  const DriverFacts driver = this_machine().driver();
  if (driver.version == 0) return "no device was seen: there is no NVIDIA driver here (libcuda.so.1)";
  if (driver.devices.empty()) return "no device was seen" + (driver.problem.empty() ? "" : ": " + driver.problem);
  return "no process of the program started CUDA";
}

}  // namespace

MergedSpools merge_spools(const fs::path& folder, ProfileSink& to, const std::atomic<int>& stop) {
  MergedSpools merged;
  for (const Spool& spool : spools_of(folder)) merge_process(spool, to, stop, merged);
  to.note("processes", std::to_string(merged.processes));
  to.note("level", merged.recorded > 0 ? "trace" : "none");
  if (merged.recorded < merged.processes || merged.processes == 0) {
    merged.why = nothing_recorded(merged);
    to.note("why", merged.why);
  }
  if (stop != 0) throw Error("interrupted before the trace was whole", ended_by(stop));
  return merged;
}

std::string merged_text(const fs::path& out, const MergedSpools& merged) {
  std::string more = merged.why.empty() ? "" : "; " + merged.why;
  if (merged.dropped > 0) more += fmt::format("; {} dropped", counted(merged.dropped, "record"));
  if (merged.still_running > 0) {
    more += fmt::format("; {} still running: what {} later is not in it", merged.still_running,
                        merged.still_running == 1 ? "it does" : "they do");
  }
  if (merged.ended_early > 0) {
    more += fmt::format("; of {} the end may be missing: `kvroof inspect` says why", merged.ended_early);
  }
  return fmt::format("{}: {}, {} of {} process{}{}", out.string(), counted(merged.kernels, "kernel"),
                     counted(merged.records, "record"), merged.processes, merged.processes == 1 ? "" : "es", more);
}

}  // namespace kvroof
