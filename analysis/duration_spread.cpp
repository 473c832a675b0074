#include "analysis/duration_spread.hpp"

#include <bit>
#include <cmath>

namespace kvroof {
namespace {

constexpr std::uint32_t kDigits = 14;  // binary ones that are kept

std::uint32_t class_of(std::uint64_t ns) {
  const auto width = static_cast<std::uint32_t>(std::bit_width(ns));
  const std::uint32_t cut = width > kDigits ? width - kDigits : 0;
  return (cut << (kDigits - 1)) + static_cast<std::uint32_t>(ns >> cut);
}

// The least of a class.
double duration_of(std::uint32_t of_class) {
  const std::uint32_t part = of_class >> (kDigits - 1);
  const std::uint32_t cut = part > 0 ? part - 1 : 0;
  return std::ldexp(of_class - (cut << (kDigits - 1)), static_cast<int>(cut));
}

}  // namespace

void DurationSpread::add(std::uint64_t ns) {
  ++counts_[class_of(ns)];
  ++count_;
  const double from_old = static_cast<double>(ns) - mean_;
  mean_ += from_old / static_cast<double>(count_);
  squares_ += from_old * (static_cast<double>(ns) - mean_);
}

DurationSpread& DurationSpread::operator+=(const DurationSpread& other) {
  if (other.count_ == 0) return *this;
  const auto mine = static_cast<double>(count_), theirs = static_cast<double>(other.count_);
  const double apart = other.mean_ - mean_;
  mean_ += apart * theirs / (mine + theirs);
  squares_ += other.squares_ + apart * apart * mine * theirs / (mine + theirs);
  count_ += other.count_;
  for (const auto& [of_class, count] : other.counts_) counts_[of_class] += count;
  return *this;
}

double DurationSpread::at(std::uint64_t rank) const {
  for (const auto& [of_class, count] : counts_) {
    if (rank < count) return duration_of(of_class);
    rank -= count;
  }
  return 0;
}

double DurationSpread::median_ns() const {
  return count_ == 0 ? 0 : (at((count_ - 1) / 2) + at(count_ / 2)) / 2;
}

double DurationSpread::deviation_ns() const {
  return count_ < 2 ? 0 : std::sqrt(squares_ / static_cast<double>(count_ - 1));
}

}  // namespace kvroof
