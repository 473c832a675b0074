// What one part of the suite found, as JSON on disk before and after every row, so that a crash leaves all rows before
// it, and the process that goes on knows which row it was.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/cuda/measure/timing.hpp"

namespace kvroof::suite {

using Json = nlohmann::ordered_json;

// No call to the device of this process succeeds any more; another process may go on.
struct DeviceLost {};

// validation/METHOD.md says what each key means.
class Report {
 public:
  // Rows that are asked for after `seconds` are cut. An empty path: nothing is written. `ended`: why an earlier process
  // of the part came to no end. Its rows are taken over from the file, and the one that it was at has failed.
  Report(std::filesystem::path path, const std::string& part, Json device, double seconds,
         const std::string& ended = {});

  // Adds {what, parameters, …} and writes the file.
  void add(const std::string& what, Json parameters, const Json& results);
  // A check; prints a line when it failed.
  void check(const std::string& what, const Json& parameters, bool passed, const Json& results);
  // Runs `body`; what it throws becomes a failed row of this name, and the suite goes on. Nothing is done for a row
  // that an earlier process made. Throws DeviceLost where nothing more can be had of the device.
  void guarded(const std::string& what, const Json& parameters, const std::function<void()>& body);
  void cut(const std::string& what, const Json& parameters);
  // Says that the part came to its end.
  void finish();

  [[nodiscard]] double seconds_left() const;
  [[nodiscard]] bool out_of_time() const { return seconds_left() <= 0; }
  [[nodiscard]] std::size_t failures() const { return failures_; }
  [[nodiscard]] const Json& document() const { return document_; }

 private:
  void take_over(const std::string& ended);
  [[nodiscard]] bool made_before(const std::string& what, const Json& parameters) const;
  [[nodiscard]] static bool device_is_lost();
  void save() const;

  std::filesystem::path path_;
  Json document_;
  Json doing_;   // null, or what and parameters
  Json before_ = Json::array();  // rows of an earlier process
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  std::size_t failures_ = 0;
};

// {seconds, median_seconds, spread, runs, bytes, bytes_per_s, share}: of `bytes` that one repetition must move, and
// their share of `limit` bytes/s (0: none is known).
Json results_of(const cuda::Measured& m, double bytes, double limit);

}  // namespace kvroof::suite
