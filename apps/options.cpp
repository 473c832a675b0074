#include "apps/options.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "sim/core/suggest.hpp"
#include "sim/core/thread_pool.hpp"

namespace po = boost::program_options;

namespace kvroof {
namespace {

using Strings = std::vector<std::string>;

po::options_description common_options() {
  po::options_description options("Common options");
  options.add_options()
      ("format", po::value<std::string>()->default_value("table"), "table | json | csv")
      ("out,o", po::value<std::string>(), "write the result to this file")
      ("seed", po::value<std::uint64_t>()->default_value(0), "seed of every random draw")
      ("threads", po::value<unsigned>(), "threads (default: the cores this process may use)")
      ("quiet,q", "no progress and no summary on stderr")
      ("verbose,v", "more on stderr")
      ("config", po::value<std::string>(), "YAML file with the same options")
      ("print-config", "print the resolved options and stop")
      ("help,h", "this text");
  return options;
}

po::options_description own_options(const Command& command) {
  po::options_description options("Options");
  command.describe(options.add_options());
  return options;
}

Strings option_names(const po::options_description& options) {
  Strings names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  return names;
}

Error unknown_option(const std::string& typed, const po::options_description& options, const Command& command) {
  const std::size_t dashes = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string bare = typed.substr(dashes);
  const auto nearest = nearest_name(bare, option_names(options));
  return usage_error(fmt::format("unknown option '{}' of `kvroof {}`{}", typed, command.name,
                                 nearest ? "; did you mean --" + *nearest + "?" : std::string()))
      .note(fmt::format("`kvroof help {}` lists the options", command.name));
}

// Stores texts as if they had been typed, for options that are not set yet; `where` names the source in messages.
void store_texts(const std::vector<std::pair<std::string, Strings>>& texts, const po::options_description& options,
                 const std::string& where, po::variables_map& values) {
  po::parsed_options parsed(&options);
  for (const auto& [name, value] : texts) {
    if (values.count(name) > 0 && !values[name].defaulted()) continue;
    po::option option;
    option.string_key = name;
    option.value = value;
    parsed.options.push_back(std::move(option));
  }
  try {
    po::store(parsed, values);
  } catch (const po::error& error) {
    throw usage_error(fmt::format("{}: {}", where, error.what()));
  }
}

void store_environment(const po::options_description& options, po::variables_map& values) {
  std::vector<std::pair<std::string, Strings>> texts;
  for (const std::string& name : option_names(options)) {
    if (name == "help" || name == "config" || name == "print-config") continue;
    std::string variable = "KVROOF_" + name;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    if (const char* value = std::getenv(variable.c_str())) texts.emplace_back(name, Strings{value});
  }
  store_texts(texts, options, "environment", values);
}

Strings yaml_values(const YAML::Node& node, const po::option_description& option, const std::string& where) {
  if (node.IsScalar()) return {node.as<std::string>()};
  if (!node.IsSequence()) throw usage_error(fmt::format("{}: expected a value or a list of values", where));
  Strings items;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) throw usage_error(fmt::format("{}: expected a list of plain values", where));
    items.push_back(item.as<std::string>());
  }
  // A list of a repeatable option is many values; of any other a sweep, which the command line writes with commas.
  return option.semantic()->is_composing() ? items : Strings{join(items, ",")};
}

void store_file(const std::string& path, const po::options_description& options, po::variables_map& values) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    throw usage_error(fmt::format("{}: the configuration file cannot be read", path));
  } catch (const YAML::Exception& error) {
    throw usage_error(fmt::format("{}: not YAML: {}", path, error.what()));
  }
  if (!root.IsMap()) throw usage_error(fmt::format("{}: expected a map of options, as in `device: h200`", path));
  const Strings names = option_names(options);
  std::vector<std::pair<std::string, Strings>> texts;
  for (const auto& entry : root) {
    const auto key = entry.first.as<std::string>();
    const int line = entry.first.Mark().line + 1;
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      throw usage_error(fmt::format("{}:{}: unknown key '{}'{}", path, line, key, did_you_mean(key, names)));
    }
    const po::option_description& option = options.find(key, false);
    if (option.semantic()->max_tokens() == 0) {
      if (entry.second.as<std::string>("") == "true") texts.emplace_back(key, Strings{""});
      continue;
    }
    texts.emplace_back(key, yaml_values(entry.second, option, fmt::format("{}:{}", path, line)));
  }
  store_texts(texts, options, path, values);
}

