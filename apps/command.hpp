// A verb of the program: its options, its help and its run function; program.cpp holds the table.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

// The parsed options of a verb. Options are kebab-case; positional words are in positional.
struct Arguments {
  boost::program_options::variables_map values;
  std::vector<std::string> positional;
  std::vector<std::string> program;  // what follows `--`: someone else's command line
  std::string command_line;          // as typed, for manifests
  bool quiet = false;
  std::uint64_t seed = 0;
  unsigned threads = 1;  // --threads, or the cores this process may use

  [[nodiscard]] bool has(const std::string& name) const { return values.count(name) > 0 && !values[name].defaulted(); }
  template <class T>
  [[nodiscard]] const T& get(const std::string& name) const {
    return values[name].as<T>();
  }
};

inline constexpr std::string_view kResultFile = "write the result to this file";

struct Command {
  std::string_view name;
  std::string_view summary;   // one line
  std::string_view usage;     // words after the verb: "run.kvt [options]"
  std::string_view examples;  // shown first in --help, one a line
  // Adds the verb's own options. options.cpp adds the common ones to every verb: --format, --out (-o), --seed,
  // --threads, --quiet, --verbose, --config, --print-config, --help.
  void (*describe)(boost::program_options::options_description_easy_init add);
  int (*run)(const Arguments& arguments);  // returns the exit code; throws Error
  std::size_t min_positional = 0;
  std::size_t max_positional = 0;
  std::string_view formats = "table | json | csv";  // that --format takes; the first is the default
  std::string_view out = kResultFile;      // what -o does
  bool takes_program = false;  // words after `--` are another program's
};

// One function a verb, defined in apps/<verb>.cpp; the table in program.cpp lists them.
Command run_command();
Command record_command();
Command import_command();
Command inspect_command();
Command replay_command();
Command models_command();
Command devices_command();
Command engines_command();
Command policies_command();
Command analyze_command();
Command calibrate_command();
Command plan_command();
Command simulate_command();
Command prefixes_command();
Command validate_command();
Command compare_command();
Command eval_command();
Command tokenize_command();
Command detokenize_command();
Command doctor_command();
Command report_kernels_command();
Command export_command();

// Where catalog/ and models/ are: $KVROOF_HOME, else beside or above the program. Throws Error.
std::filesystem::path data_folder();

// --format, which parse_arguments has checked against the verb's formats.
enum class Format : std::uint8_t { kTable, kJson, kCsv };
Format format_of(const Arguments& arguments);

// Writes a result to stdout, or to the file of --out (under a temporary name first; an existing file is replaced only
// when the new one is whole). Throws Error when it cannot be written.
void write_result(const Arguments& arguments, std::string_view text);
// The same to a file.
void write_file(const std::string& path, std::string_view text);
// Throws Error where write_file() could not write there, and leaves nothing: before what takes long.
void require_writable(const std::string& path);

// A result as rows: fits the terminal as a table, or JSON (an array of objects), or CSV.
struct Table {
  struct Column {
    std::string title;  // for people, with the unit: "KV read (GiB)"
    std::string key;    // for JSON and CSV, with the unit: "kv_read_bytes"
    bool number = true;
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;      // for people
  std::vector<std::vector<std::string>>
      raw_rows;  // JSON and CSV: full precision; empty text is null; empty vector: rows
};
// A paragraph in lines that fit the page, each behind `indent` spaces.
std::string format_paragraph(const std::string& text, std::size_t indent);
std::string format_table(const Table& table);
std::string format_csv(const Table& table);
std::string format_json_rows(const Table& table);  // numbers unquoted
std::string csv_field(std::string_view text);  // quoted where it must be
// What is known of a device, a fact a row.
Table device_facts(const Device& device);
// In the form that --format asks for, to where write_result writes.
void write_table(const Arguments& arguments, const Table& table);

// A line of progress on stderr, only on a terminal and unless --quiet.
class Progress {
 public:
  Progress(const Arguments& arguments, std::string what);
  ~Progress();
  void at(std::uint64_t done, std::uint64_t total);
  // What is under way, behind the share that is done: of a part that takes long by itself.
  void under_way(const std::string& what);

 private:
  void print(const std::string& more) const;

  std::string what_;
  bool active_ = false;
  std::uint64_t last_ = 0;
};

}  // namespace kvroof
