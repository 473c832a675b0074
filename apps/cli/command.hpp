// A verb of the program: its options, its help and its run function; program.cpp holds the table.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

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

}  // namespace kvroof