std::string text_of(const boost::any& value) {
  if (const auto* s = boost::any_cast<std::string>(&value)) return *s;
  if (const auto* list = boost::any_cast<Strings>(&value)) return "[" + join(*list) + "]";
  if (const auto* u = boost::any_cast<std::uint64_t>(&value)) return std::to_string(*u);
  if (const auto* u = boost::any_cast<unsigned>(&value)) return std::to_string(*u);
  if (const auto* i = boost::any_cast<int>(&value)) return std::to_string(*i);
  if (const auto* d = boost::any_cast<double>(&value)) return fmt::format("{}", *d);
  return "true";
}

void print_config(const po::variables_map& values) {
  for (const auto& [name, value] : values) {
    if (name != "print-config" && name != "words") fmt::print("{}: {}\n", name, text_of(value.value()));
  }
}

po::variables_map parse_words(const Command& command, const Strings& words, const po::options_description& visible) {
  po::options_description all;
  all.add(visible).add_options()("words", po::value<Strings>()->composing());
  po::positional_options_description positional;
  positional.add("words", -1);
  po::variables_map values;
  try {
    // Guessing would let --mod stand for --model: an abbreviation that a later option silently changes.
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(words).options(all).positional(positional).style(style).run(), values);
  } catch (const po::unknown_option& error) {
    throw unknown_option(error.get_option_name(), visible, command);
  } catch (const po::multiple_occurrences& error) {
    throw usage_error(fmt::format("option {} was given more than once", error.get_option_name()))
        .note("a list of values is written with commas");
  } catch (const po::error& error) {
    throw usage_error(error.what()).note(fmt::format("`kvroof help {}` lists the options", command.name));
  }
  return values;
}

void check_words(const Command& command, const Strings& positional) {
  if (positional.size() < command.min_positional) {
    throw usage_error(fmt::format("`kvroof {}` needs {}", command.name, command.usage))
        .note(fmt::format("`kvroof help {}` shows examples", command.name));
  }
  if (positional.size() > command.max_positional) {
    throw usage_error(fmt::format("unexpected word '{}': `kvroof {} {}`", positional[command.max_positional],
                                  command.name, command.usage));
  }
}

}  // namespace

void print_help(const Command& command) {
  fmt::print("kvroof {}: {}\n\nusage: kvroof {} {}\n", command.name, command.summary, command.name, command.usage);
  if (!command.examples.empty()) fmt::print("\nexamples:\n{}\n", command.examples);
  std::ostringstream text;
  text << own_options(command) << "\n" << common_options();
  fmt::print("\n{}", text.str());
}

std::optional<Arguments> parse_arguments(const Command& command, const Strings& words) {
  po::options_description visible;
  visible.add(own_options(command)).add(common_options());
  if (std::find_if(words.begin(), words.end(), [](const auto& w) { return w == "--help" || w == "-h"; }) !=
      words.end()) {
    print_help(command);
    return std::nullopt;
  }
  Arguments arguments;
  arguments.values = parse_words(command, words, visible);
  po::variables_map& values = arguments.values;
  store_environment(visible, values);
  if (values.count("config") > 0) store_file(values["config"].as<std::string>(), visible, values);
  if (values.count("words") > 0) arguments.positional = values["words"].as<Strings>();
  if (values.count("print-config") > 0) {
    print_config(values);
    return std::nullopt;
  }
  check_words(command, arguments.positional);
  arguments.command_line = fmt::format("kvroof {}", command.name);
  for (const std::string& word : words) arguments.command_line += " " + word;
  arguments.quiet = values.count("quiet") > 0;
  arguments.verbose = values.count("verbose") > 0;
  arguments.seed = values["seed"].as<std::uint64_t>();
  arguments.threads = values.count("threads") > 0 ? values["threads"].as<unsigned>() : default_threads();
  if (arguments.threads == 0 || arguments.threads > 1024) {
    throw usage_error(fmt::format("--threads {}: expected 1 to 1024", arguments.threads));
  }
  format_of(arguments);  // a wrong --format is refused before any work
  return arguments;
}

}  // namespace kvroof
