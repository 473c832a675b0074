#include "traces/import_profile.hpp"

#include "traces/file_io.hpp"
#include "traces/writer.hpp"

namespace kvroof {

void write_profile(const std::filesystem::path& out, std::string_view tool_version, const std::string& command_line,
                   const std::function<void(ProfileSink&)>& write) {
  TraceManifest manifest;
  manifest.source = "profile";
  manifest.tool_version = tool_version;
  manifest.command_line = command_line;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(out, ignored);
  std::optional<TraceWriter> writer(std::in_place, out, manifest);
  try {
    write(writer->profile());
    writer->seal();
  } catch (...) {
    // The folder was empty or is our own.
    writer.reset();
    for (const auto& entry : std::filesystem::directory_iterator(out)) std::filesystem::remove_all(entry, ignored);
    if (!existed) std::filesystem::remove(out, ignored);
    throw;
  }
}

ProfileCounts import_profile(const std::filesystem::path& file, std::string_view kind, ReadProfile read,
                             const std::filesystem::path& out, const std::string& tool_version,
                             const std::string& command_line) {
  static_cast<void>(open_file(file).or_throw(file.string()));
  ProfileCounts counts;
  write_profile(out, tool_version, command_line, [&](ProfileSink& sink) {
    counts = read(file, sink).or_throw(file.string());
    sink.note("imported_from", kind);
    if (counts.others > 0) sink.note("not_imported", std::to_string(counts.others));
  });
  return counts;
}

}  // namespace kvroof
