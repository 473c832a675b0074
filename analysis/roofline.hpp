// The roofline of a recording: what its operators reach of the bandwidth and the peak of a device, as a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/kernel_report.hpp"

namespace kvroof {

struct RooflineMark {
  std::string name;
  std::size_t group = 0;  // index of Roofline::groups
  bool whole = false;     // all kernels of its group
  double flops_per_byte = 0, flops_per_second = 0;
  double share = 0;  // of the time of all kernels of the recording
};

struct Roofline {
  std::vector<RooflineMark> marks;
  std::vector<std::string> groups;    // phases of the engine's steps; one without a name for what has no step
  std::vector<std::string> left_out;  // operators without a place, the longest first
  double left_out_share = 0;          // their part of the time of all kernels
};

// Takes what a KernelReportBuilder takes. Prompts and decode steps have marks of their own: the same operator reads its
// weights once for many tokens in the one, and for one token of each sequence in the other.
class RooflineBuilder {
 public:
  // `phases`: of the engine's steps.
  explicit RooflineBuilder(std::map<std::uint32_t, std::string> phases) : phases_(std::move(phases)) {}
  void add(const WorkRow& row);
  // The `top` longest operators of each phase (0: all), of those with declared bytes and operations for all launches.
  [[nodiscard]] Roofline finish(std::size_t top);

 private:
  std::map<std::uint32_t, std::string> phases_;
  std::map<std::string, KernelReportBuilder> reports_;  // by phase
};

// What the marks are held to: the bandwidth of the memory, and the peak of products in 16 bits.
struct Roof {
  double bytes_per_second = 0, flops_per_second = 0;
};

// A complete file, both axes logarithmic: a circle for each operator, whose area is its share of the time, a diamond
// for all kernels, the roof; and a table of the 62 longest operators, whose letters stand beside their circles.
std::string roofline_svg(const std::string& title, const Roof& roof, const Roofline& roofline);

}  // namespace kvroof
