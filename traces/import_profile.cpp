#include "traces/import_profile.hpp"

#include "sim/core/files.hpp"
#include "traces/writer.hpp"

namespace kvroof {

std::string LeftOutRecords::text() const {
  std::string text;
  const auto say = [&](std::uint64_t count, const char* one, const char* many) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? one : many);
  };
  say(before, "record that began before the recording", "records that began before the recording");
  say(backwards, "record that ends before it starts", "records that end before they start");
  say(timeless, "record without a time", "records without a time");
  say(nameless, "kernel without a name", "kernels without a name");
  return text;
}

void write_profile(const std::filesystem::path& out, std::string_view tool_version, const std::string& command_line,
                   const std::function<void(ProfileSink&)>& write) {
  TraceManifest manifest;
  manifest.source = "profile";
  manifest.tool_version = tool_version;
  manifest.command_line = command_line;
  write_whole_trace(out, std::move(manifest), [&](TraceWriter& writer) { write(writer.profile()); });
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
    if (counts.left_out.total() > 0) sink.note("left_out", counts.left_out.text());
  });
  return counts;
}

}  // namespace kvroof
