// A recording of synthetic attention, for what a policy holds of prompts that nobody has recorded.
#pragma once

#include <filesystem>
#include <vector>

#include "apps/prediction/workload.hpp"

namespace kvroof {

// In a folder of its own under the system's temporary one, which is gone with the object, or with the process when a
// signal ends it. Prompts that are too long to replay are cut; `points` are those of the request, and budgets in tokens
// that the prompt was cut below are as much smaller. Throws Error where the folder cannot be made.
class NominalRecording {
 public:
  NominalRecording(const WorkloadRequest& request, std::uint64_t seed);
  ~NominalRecording();
  NominalRecording(const NominalRecording&) = delete;
  NominalRecording& operator=(const NominalRecording&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return folder_ / "nominal.kvt"; }
  [[nodiscard]] const std::vector<PolicySpec>& points() const { return points_; }

 private:
  std::filesystem::path folder_;
  std::vector<PolicySpec> points_;
};

}  // namespace kvroof
