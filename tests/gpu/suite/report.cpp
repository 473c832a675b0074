#include "tests/gpu/suite/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace kvroof::suite {

Report::Report(std::filesystem::path path, const std::string& part, Json device, double seconds,
               const std::string& ended)
    : path_(std::move(path)), start_(std::chrono::steady_clock::now()), seconds_(seconds) {
  document_ = {{"format", "kvroof-gpu-suite-1"},
               {"part", part},
               {"device", std::move(device)},
               {"complete", false},
               {"failures", 0},
               {"seconds", 0.0},
               {"cut", Json::array()},
               {"rows", Json::array()}};
  if (!ended.empty()) take_over(ended);
  save();
}

void Report::take_over(const std::string& ended) {
  std::ifstream file(path_);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json earlier = Json::parse(text, nullptr, false);
  if (!earlier.is_object() || !earlier.contains("rows")) return;
  document_["rows"] = before_ = earlier["rows"];
  document_["failures"] = failures_ = earlier.value("failures", std::size_t{0});
  if (!earlier.contains("doing")) return;
  const Json& doing = earlier["doing"];
  const bool said = std::any_of(before_.begin(), before_.end(), [&](const Json& row) {
    return row["what"] == doing["what"] && row["parameters"] == doing["parameters"] && !row.value("passed", true);
  });
  if (!said) check(doing["what"], doing["parameters"], false, {{"problem", "the process ended here: " + ended}});
  before_.push_back(doing);
}

bool Report::made_before(const std::string& what, const Json& parameters) const {
  return std::any_of(before_.begin(), before_.end(), [&](const Json& row) {
    return row["what"] == what && row["parameters"] == parameters;
  });
}

// An error of a kernel stays with the context of a process for good.
bool Report::device_is_lost() {
  cuda::Stream stream;
  if (cuda::open_stream(stream) != nullptr) return true;
  const bool lost = cuda::synchronize(stream) != nullptr;
  cuda::close_stream(stream);
  return lost;
}

// The file names the row that is being made; within it another may be.
void Report::guarded(const std::string& what, const Json& parameters, const std::function<void()>& body) {
  if (made_before(what, parameters)) return;
  if (out_of_time()) return cut(what, parameters);
  Json outer = std::move(doing_);
  doing_ = {{"what", what}, {"parameters", parameters}};
  save();
  bool lost = false;
  try {
    body();
  } catch (const std::exception& problem) {
    check(what, parameters, false, {{"problem", problem.what()}});
    lost = device_is_lost();
  }
  doing_ = std::move(outer);
  if (lost) throw DeviceLost{};
}

double Report::seconds_left() const {
  const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start_;
  return seconds_ - gone.count();
}

void Report::add(const std::string& what, Json parameters, const Json& results) {
  Json row = {{"what", what}, {"parameters", std::move(parameters)}};
  row.update(results);
  document_["rows"].push_back(std::move(row));
  save();
}

void Report::check(const std::string& what, const Json& parameters, bool passed, const Json& results) {
  Json all = {{"passed", passed}};
  all.update(results);
  if (!passed) {
    document_["failures"] = ++failures_;
    fmt::print("FAILED {} {} {}\n", what, parameters.dump(), results.dump());
    std::fflush(stdout);
  }
  add(what, parameters, all);
}

void Report::cut(const std::string& what, const Json& parameters) {
  document_["cut"].push_back({{"what", what}, {"parameters", parameters}});
  save();
}

void Report::finish() {
  document_["complete"] = true;
  save();
}

// By way of a second file: whoever reads finds whole rows.
void Report::save() const {
  if (path_.empty()) return;
  Json document = document_;
  if (!doing_.is_null()) document["doing"] = doing_;
  document["seconds"] = seconds_ - seconds_left();
  const std::filesystem::path fresh = path_.string() + ".tmp";
  {
    std::ofstream file(fresh);
    file << document.dump(1) << '\n';
    if (!file) throw std::runtime_error(fmt::format("{}: cannot be written", fresh.string()));
  }
  std::filesystem::rename(fresh, path_);
}

Json results_of(const cuda::Measured& m, double bytes, double limit) {
  const double rate = m.median > 0 ? bytes / m.median : 0;
  Json json = {{"seconds", m.best}, {"median_seconds", m.median}, {"spread", m.spread}, {"runs", m.runs},
               {"bytes", bytes},    {"bytes_per_s", rate}};
  if (limit > 0) json["share"] = rate / limit;
  return json;
}

}  // namespace kvroof::suite
