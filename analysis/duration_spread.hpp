// How durations of one kind of work are spread, in memory that does not grow with their number.
#pragma once

#include <cstdint>
#include <map>

namespace kvroof {

class DurationSpread {
 public:
  void add(std::uint64_t ns);
  DurationSpread& operator+=(const DurationSpread& other);
  // Of equal numbers below and above; the mean of the middle two where there is no middle one. Exact up to 16 us, from
  // there at most 0.02 % too short. 0 where there are none.
  [[nodiscard]] double median_ns() const;
  // Of a sample: over one less than their number. 0 where there are fewer than two.
  [[nodiscard]] double deviation_ns() const;

 private:
  [[nodiscard]] double at(std::uint64_t rank) const;

  std::map<std::uint32_t, std::uint64_t> counts_;  // by the leading digits of a duration
  std::uint64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  // of the distances from the mean
};

}  // namespace kvroof
