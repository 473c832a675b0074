#include "traces/journal.hpp"

#include <algorithm>

#include "sim/core/checked.hpp"
#include "sim/core/files.hpp"
#include "traces/checksum.hpp"
#include "traces/json_object.hpp"
#include "traces/manifest.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMaxSegments = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;

// One line against those before it.
Result<JournalLine> parse_line(std::string_view text, const JournalLine* before) {
  const Result<JsonObject> parsed = JsonObject::parse(text);
  if (!parsed) return failure("{}", parsed.error());
  const JsonObject& object = parsed.value();
  const std::uint64_t segment = before == nullptr ? 0 : before->segment + std::uint64_t{1};
  const std::uint64_t first = before == nullptr ? 0 : std::uint64_t{before->first_step} + before->steps;
  JournalLine line;
  line.segment = static_cast<std::uint32_t>(object.integer("segment", segment, std::min(segment, kMaxSegments)));
  line.first_step = static_cast<std::uint32_t>(object.integer("first_step", first, std::min(first, kMaxSteps)));
  line.steps = static_cast<std::uint32_t>(object.integer("steps", 0, kMaxSteps - 1));
  line.bytes = object.integer("bytes", 8, kMaxBytes);
  line.xxh3 = object.hex("xxh3");
  if (object.string("file") != segment_file(line.segment)) object.refuse("file", "is not that of the segment");
  if (!object.problem().empty()) return Failure{object.problem()};
  return line;
}

}  // namespace

std::string segment_file(std::uint32_t segment) {
  return fmt::format("{}/{:05}.safetensors", kSegmentsFolder, segment);
}

std::string journal_line_to_json(const JournalLine& line) {
  return fmt::format("{{\"segment\":{},\"file\":\"{}\",\"first_step\":{},\"steps\":{},\"bytes\":{},\"xxh3\":\"{}\"}}\n",
                     line.segment, segment_file(line.segment), line.first_step, line.steps, line.bytes,
                     to_hex(line.xxh3));
}

Journal parse_journal(std::string_view text) {
  Journal journal;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const auto number = journal.lines.size() + 1;
    if (end == std::string_view::npos) {
      journal.problem = fmt::format("line {} is cut off", number);
      break;
    }
    Result<JournalLine> line = parse_line(text.substr(0, end), journal.lines.empty() ? nullptr : &journal.lines.back());
    if (!line) {
      journal.problem = fmt::format("line {}: {}", number, line.error());
      break;
    }
    journal.lines.push_back(line.value());
    text.remove_prefix(end + 1);
  }
  return journal;
}

std::string seal_to_json(const Seal& seal) {
  return fmt::format(
      "{{\"format_version\":{},\"segments\":{},\"steps\":{},\"bytes\":{},\"manifest_xxh3\":\"{}\",\"journal_xxh3\":\"{}"
      "\","
      "\"kernels_bytes\":{},\"kernels_xxh3\":\"{}\"}}\n",
      kTraceFormatVersion, seal.segments, seal.steps, seal.bytes, to_hex(seal.manifest_xxh3), to_hex(seal.journal_xxh3),
      seal.kernels_bytes, to_hex(seal.kernels_xxh3));
}

void write_seal(const std::filesystem::path& trace, Seal seal) {
  const auto open = [&](std::string_view name) { return open_file(trace / name).or_throw((trace / name).string()); };
  const auto checksum = [&](std::string_view name) {
    const OpenFile file = open(name);
    return file_xxh3(file, file.size).or_throw((trace / name).string());
  };
  seal.manifest_xxh3 = checksum(kManifestFile);
  seal.journal_xxh3 = checksum(kJournalFile);
  seal.kernels_xxh3 = checksum(kKernelsFile);
  seal.kernels_bytes = open(kKernelsFile).size;
  write_text_file(trace / kSealFile, seal_to_json(seal));
}

Result<Seal> seal_from_json(std::string_view text) {
  const Result<JsonObject> parsed = JsonObject::parse(text);
  if (!parsed) return failure("{}", parsed.error());
  const JsonObject& object = parsed.value();
  Seal seal;
  static_cast<void>(object.integer("format_version", 1, kTraceFormatVersion));
  seal.segments = static_cast<std::uint32_t>(object.integer("segments", 0, kMaxSegments));
  seal.steps = static_cast<std::uint32_t>(object.integer("steps", 0, kMaxSteps));
  seal.bytes = object.integer("bytes", 0, kMaxBytes);
  seal.manifest_xxh3 = object.hex("manifest_xxh3");
  seal.journal_xxh3 = object.hex("journal_xxh3");
  seal.kernels_bytes = object.integer("kernels_bytes", 0, kMaxBytes);
  seal.kernels_xxh3 = object.hex("kernels_xxh3");
  if (!object.problem().empty()) return Failure{object.problem()};
  return seal;
}

}  // namespace kvroof
