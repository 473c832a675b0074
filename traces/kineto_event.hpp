// One event of a Kineto (PyTorch profiler) trace, and what it is as a record.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "traces/import_profile.hpp"

namespace kvroof {

// A number of the file: its digits, so that no time is rounded.
struct KinetoNumber {
  std::string_view text;
  [[nodiscard]] std::uint64_t integer() const;  // 0 where it is negative, no integer or too large
  // Microseconds with decimals as nanoseconds; nothing where that is out of range.
  [[nodiscard]] std::optional<std::int64_t> nanoseconds() const;
};

// Fields that an event may have; absent ones are 0 or empty. reset() keeps the memory of the strings.
struct KinetoEvent {
  std::string phase, category, name;
  std::optional<std::int64_t> start_ns, duration_ns;
  bool times_valid = true;
  std::uint64_t process = 0, thread = 0;
  std::optional<std::uint64_t> device, stream;  // of work whose arguments lack them: the process and thread of its row
  std::uint64_t context = 0, correlation = 0, graph_node = 0;
  std::uint64_t registers = 0, shared = 0, bytes = 0;
  std::uint64_t external = 0;  // of the operator that launched it, or that it is
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  // Of an operator's arguments where the profiler recorded shapes; without dimensions: no tensor.
  std::vector<std::vector<std::uint64_t>> shapes;
  std::vector<std::string> types;
  std::vector<std::string> values;  // of arguments that are no tensors; empty: of one that is, or none was given

  void reset();
  void set(std::string_view field, std::string_view text);
  void set(std::string_view field, KinetoNumber number);
  void set_argument(std::string_view field, KinetoNumber number);
  // The next argument of the operator, its next dimension, its type and its value; more than any operator has are
  // ignored.
  void add_shape();
  void add_dimension(KinetoNumber number);
  void add_type(std::string_view type);
  void add_value(std::string_view value);

  // Hands the record over, if it is one that a trace can hold, and counts it.
  void deliver(ProfileSink& to, ProfileCounts& counts) const;

 private:
  // Start and end; nothing, and counted, where they are none of the recording's clock.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> times(LeftOutRecords& left_out) const;
};

}  // namespace kvroof
