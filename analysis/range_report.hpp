// Where a GPU's time went by the application's ranges (NVTX): of the work that was launched in them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "traces/range_work.hpp"

namespace kvroof {

// All ranges of one text.
struct RangeTotals {
  std::string text;
  std::uint64_t ranges = 0;
  std::uint64_t kernels = 0, copies = 0;  // launched in them, fills among the copies
  std::uint64_t total_ns = 0;             // of that work, with what ranges inside them launched
  std::uint64_t own_ns = 0;               // of it, what no range inside them launched
  std::uint64_t span_ns = 0;              // from the first to the last work of each range, added up
};

struct RangeReport {
  std::vector<RangeTotals> ranges;  // by time, the longest first
  RangeTotals outside;              // work that no range launched, as far as the recording tells
  RangeTotals all;                  // work; no ranges
};

// Takes what for_each_range_and_work hands over, in that order. A range holds what its own thread launches until it
// ends. Memory grows with the texts and with the depth of ranges alone.
class RangeReportBuilder {
 public:
  void add(const ThreadRange& range);
  void add(const LaunchedWork& work);
  [[nodiscard]] RangeReport finish();

 private:
  struct Open {
    std::uint64_t end_ns = 0;
    RangeTotals* totals = nullptr;
    std::uint64_t first_ns = 0, last_ns = 0;  // of its work; 0, 0: none yet
  };
  void close_until(std::uint64_t thread, std::uint64_t ns);
  static void close(const Open& range);

  std::map<std::string, RangeTotals, std::less<>> totals_;
  std::vector<Open> open_;  // the latest last
  std::uint64_t thread_ = 0;
  RangeReport report_;
};

}  // namespace kvroof
