#include "apps/spools.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "kernels/cupti/inject/inject.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/profile_spool.hpp"
#include "traces/forwarding_sink.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

// Spools by process, then in the order in which it wrote them.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::map<std::pair<unsigned long, unsigned long>, fs::path> sorted;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != kSpoolEnding) continue;
    const std::string name = entry.path().filename().string();
    char* end = nullptr;
    const unsigned long process = std::strtoul(name.c_str(), &end, 10);
    sorted[{process, *end == '-' ? std::strtoul(end + 1, nullptr, 10) : 0}] = entry.path();
  }
  std::vector<fs::path> files;
  for (const auto& [key, path] : sorted) files.push_back(path);
  return files;
}

// A process's records go on to the trace; its notes are kept for one list of all processes.
class ProcessSink final : public ForwardingSink {
 public:
  ProcessSink(ProfileSink& to, const std::atomic<bool>& stop) : to_(to), stop_(stop) {}
  void note(std::string_view key, std::string_view value) override { notes[std::string(key)] = value; }
  std::map<std::string, std::string> notes;

 private:
  ProfileSink& to() override {
    if (stop_) throw Error("interrupted before the trace was whole", ExitCode::kInterrupted);
    return to_;
  }
  ProfileSink& to_;
  const std::atomic<bool>& stop_;
};

// A recorder that ends in order writes this note among its last.
constexpr const char* kLastNote = "dropped";

// Notes of a process carry its number: "process 4711: dropped".
void merge_process(const fs::path& file, ProfileSink& to, const std::atomic<bool>& stop, MergedSpools& merged) {
  ProcessSink sink(to, stop);
  const Result<SpoolCounts> read = read_spool(file, sink);
  const SpoolCounts counts = read ? read.value() : SpoolCounts{};
  ++merged.processes;
  merged.readable += read.ok();
  merged.records += counts.records;
  merged.kernels += counts.kernels;
  const std::string process = file.filename().string();
  const std::string name = "process " + process.substr(0, process.find('-'));
  const bool closed = sink.notes.contains("why") || sink.notes.contains(kLastNote);
  if (!read) {
    sink.notes["why"] = read.error();
  } else if (!counts.damage.empty()) {
    sink.notes["ended_early"] = "what follows is lost: " + counts.damage;
  } else if (counts.cut || !closed) {
    sink.notes.try_emplace("ended_early",
                           "the process was killed or left without exit handlers: its last records may be lost");
  }
  if (const auto why = sink.notes.find("why"); why == sink.notes.end()) {
    ++merged.recorded;
  } else if (merged.why.empty()) {
    merged.why = why->second;
  }
  merged.ended_early += sink.notes.contains("ended_early");
  if (const auto lost = sink.notes.find(kLastNote); lost != sink.notes.end()) {
    merged.dropped += std::strtoull(lost->second.c_str(), nullptr, 10);
  }
  for (const auto& [key, value] : sink.notes) to.note(key == "process" ? name : name + ": " + key, value);
}

std::string nothing_recorded(const MergedSpools& merged) {
  if (!merged.why.empty()) return merged.why;
  const DriverFacts driver = this_machine().driver();
  if (driver.version == 0) return "no device was seen: there is no NVIDIA driver here (libcuda.so.1)";
  if (driver.devices.empty()) return "no device was seen" + (driver.problem.empty() ? "" : ": " + driver.problem);
  return "no process of the program started CUDA";
}

}  // namespace

MergedSpools merge_spools(const fs::path& folder, ProfileSink& to, const std::atomic<bool>& stop) {
  MergedSpools merged;
  for (const fs::path& file : files_of(folder)) merge_process(file, to, stop, merged);
  to.note("processes", std::to_string(merged.processes));
  to.note("level", merged.recorded > 0 ? "trace" : "none");
  if (merged.recorded < merged.processes || merged.processes == 0) {
    merged.why = nothing_recorded(merged);
    to.note("why", merged.why);
  }
  if (stop) throw Error("interrupted before the trace was whole", ExitCode::kInterrupted);
  return merged;
}

std::string merged_text(const fs::path& out, const MergedSpools& merged) {
  std::string more = merged.why.empty() ? "" : "; " + merged.why;
  if (merged.dropped > 0) more += fmt::format("; {} records were dropped", merged.dropped);
  if (merged.ended_early > 0) {
    more += fmt::format("; of {} the end may be missing: `kvroof inspect` says why", merged.ended_early);
  }
  return fmt::format("{}: {} kernels, {} records of {} process{}{}", out.string(), merged.kernels, merged.records,
                     merged.processes, merged.processes == 1 ? "" : "es", more);
}

}  // namespace kvroof
