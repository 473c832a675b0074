// Repair of traces: keeps the unbroken run of intact segments, sets everything else aside, and seals the result.
#include <algorithm>
#include <set>
#include <span>
#include <system_error>
#include <tuple>

#include "sim/core/files.hpp"
#include "traces/kernels_db.hpp"
#include "traces/kernels_left.hpp"
#include "traces/sqlite.hpp"
#include "traces/survey.hpp"
#include "traces/writer_lock.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

// A name in lost/ that is not taken there.
fs::path lost_name(const fs::path& trace, const fs::path& file) {
  const fs::path lost = trace / kLostFolder;
  std::error_code error;
  fs::create_directory(lost, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", lost.string(), error.message()));
  fs::path name = lost / file.filename();
  for (int n = 1; fs::exists(name, error); ++n) name = lost / fmt::format("{}.{}", file.filename().string(), n);
  return name;
}

void move(const fs::path& file, const fs::path& target) {
  std::error_code error;
  fs::rename(file, target, error);
  if (error) throw Error(fmt::format("cannot move {} to {}: {}", file.string(), target.string(), error.message()));
}

// Moves a file into lost/.
void set_aside(const fs::path& trace, const fs::path& file) {
  std::error_code error;
  if (fs::exists(file, error)) move(file, lost_name(trace, file));
}

// The manifest, of which lost/ keeps what was there where it said something else.
void rewrite_manifest(const fs::path& trace, const std::string& text) {
  const fs::path file = trace / kManifestFile;
  std::error_code error;
  if (fs::exists(file, error) && read_text_file(file, UINT64_MAX).or_throw(file.string()) != text) {
    const fs::path target = lost_name(trace, file);
    fs::copy_file(file, target, error);
    if (error) throw Error(fmt::format("cannot copy {} to {}: {}", file.string(), target.string(), error.message()));
  }
  write_text_file(file, text);
}

// Everything in segments/ that is not one of the first `kept`.
void set_aside_segments(const fs::path& trace, std::uint32_t kept) {
  std::set<fs::path> keep;
  for (std::uint32_t i = 0; i < kept; ++i) keep.insert(trace / segment_file(i));
  std::set<fs::path> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(trace / kSegmentsFolder)) {
    if (!keep.contains(entry.path())) others.insert(entry.path());
  }
  // What a kill left of files that are written whole, under names that no other writer uses again.
  for (const fs::directory_entry& entry : fs::directory_iterator(trace)) {
    const bool is_staged = entry.path() == staged_kernels_db(trace / kKernelsFile);
    if (entry.path().extension() == ".part" && !is_staged) others.insert(entry.path());
  }
  for (const fs::path& other : others) set_aside(trace, other);
}

// Two manifests without what may differ between the start of a run and its end.
bool same_run(TraceManifest a, TraceManifest b) {
  for (TraceManifest* m : {&a, &b}) {
    m->command_line.clear();
    m->host.clear();
    m->linear.clear();
    for (TraceSequence& sequence : m->sequences) {
      sequence.tokens = 0;
      sequence.stop_reason = "unknown";
    }
  }
  return manifest_to_json(a) == manifest_to_json(b);
}

// The database to go on with: what was staged, or, where a kill came between its last name and the seal, the one with
// that name, which a seal would disown.
struct FoundKernels {
  fs::path database;  // empty: none
  bool has_records = false;
  std::vector<std::string> damaged;  // "kernels.sqlite.part is damaged (why)" for each that is
};

std::string damage_of(const fs::path& database, const std::string& why) {
  return fmt::format("{} is damaged ({})", database.filename().string(), why);
}

FoundKernels find_kernels(const fs::path& trace, bool sealed) {
  const fs::path path = trace / kKernelsFile;
  FoundKernels found;
  for (const fs::path& database : {staged_kernels_db(path), path}) {
    if (sealed && database == path) break;
    const KernelsLeft left = look_at_left_kernels(database);
    if (!left.problem.empty()) found.damaged.push_back(damage_of(database, left.problem));
    if (!left.is_usable) continue;
    found.database = database;
    found.has_records = left.has_records;
    break;
  }
  return found;
}

// The steps with the clock times that a database has of them.
std::vector<StepRecord> with_times(std::span<const StepRecord> steps, const fs::path& database) {
  std::vector<StepRecord> timed(steps.begin(), steps.end());
  const auto times = read_step_times(database).or_throw(database.string());
  for (std::size_t i = 0; i < std::min(timed.size(), times.size()); ++i) {
    std::tie(timed[i].start_ns, timed[i].end_ns) = times[i];
  }
  return timed;
}

// What was found under the name of what is staged, and everything else of its kind in lost/.
void stage_found(const fs::path& trace, const fs::path& found) {
  const fs::path path = trace / kKernelsFile, part = staged_kernels_db(path);
  if (found != part) {
    set_aside(trace, part);
    set_aside(trace, part.string() + "-journal");  // of another file, which would be rolled back into this one
  }
  if (found == path) {
    move(path, part);
  } else {
    set_aside(trace, path);
  }
}

// kernels.sqlite with these steps and what was found. Throws Error where it cannot be written now: what was found then
// stays staged, for a repair that can. Only what no disk could make right is set aside.
void restore_kernels(const fs::path& trace, std::span<const StepRecord> steps, FoundKernels& found) {
  const fs::path path = trace / kKernelsFile, part = staged_kernels_db(path);
  std::vector<StepRecord> timed(steps.begin(), steps.end());
  try {
    if (!found.database.empty()) timed = with_times(steps, found.database);
    stage_found(trace, found.database);
    if (!found.database.empty()) return KernelDatabase(path, KernelDatabase::From::kStaged).complete(timed);
  } catch (const DamagedDatabase& error) {
    found.damaged.push_back(damage_of(part, error.reason()));
    stage_found(trace, {});
  } catch (Error& error) {
    throw std::move(error).note("nothing is lost: repair it again once it can be written");
  }
  write_kernels_db(path, timed);
}

