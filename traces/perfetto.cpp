// Perfetto's protobuf by hand: a trace is a sequence of packets, each a length and fields of a number, a type and a
// value. Every event is a packet of its own, so that memory stays flat.
#include <array>
#include <bit>
#include <ostream>
#include <string>
#include <vector>

#include "traces/timeline.hpp"

namespace kvroof {
namespace {

// Wire types of protobuf.
constexpr std::uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2;

class Message {
 public:
  void integer(std::uint32_t field, std::uint64_t value) {
    tag(field, kVarint);
    varint(value);
  }
  void number(std::uint32_t field, double value) {
    tag(field, kFixed64);
    for (std::uint64_t bits = std::bit_cast<std::uint64_t>(value), i = 0; i < 8; ++i, bits >>= 8U) {
      bytes_ += static_cast<char>(bits & 0xffU);
    }
  }
  void text(std::uint32_t field, std::string_view value) {
    tag(field, kBytes);
    varint(value.size());
    bytes_ += value;
  }
  void message(std::uint32_t field, const Message& inner) { text(field, inner.bytes_); }
  void clear() { bytes_.clear(); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void tag(std::uint32_t field, std::uint32_t type) { varint(field << 3U | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(value | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Field numbers, by message.
constexpr std::uint32_t kTracePacket = 1;
constexpr std::uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr std::uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kParent = 5, kCounter = 8;
constexpr std::uint32_t kPid = 1, kProcessName = 6;
constexpr std::uint32_t kUnit = 3, kUnitName = 6;
constexpr std::uint32_t kAnnotation = 4, kType = 9, kTrack = 11, kName = 23, kDouble = 44;
constexpr std::uint32_t kAnnotationName = 10, kAnnotationUint = 3;
constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kCounterEvent = 4;
constexpr std::uint64_t kUnitBytes = 3, kStateCleared = 1;
// Tracks of processes get numbers beyond those of the caller.
constexpr std::uint64_t kProcessTracks = std::uint64_t{1} << 40U;

class PerfettoTimeline final : public Timeline {
 public:
  explicit PerfettoTimeline(std::ostream& to) : to_(to) {}

  void process(std::uint32_t process, std::string_view name) override {
    inner_.clear();
    inner_.integer(kPid, process);
    inner_.text(kProcessName, name);
    describe(kProcessTracks + process, {}, 0, kProcess);
  }
  void slice_track(std::uint64_t track, std::uint32_t process, std::string_view name) override {
    describe(track, name, kProcessTracks + process, 0);
  }
  void counter_track(std::uint64_t track, std::uint32_t process, std::string_view name,
                     std::string_view unit) override {
    inner_.clear();
    if (unit == "bytes") {
      inner_.integer(kUnit, kUnitBytes);
    } else {
      inner_.text(kUnitName, unit);
    }
    describe(track, name, kProcessTracks + process, kCounter);
  }
  void slice(std::uint64_t track, std::string_view name, std::uint64_t start_ns, std::uint64_t end_ns,
             std::span<const TimelineArgument> arguments) override {
    begin_event(kSliceBegin, track);
    event_.text(kName, name);
    for (const TimelineArgument& argument : arguments) {
      inner_.clear();
      inner_.text(kAnnotationName, argument.name);
      inner_.integer(kAnnotationUint, argument.value);
      event_.message(kAnnotation, inner_);
    }
    write_event(start_ns);
    begin_event(kSliceEnd, track);
    write_event(end_ns);
  }
  void counter(std::uint64_t track, std::uint64_t time_ns, double value) override {
    begin_event(kCounterEvent, track);
    event_.number(kDouble, value);
    write_event(time_ns);
  }
  void finish() override {}

 private:
  // inner_ goes into the descriptor as this field; 0: nothing does.
  void describe(std::uint64_t uuid, std::string_view name, std::uint64_t parent, std::uint32_t inner) {
    event_.clear();
    event_.integer(kUuid, uuid);
    if (!name.empty()) event_.text(kTrackName, name);
    if (inner != 0) event_.message(inner, inner_);
    if (parent != 0) event_.integer(kParent, parent);
    packet_.clear();
    packet_.message(kTrackDescriptor, event_);
    write_packet();
  }
  void begin_event(std::uint64_t type, std::uint64_t track) {
    event_.clear();
    event_.integer(kType, type);
    event_.integer(kTrack, track);
  }
  void write_event(std::uint64_t time_ns) {
    packet_.clear();
    packet_.integer(kTimestamp, time_ns);
    packet_.message(kTrackEvent, event_);
    write_packet();
  }
  void write_packet() {
    packet_.integer(kSequence, 1);
    if (first_) packet_.integer(kSequenceFlags, kStateCleared);
    first_ = false;
    whole_.clear();
    whole_.message(kTracePacket, packet_);
    to_.write(whole_.bytes().data(), static_cast<std::streamsize>(whole_.bytes().size()));
  }

  std::ostream& to_;
  Message inner_, event_, packet_, whole_;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<Timeline> perfetto_timeline(std::ostream& to) { return std::make_unique<PerfettoTimeline>(to); }

}  // namespace kvroof
