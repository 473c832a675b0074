#include "tests/gpu/suite/report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace kvroof::suite {

Report::Report(std::filesystem::path path, const std::string& part, Json device, double seconds)
    : path_(std::move(path)), start_(std::chrono::steady_clock::now()), seconds_(seconds) {
  document_ = {{"format", "kvroof-gpu-suite-1"},
               {"part", part},
               {"device", std::move(device)},
               {"complete", false},
               {"failures", 0},
               {"seconds", 0.0},
               {"cut", Json::array()},
               {"rows", Json::array()}};
  save();
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