// manifest.json wherever it tells of the same run as the manifest that the segments vouch for: it may say more about
// its end.
TraceManifest believed_manifest(const Survey& survey) {
  if (!survey.manifest) return *survey.manifest_file;
  const bool same = survey.manifest_file && same_run(*survey.manifest_file, *survey.manifest);
  return same ? *survey.manifest_file : *survey.manifest;
}

// All steps of the intact segments, without clock times.
std::vector<StepRecord> steps_of(const fs::path& trace, const Survey& survey) {
  std::vector<StepRecord> steps;
  for (const SegmentIndex& segment : survey.segments) {
    const std::string name = (trace / segment_file(segment.segment)).string();
    std::vector<std::int64_t> rows(segment.step_count * kStepColumns);
    const OpenFile file = open_file(name).or_throw(name);
    if (auto problem = read_at(file, segment.steps, std::as_writable_bytes(std::span(rows)))) {
      throw Error(fmt::format("{}: {}", name, problem->message));
    }
    for (std::size_t at = 0; at < rows.size(); at += kStepColumns) {
      steps.push_back(step_from_row(std::span(rows).subspan(at, kStepColumns)).or_throw(name, ExitCode::kDamagedTrace));
    }
  }
  return steps;
}

// How a sequence ended of which nothing was recorded but its rows. kvroof's engine feeds every new token but the last,
// and a decode step has all sequences that still run, so one that has fewer rows than these steps had ended before.
std::string end_of(const TraceSequence& sequence, std::uint32_t rows, std::uint32_t decode_steps) {
  if (rows < sequence.prompt || rows == 0) return "interrupted";
  const std::uint32_t fed = rows - sequence.prompt;
  if (fed + 1 >= sequence.requested_new_tokens) return "length";
  return fed < decode_steps ? "unknown" : "interrupted";
}

void complete_sequences(TraceManifest& manifest, const Survey& survey, std::span<const StepRecord> steps) {
  std::vector<std::uint32_t> rows(manifest.sequences.size());
  for (const SegmentIndex& segment : survey.segments) {
    for (const SequenceIndex& s : segment.sequences) rows[s.sequence] += s.rows;
  }
  const auto decode_steps =
      static_cast<std::uint32_t>(std::ranges::count(steps, std::string("decode"), &StepRecord::phase));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TraceSequence& sequence = manifest.sequences[i];
    if (sequence.tokens != rows[i] || sequence.stop_reason == "unknown") {
      const bool own = manifest.source == "engine" && of_own_engine(manifest);
      sequence.stop_reason = own ? end_of(sequence, rows[i], decode_steps) : "interrupted";
    }
    sequence.tokens = rows[i];
  }
}

}  // namespace

TraceReport repair_trace(const fs::path& path) {
  WriterLock lock(path, WriterLock::Of::kLeftTrace);  // before the look, which a writer would make untrue
  const Survey survey = survey_trace(path, true);
  if (survey.newer) throw damaged_trace(path, survey);
  if (survey.report.sealed && survey.report.intact) return survey.report;
  const bool keep_kernels = survey.kernels_intact && survey.seal->steps == survey.report.intact_steps;
  const bool has_steps = survey.report.intact_steps > 0;
  // A trace of a profiler's records alone has no steps.
  const bool is_profile = survey.manifest_file && !has_attention(*survey.manifest_file);
  FoundKernels found;
  if (!keep_kernels && (has_steps || is_profile)) found = find_kernels(path, survey.seal.has_value());
  if (!has_steps && !(is_profile && (keep_kernels || found.has_records))) {
    throw damaged_trace(path, survey, found.damaged.empty() ? "" : found.damaged.front())
        .note("there is nothing to keep; the folder was left as it is");
  }
  TraceManifest manifest = believed_manifest(survey);
  const std::vector<StepRecord> steps = steps_of(path, survey);
  complete_sequences(manifest, survey, steps);
  const bool keep_manifest = survey.manifest_file && same_run(*survey.manifest_file, manifest);

  // What the seal disowns goes before it, or a repair after one that was cut short would believe it.
  if (survey.seal && !keep_kernels) set_aside(path, path / kKernelsFile);
  // The seal goes next, so that a repair that is cut short leaves a trace that is still known to be incomplete.
  set_aside(path, path / kSealFile);
  set_aside_segments(path, survey.report.intact_segments);
  set_aside(path, path / kJournalFile);
  if (!keep_manifest) set_aside(path, path / kManifestFile);
  if (!keep_kernels) restore_kernels(path, steps, found);
  Seal seal;
  std::string journal;
  for (const JournalLine& line : survey.lines) {
    journal += journal_line_to_json(line);
    seal.segments += 1;
    seal.steps += line.steps;
    seal.bytes += line.bytes;
  }
  write_text_file(path / kJournalFile, journal);
  rewrite_manifest(path, manifest_to_json(manifest));
  write_seal(path, seal);
  lock.remove();
  TraceReport report = inspect_trace(path, true);
  for (const std::string& damaged : found.damaged) {
    constexpr auto* kMoved = "{}: it was moved into {}/, with the kernels and clock times that it tells of";
    report.problems.push_back(fmt::format(kMoved, damaged, kLostFolder));
  }
  return report;
}

}  // namespace kvroof
