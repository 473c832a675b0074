// Finding engine files.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sim/core/files.hpp"
#include "sim/core/names.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"
#include "sim/core/version.hpp"
#include "sim/cost/engine_profile.hpp"

namespace kvroof {

namespace fs = std::filesystem;

std::vector<std::string> catalog_engine_names(const fs::path& catalog) { return yaml_names(catalog / "engines"); }

namespace {

// "ollama" is priced by the profile that lists it under published_as; else the nearest name.
std::string engine_suggestion(const std::string& name, const std::vector<std::string>& names,
                              const fs::path& catalog) {
  for (const std::string& profile : names) {
    for (const std::string& other : find_engine_profile(profile, catalog).published_as) {
      if (lower_case(name) == lower_case(other)) return fmt::format("; the profile of {} is {}", other, profile);
    }
  }
  return did_you_mean(name, names);
}

// Why the profile says nothing of the version, or nothing: none of its earlier ones is counted that way.
std::string version_problem(const EngineProfile& profile, const std::string& version) {
  std::map<std::optional<VersionKind>, std::string> counted;  // an example of each way
  for (const EngineProfile* p = &profile; !p->earlier.empty(); p = &p->earlier.front()) {
    for (const std::string& before : p->earlier.front().before) counted.emplace(version_kind(before), before);
  }
  if (counted.empty()) return fmt::format("its profile is the same for all versions; leave '@{}' away", version);
  if (counted.count(version_kind(version)) > 0) return {};
  std::vector<std::string> examples;
  for (const auto& [kind, example] : counted) examples.push_back(example);
  return fmt::format("versions of {} are stated like {}, found '{}'", profile.name, join(examples, " or "), version);
}

}  // namespace

EngineProfile find_engine_profile(const std::string& asked, const fs::path& catalog, std::string_view architecture,
                                  double memory_gib) {
  const std::size_t at = std::min(asked.find('@'), asked.size());
  std::string name = asked.substr(0, at);
  const std::string version = asked.substr(std::min(at + 1, asked.size()));
  if (at < asked.size() && !is_version(version)) {
    throw usage_error(fmt::format("engine '{}': '{}' is no version", asked, version))
        .note(fmt::format("a version is one such as {}", kVersionExamples));
  }
  const std::vector<std::string> names = catalog_engine_names(catalog);
  name = same_name(name, names).value_or(name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw usage_error(fmt::format("unknown engine '{}'{}", name, engine_suggestion(name, names, catalog)))
        .note(fmt::format("known engines: {}", join(names)));
  }
  const fs::path file = catalog / "engines" / (name + ".yaml");
  constexpr std::uint64_t kMostBytes = 1U << 20;
  const std::string text = read_text_file(file, kMostBytes).or_throw(file.string());
  const EngineProfile today = engine_from_yaml(text).or_throw(file.string(), ExitCode::kUsage);
  check_catalog_name(today.name, file);
  if (version.empty() && architecture.empty()) return today;
  const std::string problem = version.empty() ? "" : version_problem(today, version);
  if (!problem.empty()) throw usage_error(fmt::format("engine '{}': {}", asked, problem));
  return today.of(version, architecture, memory_gib);
}

EngineProfile default_engine_profile(DeviceKind kind, const fs::path& catalog) {
  return find_engine_profile(kind == DeviceKind::kGpu ? "kvroof" : "cpu", catalog);
}

}  // namespace kvroof
