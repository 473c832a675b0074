// What one part of the suite found, as JSON on disk after every row, so that a crash leaves all rows before it.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/cuda/measure/timing.hpp"

namespace kvroof::suite {

using Json = nlohmann::ordered_json;

// validation/METHOD.md says what each key means.
class Report {
 public:
  // Rows that are asked for after `seconds` are cut. An empty path: nothing is written.
  Report(std::filesystem::path path, const std::string& part, Json device, double seconds);

  // Adds {what, parameters, …} and writes the file.
  void add(const std::string& what, Json parameters, const Json& results);
  // A check; prints a line when it failed.
  void check(const std::string& what, const Json& parameters, bool passed, const Json& results);
  // Runs `body`; what it throws becomes a failed row of this name, and the suite goes on.
  template <class Body>
  void guarded(const std::string& what, const Json& parameters, const Body& body) {
    if (out_of_time()) return cut(what, parameters);
    try {
      body();
    } catch (const std::exception& problem) {
      check(what, parameters, false, {{"problem", problem.what()}});
    }
  }
  void cut(const std::string& what, const Json& parameters);
  // Says that the part came to its end.
  void finish();

  [[nodiscard]] double seconds_left() const;
  [[nodiscard]] bool out_of_time() const { return seconds_left() <= 0; }
  [[nodiscard]] std::size_t failures() const { return failures_; }
  [[nodiscard]] const Json& document() const { return document_; }

 private:
  void save() const;

  std::filesystem::path path_;
  Json document_;
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  std::size_t failures_ = 0;
};

// {seconds, median_seconds, spread, runs, bytes, bytes_per_s, share}: of `bytes` that one repetition must move, and
// their share of `limit` bytes/s (0: none is known).
Json results_of(const cuda::Measured& m, double bytes, double limit);

}  // namespace kvroof::suite
