#include "traces/kineto_event.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr std::int64_t kMaxNs = std::int64_t{1} << 62;
constexpr std::size_t kMostArguments = 64, kMostDimensions = 16;

std::uint32_t narrow(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

struct Direction {
  std::string_view in_name;
  std::uint32_t kind;  // CUpti_ActivityMemcpyKind
};
constexpr std::array<Direction, 5> kDirections = {{{"HtoD", 1}, {"DtoH", 2}, {"DtoD", 8}, {"HtoH", 9}, {"PtoP", 10}}};

// Of "Memcpy HtoD (Pinned -> Device)".
std::uint32_t copy_kind(std::string_view name) {
  for (const Direction& d : kDirections) {
    if (name.find(d.in_name) != std::string_view::npos) return d.kind;
  }
  return 0;
}

// CUpti_ActivityMemoryKind
std::uint32_t memory_kind(std::string_view word) {
  constexpr std::array<std::string_view, 6> kKinds = {"Unknown", "Pageable", "Pinned", "Device", "Array", "Managed"};
  const auto* const it = std::find(kKinds.begin(), kKinds.end(), word);
  return it == kKinds.end() ? 0 : static_cast<std::uint32_t>(it - kKinds.begin());
}

std::pair<std::uint32_t, std::uint32_t> memory_kinds(std::string_view name) {
  const std::size_t open = name.find('('), arrow = name.find(" -> "), close = name.find(')');
  if (close == std::string_view::npos || open >= arrow || arrow >= close) return {0, 0};
  return {memory_kind(name.substr(open + 1, arrow - open - 1)), memory_kind(name.substr(arrow + 4, close - arrow - 4))};
}

// The name of a category that files of PyTorch before 1.12 spell otherwise.
std::string_view today(std::string_view category) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOld = {{{"Kernel", "kernel"},
                                                                                  {"Memcpy", "gpu_memcpy"},
                                                                                  {"Memset", "gpu_memset"},
                                                                                  {"Runtime", "cuda_runtime"},
                                                                                  {"Operator", "cpu_op"}}};
  const auto* const found = std::ranges::find(kOld, category, [](const auto& old) { return old.first; });
  return found == kOld.end() ? category : found->second;
}

// Of "stream 7".
std::uint64_t number_at_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  return KinetoNumber{text.substr(last == std::string_view::npos ? 0 : last + 1)}.integer();
}

}  // namespace

std::uint64_t KinetoNumber::integer() const { return parse_number<std::uint64_t>(text).value_or(0); }

std::optional<std::int64_t> KinetoNumber::nanoseconds() const {
  constexpr std::size_t kDecimals = 3;
  const std::size_t point = std::min(text.find('.'), text.size());
  std::int64_t us = 0, ns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + point, us);
  const std::string_view rest = text.substr(std::min(point + 1, text.size()));
  const bool plain = error == std::errc() && end == text.data() + point &&
                     std::all_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!plain) {  // 1.5e3, or out of range
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    if (!(std::abs(value) * 1000 < static_cast<double>(kMaxNs))) return std::nullopt;
    return std::llround(value * 1000);
  }
  for (std::size_t i = 0; i < kDecimals; ++i) ns = ns * 10 + (i < rest.size() ? rest[i] - '0' : 0);
  if (us > kMaxNs / 1000 - 1 || us < -kMaxNs / 1000 + 1) return std::nullopt;
  return us * 1000 + (text.starts_with('-') ? -ns : ns);
}

void KinetoEvent::reset() {
  for (std::string* text : {&phase, &category, &name}) text->clear();
  start_ns = duration_ns = std::nullopt;
  times_valid = true;
  device = stream = std::nullopt;
  process = thread = context = correlation = graph_node = registers = shared = bytes = 0;
  external = 0;
  grid = block = {1, 1, 1};
  shapes.clear();
  types.clear();
  values.clear();
}

void KinetoEvent::add_shape() {
  if (shapes.size() < kMostArguments) shapes.emplace_back();
}

void KinetoEvent::add_dimension(KinetoNumber number) {
  if (!shapes.empty() && shapes.back().size() < kMostDimensions) shapes.back().push_back(number.integer());
}

void KinetoEvent::add_type(std::string_view type) {
  if (types.size() < kMostArguments) types.emplace_back(type);
}

