#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <unordered_map>

#include "traces/timeline.hpp"

namespace kvroof {
namespace {

class ChromeTimeline final : public Timeline {
 public:
  explicit ChromeTimeline(std::ostream& to) : to_(to) { to_ << R"({"displayTimeUnit":"ns","traceEvents":[)"; }

  void process(std::uint32_t process, std::string_view name) override {
    write(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process, quoted(name));
  }
  void slice_track(std::uint64_t track, std::uint32_t process, std::string_view name) override {
    tracks_[track] = {process, {}};
    write(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", process, track, quoted(name));
  }
  void counter_track(std::uint64_t track, std::uint32_t process, std::string_view name,
                     std::string_view unit) override {
    tracks_[track] = {process, quoted(fmt::format("{} ({})", name, unit))};
  }
  void slice(std::uint64_t track, std::string_view name, std::uint64_t start_ns, std::uint64_t end_ns,
             std::span<const TimelineArgument> arguments) override {
    std::string values;
    for (const TimelineArgument& a : arguments) {
      values += fmt::format("{}{}:{}", values.empty() ? "" : ",", quoted(a.name), a.value);
    }
    write(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})", quoted(name),
          tracks_[track].process, track, us(start_ns), us(end_ns - start_ns), values);
  }
  void counter(std::uint64_t track, std::uint64_t time_ns, double value) override {
    const Track& t = tracks_[track];
    write(R"({{"ph":"C","name":{},"pid":{},"ts":{},"args":{{"value":{}}}}})", t.counter, t.process, us(time_ns), value);
  }
  void finish() override { to_ << "\n]}\n"; }

 private:
  struct Track {
    std::uint32_t process = 0;
    std::string counter;  // its name as JSON
  };
  static std::string us(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
  static std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  template <class... Args>
  void write(fmt::format_string<Args...> text, Args&&... args) {
    to_ << (first_ ? "\n" : ",\n") << fmt::format(text, std::forward<Args>(args)...);
    first_ = false;
  }

  std::ostream& to_;
  std::unordered_map<std::uint64_t, Track> tracks_;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<Timeline> chrome_timeline(std::ostream& to) { return std::make_unique<ChromeTimeline>(to); }

}  // namespace kvroof
