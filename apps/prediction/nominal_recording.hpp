// Recordings of synthetic attention, for what policies hold of prompts that nobody has recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "apps/prediction/workload.hpp"
#include "traces/nominal_trace.hpp"

namespace kvroof {

// What is replayed of policies that need the same recording. Prompts that are too long to replay are cut, and what is
// counted in tokens with them.
struct NominalPart {
  NominalTrace trace;
  // Of copies of its one layer, where budgets differ from layer to layer. Empty: its layers say what all of the model's
  // do.
  std::vector<std::uint32_t> windows;
  std::vector<PolicySpec> points;    // with budgets in tokens that are as much smaller as the prompt
  std::vector<std::size_t> numbers;  // of these points among those of the request
};

// Each point of the request in one part. What it is replayed on depends on no other point.
std::vector<NominalPart> nominal_parts(const WorkloadRequest& request, std::uint64_t seed);

// In a folder of its own under the system's temporary one, which is gone with the object, or with the process when a
// signal ends it. Throws Error where the folder cannot be made.
class NominalRecording {
 public:
  explicit NominalRecording(const NominalTrace& trace);
  ~NominalRecording();
  NominalRecording(const NominalRecording&) = delete;
  NominalRecording& operator=(const NominalRecording&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return folder_ / "nominal.kvt"; }

 private:
  std::filesystem::path folder_;
};

}  // namespace kvroof
