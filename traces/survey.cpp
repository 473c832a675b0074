#include "traces/survey.hpp"

#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"
#include "traces/checksum.hpp"
#include "traces/writer_lock.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

class Surveyor {
 public:
  Surveyor(const fs::path& path, bool verify) : path_(path), verify_(verify) {}

  Survey run() {
    read_seal();
    read_manifest();
    if (survey_.newer) return std::move(survey_);
    read_journal();
    read_segments();
    if (trusted_ && complete_) check_totals();
    check_kernels();
    survey_.report.intact = !damaged_;
    return std::move(survey_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> text, Args&&... args) {
    damaged_ = true;
    survey_.report.problems.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  [[nodiscard]] bool exists(std::string_view name) const {
    std::error_code ignored;
    return fs::exists(path_ / name, ignored);
  }

  std::optional<std::string> read_text(std::string_view name) {
    Result<std::string> text = read_text_file(path_ / name, kMaxTextFile);
    if (!text) {
      problem("{}: {}", name, text.error());
      return std::nullopt;
    }
    survey_.report.bytes += text.value().size();
    return std::move(text).value();
  }

  // Whether a file's text is the one that was sealed; without a seal nothing is known and nothing is said.
  bool sealed_as(std::string_view name, const std::string& text, std::uint64_t Seal::* checksum) {
    if (!survey_.seal) return false;
    const std::uint64_t expected = *survey_.seal.*checksum;
    if (xxh3(text) == expected) return true;
    problem("{}: checksum {}, expected {}", name, to_hex(xxh3(text)), to_hex(expected));
    return false;
  }

  void read_seal() {
    if (!exists(kSealFile)) {
      if (!exists(kManifestFile) && !exists(kJournalFile) && !exists(kSegmentsFolder)) {
        problem("it is not a trace, or its recording ended before it began: there is neither {} nor {}, {} or {}",
                kManifestFile, kJournalFile, kSegmentsFolder, kSealFile);
        return;
      }
      survey_.report.problems.push_back("the seal is missing: the recording did not end, or the trace was cut");
      return;
    }
    const auto text = read_text(kSealFile);
    if (!text) return;
    const Result<Seal> seal = seal_from_json(*text);
    if (!seal) {
      problem("{}: {}", kSealFile, seal.error());
      return;
    }
    survey_.seal = seal.value();
    survey_.report.sealed = true;
  }

  void read_manifest() {
    const auto text = read_text(kManifestFile);
    if (!text) return;
    Result<TraceManifest> manifest = manifest_from_json(*text);
    if (!manifest) {
      // The version is looked at before the checksum: a newer format may well be sealed in another way.
      survey_.newer = has_newer_format(*text);
      problem("{}: {}", kManifestFile, manifest.error());
      return;
    }
    survey_.manifest_sealed = sealed_as(kManifestFile, *text, &Seal::manifest_xxh3);
    survey_.manifest_file = std::move(manifest).value();
    if (survey_.manifest_sealed) survey_.manifest = survey_.manifest_file;
  }

  void read_journal() {
    if (!survey_.seal && !exists(kJournalFile)) return;  // killed before the first segment
    const auto text = read_text(kJournalFile);
    if (!text) return;
    Journal journal = parse_journal(*text);
    lines_ = std::move(journal.lines);
    trusted_ = sealed_as(kJournalFile, *text, &Seal::journal_xxh3);
    if (!journal.problem.empty()) {
      trusted_ = false;
      problem("{}: {}", kJournalFile, journal.problem);
    }
  }

  void read_segments() {
    for (std::uint32_t i = 0;; ++i) {
      const bool there = exists(segment_file(i));
      const bool expected = i < lines_.size() || (survey_.seal && i < survey_.seal->segments);
      // After the unbroken run has ended the rest is only counted; behind a sealed journal there is nothing of this
      // trace.
      if (!there && (!expected || !complete_)) break;
      if (trusted_ && !expected) break;
      ++survey_.report.segments;
      if (!complete_) continue;
      if (auto why = read_segment(i)) {
        complete_ = false;
        problem("segment {}{}: {}", i, steps_of(i), why->message);
      }
    }
    survey_.report.intact_segments = static_cast<std::uint32_t>(survey_.segments.size());
    survey_.report.intact_steps = chain_ ? chain_->steps() : 0;
    for (const JournalLine& line : survey_.lines) survey_.report.bytes += line.bytes;
  }

  [[nodiscard]] std::string steps_of(std::uint32_t segment) const {
    if (segment >= lines_.size() || lines_[segment].steps == 0) return "";
    const JournalLine& line = lines_[segment];
    return fmt::format(" (steps {}..{})", line.first_step, line.first_step + line.steps - 1);
  }

  std::optional<Failure> read_segment(std::uint32_t i) {
    const fs::path file = path_ / segment_file(i);
    const Result<OpenFile> opened = open_file(file);
    if (!opened) return failure("{}", opened.error());
    const std::uint64_t size = opened.value().size;
    const JournalLine* line = i < lines_.size() ? &lines_[i] : nullptr;
    if (trusted_ && line != nullptr && line->bytes != size) return failure("{} bytes, expected {}", size, line->bytes);
    const Result<SafetensorsFile> tensors = SafetensorsFile::open(file);
    if (!tensors) return failure("{}", tensors.error());
    const SafetensorsHeader& header = tensors.value().header();
    if (i == 0) choose_manifest(header);
    if (!survey_.manifest) return failure("there is no manifest to read it by");
    if (i == 0) chain_.emplace(*survey_.manifest);
    Result<SegmentIndex> index = index_segment(header, *survey_.manifest);
    if (!index) return failure("{}", index.error());

    JournalLine found{i, index.value().first_step, index.value().step_count, size, line != nullptr ? line->xxh3 : 0};
    if (verify_ || !trusted_) {
      const Result<SegmentChecksums> sums = segment_checksums(opened.value(), index.value().own_checksum);
      if (!sums) return failure("{}", sums.error());
      found.xxh3 = sums.value().file;
      const bool as_listed = line != nullptr && line->xxh3 == found.xxh3 && line->bytes == size;
      if (trusted_ && !as_listed) return failure("checksum {}, expected {}", to_hex(found.xxh3), to_hex(line->xxh3));
      // Nothing vouches for this journal, so that the segment's own word counts as much.
      if (!as_listed && !sums.value().own_right) return failure("its checksum is wrong");
    }
    if (auto problem = chain_->append(index.value())) return problem;
    survey_.segments.push_back(std::move(index).value());
    survey_.lines.push_back(found);
    return std::nullopt;
  }

  // A manifest that nothing vouches for gives way to the copy in segment 0, whose checksum is looked at next.
  void choose_manifest(const SafetensorsHeader& header) {
    if (survey_.manifest) return;
    survey_.manifest = survey_.manifest_file;
    const auto it = header.metadata.find("manifest");
    if (it == header.metadata.end()) return;
    Result<TraceManifest> copy = manifest_from_json(it->second);
    if (copy) survey_.manifest = std::move(copy).value();
  }

  void check_totals() {
    const Seal& seal = *survey_.seal;
    std::uint64_t bytes = 0;
    for (const JournalLine& line : survey_.lines) bytes += line.bytes;
    const std::uint32_t steps = survey_.report.intact_steps;
    if (survey_.lines.size() != seal.segments || steps != seal.steps || bytes != seal.bytes) {
      problem("{}, {} and {} bytes, the seal says {}, {} and {}", counted(survey_.lines.size(), "segment"),
              counted(steps, "step"), bytes, seal.segments, seal.steps, seal.bytes);
    }
    if (!survey_.manifest_sealed) return;
    for (std::size_t s = 0; s < survey_.manifest->sequences.size(); ++s) {
      const TraceSequence& sequence = survey_.manifest->sequences[s];
      const std::uint32_t rows = chain_ ? chain_->rows(s) : 0;
      if (sequence.tokens != rows) {
        problem("sequence {} has {} recorded tokens, the manifest says {}", sequence.id, rows, sequence.tokens);
      }
    }
  }

  void check_kernels() {
    if (!survey_.seal) return;
    const Result<OpenFile> file = open_file(path_ / kKernelsFile);
    if (!file) {
      problem("{}: {}", kKernelsFile, file.error());
      return;
    }
    survey_.report.bytes += file.value().size;
    if (file.value().size != survey_.seal->kernels_bytes) {
      problem("{}: {} bytes, expected {}", kKernelsFile, file.value().size, survey_.seal->kernels_bytes);
      return;
    }
    const Result<std::uint64_t> sum = file_xxh3(file.value(), file.value().size);
    if (!sum || sum.value() != survey_.seal->kernels_xxh3) {
      problem("{}: {}", kKernelsFile, sum ? "its checksum is wrong" : sum.error());
      return;
    }
    survey_.kernels_intact = true;
  }

  const fs::path& path_;
  bool verify_;
  Survey survey_;
  std::vector<JournalLine> lines_;     // as read
  std::optional<SegmentChain> chain_;  // from the first segment on
  bool trusted_ = false;               // the seal vouches for the journal
  bool complete_ = true;               // no segment was damaged
  bool damaged_ = false;
};

}  // namespace

std::string TraceReport::intact_text() const {
  return fmt::format("{} step{} intact", intact_steps, intact_steps == 1 ? " is" : "s are");
}

Survey survey_trace(const fs::path& path, bool verify) {
  std::error_code error;
  if (!fs::exists(path, error)) throw Error(fmt::format("there is no trace {}", path.string()));
  if (!fs::is_directory(path, error)) throw Error(fmt::format("{} is not a trace: it is not a folder", path.string()));
  return Surveyor(path, verify).run();
}

Survey survey_to_read(const fs::path& path, bool verify) {
  const bool written = has_writer(path);  // before the look: a writer seals and then lets go
  Survey survey = survey_trace(path, verify);
  survey.being_written = written && !survey.report.sealed;
  // What else is not as it should be follows from that.
  if (survey.being_written) survey.report.problems = {"it is still being written"};
  return survey;
}

Error damaged_trace(const fs::path& path, const Survey& survey, const std::string& problem) {
  const TraceReport& report = survey.report;
  const std::string why = !problem.empty() ? problem : report.problems.empty() ? "damaged" : report.problems.front();
  if (survey.newer) return Error(fmt::format("{}: {}", path.string(), why), ExitCode::kDamagedTrace);
  Error error(fmt::format("{}: {}; {}", path.string(), why, report.intact_text()), ExitCode::kDamagedTrace);
  if (survey.being_written) return std::move(error).note("it can be read once its recording has ended");
  if (report.intact_steps == 0) return error;
  return std::move(error).note(fmt::format("`kvroof inspect --repair {}` keeps what is intact", path.string()));
}

}  // namespace kvroof
