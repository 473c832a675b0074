// kvroof import: makes traces of what other programs recorded.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "apps/cli/command.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/unfinished_file.hpp"
#include "apps/cli/values.hpp"
#include "apps/generate/spools.hpp"
#include "kvroof_version.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/suggest.hpp"
#include "traces/import_profile.hpp"
#include "traces/import_qkv.hpp"
#include "traces/reader.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMaxTokens = 1U << 24;

using Json = nlohmann::ordered_json;

// Tokens that each layer sees; null: all.
Json windows_of(const TraceManifest& m) {
  Json windows = Json::array();
  for (const TraceLayer& layer : m.layers) windows.push_back(layer.window > 0 ? Json(layer.window) : Json());
  return windows;
}

Json imported_json(const std::filesystem::path& out, const TraceManifest& m) {
  const TraceLayer& layer = m.layers.front();
  return {{"trace", out.string()},
          {"layers", m.layers.size()},
          {"query_heads", layer.query_heads},
          {"kv_heads", layer.kv_heads},
          {"k_width", layer.k_width},
          {"v_width", layer.v_width},
          {"scale", layer.scale},
          {"alibi", !layer.alibi_slopes.empty()},
          {"softcap", layer.softcap > 0 ? Json(layer.softcap) : Json()},
          {"windows", windows_of(m)},
          {"rotary", layer.rotary.style},
          {"kv_type", name_of(m.kv_type)},
          {"tokens", m.sequences[0].tokens},
          {"prompt_tokens", m.sequences[0].prompt}};
}

std::string imported_text(const std::filesystem::path& out, const TraceManifest& m) {
  return fmt::format("{}: {}, {} ({} of them the prompt), {}", out.string(), counted(m.layers.size(), "layer"),
                     counted(m.sequences[0].tokens, "token"), m.sequences[0].prompt, name_of(m.kv_type));
}

// half_split[:theta=10000][:dims=64][:magnitude=1], or adjacent_pairs likewise.
RotaryInfo rotary_value(const std::string& text) {
  RotaryInfo rotary;
  const std::vector<std::string> styles = {"half_split", "adjacent_pairs"};
  const std::vector<std::string> keys = {"theta", "dims", "magnitude"};
  std::size_t end = text.find(':');
  rotary.style = text.substr(0, end);
  if (std::ranges::find(styles, rotary.style) == styles.end()) {
    throw usage_error(fmt::format("--rotary {}: expected half_split or adjacent_pairs first{}", text,
                                  did_you_mean(rotary.style, styles)));
  }
  while (end != std::string::npos) {
    const std::size_t begin = end + 1;
    end = text.find(':', begin);
    const std::string part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "theta") {
      rotary.theta = number_value("rotary theta", value, 1e-30, 1e30);
    } else if (key == "dims") {
      rotary.dims = count_value("rotary dims", value, 2, 65536);
    } else if (key == "magnitude") {
      rotary.magnitude = static_cast<float>(number_value("rotary magnitude", value, 1e-30, 1e30));
    } else {
      throw usage_error(fmt::format("--rotary {}: expected theta=, dims= or magnitude=, found `{}`{}", text, part,
                                    did_you_mean(key, keys)));
    }
  }
  return rotary;
}

// Makes the trace; its folder goes where a signal ends the program before it is whole.
template <typename Make>
auto make_trace(const std::filesystem::path& out, Make make) {
  const UnfinishedFolder unfinished(out);
  return make();
}