void KinetoEvent::add_value(std::string_view value) {
  if (values.size() < kMostArguments) values.emplace_back(value);
}

void KinetoEvent::set(std::string_view field, std::string_view text) {
  if (field == "ph") phase = text;
  if (field == "cat") category = today(text);
  if (field == "tid") thread = number_at_end(text);
  if (field == "name") name = text;
  if (field == "ts" || field == "dur") times_valid = false;  // no number
}

void KinetoEvent::set(std::string_view field, KinetoNumber number) {
  if (field == "ts" || field == "dur") {
    (field == "ts" ? start_ns : duration_ns) = number.nanoseconds();
    times_valid = times_valid && number.nanoseconds().has_value();
  }
  if (field == "pid") process = number.integer();
  if (field == "tid") thread = number.integer();
}

void KinetoEvent::set_argument(std::string_view field, KinetoNumber number) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t KinetoEvent::*>, 9> kArguments = {{
      {"External id", &KinetoEvent::external},
      {"external id", &KinetoEvent::external},  // until 2022
      {"context", &KinetoEvent::context},
      {"inContext", &KinetoEvent::context},
      {"correlation", &KinetoEvent::correlation},
      {"graph node id", &KinetoEvent::graph_node},
      {"registers per thread", &KinetoEvent::registers},
      {"shared memory", &KinetoEvent::shared},
      {"bytes", &KinetoEvent::bytes},
  }};
  for (const auto& [name_of, member] : kArguments) {
    if (field == name_of) this->*member = number.integer();
  }
  // A copy from a device to another has three of each: that in the middle was asked for it.
  if (field == "device" || field == "inDevice") device = number.integer();
  if (field == "stream") stream = number.integer();
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> KinetoEvent::times(LeftOutRecords& left_out) const {
  if (!start_ns || !times_valid) {
    ++left_out.timeless;
    return std::nullopt;
  }
  const std::int64_t duration = duration_ns.value_or(0), end = *start_ns + duration;
  const bool reaches = category == "user_annotation" && end > 0;  // into the recording: it is cut at its start
  if (duration < 0 || (*start_ns < 0 && !reaches)) {
    ++(duration < 0 ? left_out.backwards : left_out.before);
    return std::nullopt;
  }
  return std::pair(static_cast<std::uint64_t>(std::max<std::int64_t>(*start_ns, 0)), static_cast<std::uint64_t>(end));
}

void KinetoEvent::deliver(ProfileSink& to, ProfileCounts& counts) const {
  const bool kernel = category == "kernel", copy = category == "gpu_memcpy", fill = category == "gpu_memset";
  const bool call = category == "cuda_runtime" || category == "cuda_driver";
  const bool range = category == "user_annotation", overhead = category == "overhead";
  if (phase != "X" || !(kernel || copy || fill || call || range || overhead)) {
    if (phase == "X") ++counts.others;
    return;
  }
  const auto span = times(counts.left_out);
  if (!span) return;
  if (kernel && name.empty()) {
    ++counts.left_out.nameless;
    return;
  }
  const auto [start, end] = *span;
  // A file holds one process, whose number the rows of a GPU do not say: 0 for all, so that calls meet their kernels.
  const DeviceWork work{start, end, narrow(device.value_or(process)), narrow(context),
                        narrow(stream.value_or(thread)), narrow(correlation), graph_node, 0};
  if (kernel) {
    KernelRecord record;
    record.work = work;
    record.mangled_name = name;
    record.grid = grid;
    record.block = block;
    record.registers = narrow(registers);
    record.shared_executed = narrow(shared);
    to.add(record);
    ++counts.kernels;
  } else if (copy) {
    const auto [source, target] = memory_kinds(name);
    to.add(CopyRecord{work, bytes, copy_kind(name), source, target});
    ++counts.copies;
  } else if (fill) {
    to.add(FillRecord{work, bytes, 0, 0});
    ++counts.fills;
  } else if (call) {
    to.add(CallRecord{start, end, 0, narrow(thread), narrow(correlation), 0, category == "cuda_driver", name});
    ++counts.calls;
  } else if (range) {
    to.add(RangeRecord{start, end, 0, narrow(thread), name});
    ++counts.ranges;
  } else {
    to.add(OverheadRecord{start, end, 0});
  }
}

}  // namespace kvroof
