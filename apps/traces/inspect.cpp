// kvroof inspect: what is in a trace, whether it is intact, and repair of one that is not.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/cli/command.hpp"
#include "apps/cli/output.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"
#include "traces/journal.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/reader.hpp"
#include "traces/writer_lock.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

struct Inspection {
  fs::path path;
  TraceReport report;
  std::optional<TraceManifest> manifest;  // as far as it can be read
  bool has_profile = false;               // of an intact trace: the profiler's records below
  KernelCounts kernels;
  std::vector<std::pair<std::string, std::string>> notes;
  std::vector<std::string> devices;
  bool verified = false;
  bool repaired = false;
  bool being_written = false;
};

void read_profile(Inspection& i) {
  if (!i.report.sealed || !i.report.intact) return;
  const KernelReader reader = KernelReader::open(i.path);
  i.has_profile = true;
  i.kernels = reader.counts();
  i.notes = reader.notes();
  for (const DeviceRecord& device : reader.devices()) i.devices.emplace_back(device.name);
}

Inspection inspect(const Arguments& arguments) {
  Inspection result;
  result.path = arguments.positional[0];
  result.verified = arguments.get<bool>("verify");
  const bool written = has_writer(result.path);  // before the look: a writer seals and then lets go
  if (arguments.get<bool>("repair")) {
    const TraceReport before = inspect_trace(result.path, true);
    result.report = repair_trace(result.path);
    result.repaired = !before.sealed || !before.intact;
    result.verified = true;
  } else {
    result.report = inspect_trace(result.path, result.verified);
  }
  result.being_written = written && !result.report.sealed;
  read_profile(result);
  const Result<std::string> text = read_text_file(result.path / kManifestFile, kMaxTextFile);
  if (text) {
    Result<TraceManifest> manifest = manifest_from_json(text.value());
    if (manifest) result.manifest = std::move(manifest).value();
  }
  return result;
}

std::string state_of(const Inspection& i) {
  if (i.being_written) return "still being written";
  if (i.repaired) return "repaired: sealed, every checksum is right";
  if (!i.report.intact) return "damaged";
  if (!i.report.sealed) return "not sealed: the recording did not end";
  return i.verified ? "sealed, every checksum is right" : "sealed; --verify reads every checksum";
}

// ", rotary half_split of 64, base 10000, scaled, magnitude 1.19"
std::string describe_rotary(const RotaryInfo& r) {
  std::string text = fmt::format(", rotary {} of {}", r.style, r.dims);
  if (r.first > 0) text += fmt::format(" from element {}", r.first);
  text += fmt::format(", base {:.6g}", r.theta);
  if (!r.inverse_frequencies.empty()) text += ", scaled";
  if (r.long_from > 0) text += fmt::format(", another table for prompts above {}", r.long_from);
  if (r.magnitude != 1) text += fmt::format(", magnitude {:.6g}", r.magnitude);
  return text;
}

// "4 query heads, 2 KV heads, k 64 wide, v 64 wide"
std::string describe_layer(const TraceLayer& l) {
  std::string text = fmt::format("{} query heads, {} KV heads, k {} wide, v {} wide, scale {:.6g}", l.query_heads,
                                 l.kv_heads, l.k_width, l.v_width, l.scale);
  if (l.rotary.style != "none") text += describe_rotary(l.rotary);
  if (!l.alibi_slopes.empty()) text += ", ALiBi";
  if (!l.attention_sinks.empty()) text += ", sinks";
  if (l.softcap > 0) text += fmt::format(", soft-cap {:.6g}", l.softcap);
  if (l.window > 0) text += fmt::format(", window {}", l.window);
  return text;
}

using Lines = std::vector<std::vector<std::string>>;

// Layers that are alike share a line.
void add_layers(Lines& lines, const TraceManifest& m) {
  for (std::size_t first = 0; first < m.layers.size();) {
    std::size_t last = first;
    const std::string text = describe_layer(m.layers[first]);
    while (last + 1 < m.layers.size() && describe_layer(m.layers[last + 1]) == text) ++last;
    lines.push_back({first == last ? fmt::format("layer {}", first) : fmt::format("layers {}..{}", first, last), text});
    first = last + 1;
  }
}

void add_profile(Lines& lines, const Inspection& i) {
  const KernelCounts& k = i.kernels;
  for (const std::string& device : i.devices) lines.push_back({"device", device});
  if (k.kernels + k.copies + k.fills > 0) {
    lines.push_back({"profile", fmt::format("{}, {} copies and fills, {}, {} in {:.6g} ms",
                                            counted(k.kernels, "kernel"), k.copies + k.fills, counted(k.calls, "call"),
                                            counted(k.ranges, "range"),
                                            static_cast<double>(k.last_ns - k.first_ns) / 1e6)});
  }
  for (const auto& [key, value] : i.notes) lines.push_back({"profile: " + key, value});
}

// How many tokens a sequence has, and why it ended, is written when a trace is sealed; until then its manifest says 0.
std::string describe_sequence(const TraceSequence& s, const Inspection& i) {
  const std::string prompt = counted(s.prompt, "prompt token"), asked = counted(s.requested_new_tokens, "new one");
  if (i.being_written) return fmt::format("{}, {} requested", prompt, asked);
  const std::string recorded = i.report.sealed ? std::to_string(s.tokens) : "--repair counts those";
  return fmt::format("{}, {} recorded, {} requested, stopped: {}", prompt, recorded, asked, s.stop_reason);
}