int import_tensors(const Arguments& arguments, const std::filesystem::path& out) {
  if (!arguments.has("prompt")) throw usage_error("--prompt N is missing: how many of the tokens are the prompt");
  ImportQkvOptions options;
  options.prompt = count_value("prompt", arguments.get<std::string>("prompt"), 1, kMaxTokens);
  if (arguments.has("scale")) options.scale = number_value("scale", arguments.get<std::string>("scale"), 1e-30, 1e30);
  options.alibi = arguments.get<bool>("alibi");
  if (arguments.has("rotary")) options.rotary = rotary_value(arguments.get<std::string>("rotary"));
  if (arguments.has("softcap")) {
    options.softcap = static_cast<float>(number_value("softcap", arguments.get<std::string>("softcap"), 1e-6, 1e6));
  }
  if (arguments.has("window")) {
    for (const std::string& item : split_list("window", arguments.get<std::string>("window"))) {
      options.windows.push_back(item == "none" ? 0 : count_value("window", item, 1, kMaxTokens, ", or none"));
    }
  }
  make_trace(out, [&] { return import_qkv(arguments.positional[1], options, out); });
  const TraceReader reader = TraceReader::open(out);
  if (format_of(arguments) == Format::kJson) fmt::print("{}\n", imported_json(out, reader.manifest()).dump(2));
  if (!arguments.quiet) say("{}\n", imported_text(out, reader.manifest()));
  return 0;
}

void refuse_tensor_options(const Arguments& arguments) {
  for (const char* option : {"prompt", "scale", "alibi", "rotary", "softcap", "window"}) {
    const bool given = std::string_view(option) == "alibi" ? arguments.get<bool>(option) : arguments.has(option);
    if (given) throw usage_error(fmt::format("--{} is about tensors, not about a profile", option));
  }
}

int import_spools(const Arguments& arguments, const std::filesystem::path& out) {
  refuse_tensor_options(arguments);
  const std::filesystem::path folder = arguments.positional[1];
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw Error(fmt::format("{}: not a folder: expected the spools of `kvroof record -- CMD`", folder.string()));
  }
  const std::atomic<int> stop{0};
  MergedSpools merged;
  const auto merge = [&](ProfileSink& sink) {
    merged = merge_spools(folder, sink, stop);
    if (merged.readable == 0) {
      const std::string why = merged.processes == 0 ? "no spool is in it" : "no spool in it can be read: " + merged.why;
      throw Error(folder.string() + ": " + why);
    }
    sink.note("imported_from", "spools");
  };
  make_trace(out, [&] { return write_profile(out, kVersion, arguments.command_line, merge); });
  if (format_of(arguments) == Format::kJson) {
    const nlohmann::ordered_json json = {{"trace", out.string()},         {"processes", merged.processes},
                                         {"recorded", merged.recorded},   {"kernels", merged.kernels},
                                         {"records", merged.records},     {"dropped", merged.dropped},
                                         {"ended_early", merged.ended_early},
                                         {"still_running", merged.still_running}};
    fmt::print("{}\n", json.dump(2));
  }
  if (!arguments.quiet) say("{}\n", merged_text(out, merged));
  return 0;
}

int import_records(const Arguments& arguments, const std::filesystem::path& out, ReadProfile read) {
  refuse_tensor_options(arguments);
  const ProfileCounts n = make_trace(out, [&] {
    return import_profile(arguments.positional[1], arguments.positional[0], read, out, std::string(kVersion),
                          arguments.command_line);
  });
  if (format_of(arguments) == Format::kJson) {
    const nlohmann::ordered_json json = {{"trace", out.string()}, {"kernels", n.kernels}, {"copies", n.copies},
                                         {"fills", n.fills},      {"calls", n.calls},     {"ranges", n.ranges},
                                         {"not_imported", n.others}, {"left_out", n.left_out.total()},
                                         {"whole_graphs", n.whole_graphs}, {"of_operators", n.of_operators}};
    fmt::print("{}\n", json.dump(2));
  }
  if (!arguments.quiet) {
    say("{}: {}, {} copies and fills, {}, {}; {} of other kinds left out\n", out.string(),
        counted(n.kernels, "kernel"), n.copies + n.fills, counted(n.calls, "call"), counted(n.ranges, "range"),
        counted(n.others, "record"));
    if (n.left_out.total() > 0) say("note: left out: {}\n", n.left_out.text());
    if (n.of_operators > 0) {
      say("note: {} of the kernels are of operators whose shapes say what they must read and write\n",
          n.of_operators);
    }
    if (n.whole_graphs > 0) {
      say("note: {} of the kernels are launches of whole CUDA graphs; `nsys profile "
          "--cuda-graph-trace=node` records the kernels inside\n", n.whole_graphs);
    }
  }
  return 0;
}

