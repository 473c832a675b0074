#include "apps/replay/replay_kept.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.hpp"
#include "apps/cli/output.hpp"
#include "sim/core/error.hpp"
#include "sim/core/files.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {

bool KeptSteps::contains(StepId step, StepId last_step) const {
  if (kind == Kind::kAll) return true;
  if (kind == Kind::kLast) return step == last_step;
  return first <= step.value && step.value <= last;
}

KeptSteps parse_kept_steps(const std::string& text) {
  if (text == "last") return {};
  if (text == "all") return {KeptSteps::Kind::kAll, 0, 0};
  const std::size_t dots = text.find("..");
  const std::string_view whole = text;
  const auto first = parse_number<std::uint32_t>(whole.substr(0, dots));
  const auto last = dots == std::string::npos ? first : parse_number<std::uint32_t>(whole.substr(dots + 2));
  if (first && last && *first <= *last) return {KeptSteps::Kind::kRange, *first, *last};
  const std::vector<std::string> words = {"last", "all"};
  throw usage_error(
      fmt::format("--kept-steps {}: expected last, all or A..B with A ≤ B{}", text, did_you_mean(text, words)));
}

KeptSteps recorded_steps(const KeptSteps& asked, const TraceManifest& manifest, std::string& clipped) {
  if (asked.kind != KeptSteps::Kind::kRange) return asked;
  std::uint32_t end = 0;
  for (const TraceSequence& s : manifest.sequences) end = std::max(end, s.tokens - std::min(s.tokens, s.prompt));
  const std::string range =
      fmt::format("--kept-steps {}..{}: the trace has steps 0 to {}", asked.first, asked.last, end);
  if (asked.first > end) throw usage_error(range + " (0 is after the prompt)");
  KeptSteps steps = asked;
  steps.last = std::min(asked.last, end);
  if (steps.last < asked.last) clipped = fmt::format("{}; written are {}..{}", range, steps.first, steps.last);
  return steps;
}

KeptWriter::KeptWriter(std::filesystem::path path, std::vector<PolicySpec> points)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  for (const PolicySpec& point : points) {
    const nlohmann::ordered_json head = {{"point", point.text()}, {"policy", point.name}};
    std::string text = head.dump();
    text.back() = ',';
    heads_.push_back(std::move(text));
  }
  if (temporary_ != path_) unfinished_.emplace(temporary_);  // first: a signal may come as soon as the file is there
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) fail(errno);
}

KeptWriter::~KeptWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (temporary_ != path_) std::remove(temporary_.c_str());
}

void KeptWriter::fail(int reason) const {
  throw Error(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(reason)));
}

void KeptWriter::write(const KeptSet& set) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_),
                 R"({}"sequence":{},"step":{},"layer":{},"head":{},"head_kind":"{}","kept":[)", heads_[set.point],
                 set.sequence, set.step.value, set.layer.value, set.head, set.query_head ? "query" : "kv");
  for (std::size_t i = 0; i < set.positions.size(); ++i) {
    fmt::format_to(std::back_inserter(line_), "{}{}", i == 0 ? "" : ",", set.positions[i].value);
  }
  line_ += "]}\n";
  if (std::fwrite(line_.data(), 1, line_.size(), file_) != line_.size()) fail(errno);
  ++lines_;
}

void KeptWriter::close() {
  if (lines_ == 0) {
    throw usage_error(fmt::format("{}: no policy keeps a set in the steps asked for", path_.string()))
        .note("oracle chooses what to read at each decoded step and keeps nothing after the prompt");
  }
  std::FILE* file = std::exchange(file_, nullptr);
  const bool closed = std::fclose(file) == 0;
  const bool whole = closed && std::rename(temporary_.c_str(), path_.c_str()) == 0;
  const int reason = errno;
  unfinished_.reset();
  if (whole) return;
  if (temporary_ != path_) std::remove(temporary_.c_str());
  fail(reason);
}

}  // namespace kvroof