void add_manifest(Lines& lines, const Inspection& inspection) {
  const TraceManifest& m = *inspection.manifest;
  constexpr std::size_t kShownSequences = 8;
  if (!has_attention(m)) {
    lines.push_back({"attention", of_own_engine(m) ? "none: the engine's steps, without queries, keys and values"
                                                   : "none: a profiler's records alone"});
  }
  if (has_attention(m) || of_own_engine(m)) {
    lines.push_back({"model", m.model_name.empty() ? "none (imported tensors)" : m.model_name});
    if (!m.backend.empty()) lines.push_back({"back end", m.backend});
    lines.push_back({"policy", m.policy});
    lines.push_back({has_attention(m) ? "type of q, k, v" : "type of k, v", std::string(name_of(m.kv_type))});
    if (m.cache_type) lines.push_back({"type of the cache", std::string(name_of(*m.cache_type))});
  }
  if (!m.linear.empty()) lines.push_back({"products by", m.linear});
  add_layers(lines, m);
  for (std::size_t i = 0; i < std::min(kShownSequences, m.sequences.size()); ++i) {
    const TraceSequence& s = m.sequences[i];
    lines.push_back({fmt::format("sequence {}", s.id), describe_sequence(s, inspection)});
  }
  if (m.sequences.size() > kShownSequences) {
    lines.push_back({"more sequences", std::to_string(m.sequences.size() - kShownSequences)});
  }
  if (!m.command_line.empty()) lines.push_back({"command line", m.command_line});
  if (!m.host.empty()) lines.push_back({"host", m.host});
}

Table to_table(const Inspection& i) {
  Table table;
  table.columns = {{"trace", "key", false}, {"value", "value", false}};
  Lines& lines = table.rows;
  lines.push_back({"path", i.path.string()});
  lines.push_back({"state", state_of(i)});
  lines.push_back({"segments", fmt::format("{} of {} intact", i.report.intact_segments, i.report.segments)});
  lines.push_back({"intact steps", std::to_string(i.report.intact_steps)});
  const std::size_t size_line = lines.size();
  lines.push_back({"size", fmt::format("{:.2f} MiB", static_cast<double>(i.report.bytes) / (1 << 20))});
  for (const std::string& problem : i.report.problems) lines.push_back({"problem", problem});
  if (i.manifest) add_manifest(lines, i);
  add_profile(lines, i);
  table.raw_rows = lines;
  table.raw_rows[size_line] = {"bytes", std::to_string(i.report.bytes)};
  return table;
}

// What the lines of the table say of the profiler's records, and how many there are of each kind.
nlohmann::ordered_json profile_json(const Inspection& i) {
  const KernelCounts& k = i.kernels;
  nlohmann::ordered_json notes = nlohmann::ordered_json::object();
  for (const auto& [key, value] : i.notes) notes[key] = value;
  nlohmann::ordered_json json = {{"notes", notes},
                                 {"counts",
                                  {{"kernels", k.kernels},
                                   {"copies", k.copies},
                                   {"fills", k.fills},
                                   {"calls", k.calls},
                                   {"ranges", k.ranges},
                                   {"allocations", k.memory},
                                   {"operators", k.operators},
                                   {"counters", k.counters},
                                   {"processes", k.processes}}},
                                 {"first_ns", nullptr},
                                 {"last_ns", nullptr}};
  if (k.last_ns > 0) {
    json["first_ns"] = k.first_ns;
    json["last_ns"] = k.last_ns;
  }
  return json;
}

std::string to_json(const Inspection& i) {
  nlohmann::ordered_json json = {{"path", i.path.string()},
                                 {"sealed", i.report.sealed},
                                 {"intact", i.report.intact && i.report.sealed},
                                 {"verified", i.verified},
                                 {"repaired", i.repaired},
                                 {"being_written", i.being_written},
                                 {"segments", i.report.segments},
                                 {"intact_segments", i.report.intact_segments},
                                 {"intact_steps", i.report.intact_steps},
                                 {"bytes", i.report.bytes},
                                 {"problems", i.report.problems},
                                 {"kernels", i.kernels.kernels},
                                 {"copies", i.kernels.copies},
                                 {"devices", i.devices},
                                 {"profile", nullptr},
                                 {"manifest", nullptr}};
  if (i.has_profile) json["profile"] = profile_json(i);
  if (i.manifest) json["manifest"] = nlohmann::ordered_json::parse(manifest_to_json(*i.manifest));
  if (i.manifest && !i.report.sealed) {
    for (auto& sequence : json["manifest"]["sequences"]) sequence["tokens"] = nullptr;
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_inspect(const Arguments& arguments) {
  const Inspection result = inspect(arguments);
  if (format_of(arguments) == Format::kJson) {
    write_result(arguments, to_json(result));
  } else {
    write_table(arguments, to_table(result));
  }
  const TraceReport& report = result.report;
  if (report.sealed && report.intact) return static_cast<int>(ExitCode::kOk);
  const std::string why = report.problems.empty() ? "damaged" : report.problems.front();
  Error error(fmt::format("{}: {}; {}", result.path.string(), why, report.intact_text()), ExitCode::kDamagedTrace);
  if (result.being_written) throw std::move(error).note("it can be read once its recording has ended");
  if (report.intact_steps == 0) throw error;
  throw std::move(error).note(fmt::format("`kvroof inspect --repair {}` keeps what is intact", result.path.string()));
}

void describe_inspect(po::options_description_easy_init add) {
  add("verify", po::bool_switch(), "read every file and recompute every checksum");
  add("repair", po::bool_switch(), "keep the steps that are intact and seal them; the rest is moved into lost/");
}

}  // namespace

Command inspect_command() {
  return {"inspect",
          "what is in a trace, whether it is intact; repairs one that is not",
          "run.kvt [--verify] [--repair]",
          "  kvroof inspect run.kvt\n"
          "  kvroof inspect run.kvt --verify --format json\n"
          "  kvroof inspect run.kvt --repair",
          describe_inspect,
          run_inspect,
          1,
          1};
}

}  // namespace kvroof