int run_import(const Arguments& arguments) {
  const std::vector<std::string> known = {"qkv", "nsys", "kineto", "spools"};
  const std::string& kind = arguments.positional[0];
  if (std::find(known.begin(), known.end(), kind) == known.end()) {
    throw usage_error(fmt::format("import {}: this kind is not known{}", kind, did_you_mean(kind, known)))
        .note("`kvroof import qkv F.safetensors --prompt N -o run.kvt` makes a trace of tensors q, k and v")
        .note("`kvroof import nsys F.sqlite -o run.kvt` and `kvroof import kineto F.json -o run.kvt` take profiles")
        .note("`kvroof import spools DIR -o run.kvt` takes what a `kvroof record -- CMD` that was killed has left");
  }
  if (arguments.positional.size() < 2) {
    throw usage_error(fmt::format("import {}: the {} is missing", kind,
                                  kind == "qkv" ? "safetensors file" : kind == "spools" ? "folder" : "profile's file"));
  }
  if (!arguments.has("out")) throw usage_error("-o run.kvt is missing: where the trace goes");
  const std::filesystem::path out = arguments.get<std::string>("out");
  if (kind == "qkv") return import_tensors(arguments, out);
  if (kind == "spools") return import_spools(arguments, out);
  return import_records(arguments, out, kind == "nsys" ? read_nsys : read_kineto);
}

void describe_import(po::options_description_easy_init add) {
  add("prompt", po::value<std::string>(), "how many of the tokens are the prompt (1 to all)");
  add("scale", po::value<std::string>(), "multiplies q·k (default 1/√d)");
  add("alibi", po::bool_switch(), "attention has ALiBi: the standard slopes for the number of query heads");
  add("rotary", po::value<std::string>(),
      "how q and k were turned, for policies that turn them back: half_split | adjacent_pairs, then [:theta=10000] "
      "[:dims=the width] [:magnitude=1]; the file may hold inverse_frequencies in place of theta");
  add("softcap", po::value<std::string>(), "logits x become C · tanh(x / C), as in Gemma 2");
  add("window", po::value<std::string>(),
      "tokens that a query of a layer sees, its own included, or none: a list that is repeated over the layers, as "
      "4096,none of Gemma 2");
}

}  // namespace

Command import_command() {
  return {
      "import",
      "make a trace of another framework's tensors or of a profile",
      "qkv|nsys|kineto|spools F -o run.kvt [--prompt N] [--scale S] [--alibi] [--rotary R] [--softcap C] [--window N]",
      "  kvroof import qkv attention.safetensors --prompt 512 -o run.kvt\n"
      "  kvroof import qkv attention.safetensors --prompt 512 --rotary half_split:theta=500000 -o run.kvt\n"
      "\n"
      "  The file holds q [layers, heads, n, d] after rotary, k and v [layers, kv_heads, n, d], all f32, f16 or bf16;\n"
      "  the layer dimension may be absent.\n"
      "\n"
      "  kvroof import nsys report.sqlite -o run.kvt    (nsys export --type sqlite report.nsys-rep)\n"
      "  kvroof import kineto trace.json.gz -o run.kvt  (export_chrome_trace of PyTorch's profiler)\n"
      "  kvroof import spools run.kvt.spools-x1Y2z3 -o run.kvt  (left by a `kvroof record -- CMD` that was killed)\n"
      "\n"
      "  A profile has kernels and no attention: `kvroof report-kernels` and `kvroof export` read it.",
      describe_import,
      run_import,
      1,
      2,
      "table | json",
      "the trace, a new folder"};
}

}  // namespace kvroof
