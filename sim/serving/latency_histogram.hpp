// Times counted in classes that are 1 % wide, in memory that does not grow: for the gaps between millions of tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace kvroof {

class LatencyHistogram {
 public:
  // Times outside 1 microsecond to a day count as the nearest of these.
  void add(double seconds) {
    // All sequences of a step have waited as long: what follows a like time is most of them.
    if (seconds != latest_) class_ = class_of(seconds);
    latest_ = seconds;
    ++counts_[class_];
    ++count_;
    sum_ += seconds;
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }
  // The nearest rank, as the middle of its class: within 0.5 %. 0 where nothing was added.
  [[nodiscard]] double quantile(double share) const {
    if (count_ == 0) return 0;
    const auto rank = std::max(1.0, std::ceil(share * static_cast<double>(count_)));
    std::uint64_t before = 0;
    std::size_t i = 0;
    while (static_cast<double>(before += counts_[i]) < rank) ++i;
    return kLeast * std::exp((static_cast<double>(i) + 0.5) * kWidth);
  }

 private:
  static std::size_t class_of(double seconds) {
    const double place = std::log(std::clamp(seconds, kLeast, kMost) / kLeast) / kWidth;
    return std::min(static_cast<std::size_t>(place), kClasses - 1);
  }

  static constexpr double kLeast = 1e-6, kMost = 86400, kWidth = 0.01;
  static constexpr std::size_t kClasses = 2519;  // ln(kMost / kLeast) / kWidth, rounded up
  std::array<std::uint64_t, kClasses> counts_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double latest_ = 0;      // time that was added
  std::size_t class_ = 0;  // of it
};

}  // namespace kvroof
