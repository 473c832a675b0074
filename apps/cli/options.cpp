#include "apps/cli/options.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "apps/cli/file_options.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/values.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/thread_pool.hpp"

namespace po = boost::program_options;

namespace kvroof {
namespace {

using Strings = std::vector<std::string>;

// The formats of a verb, the default first.
Strings formats_of(const Command& command) {
  Strings formats;
  std::istringstream words{std::string(command.formats)};
  for (std::string word; words >> word;) {
    if (word != "|") formats.push_back(word);
  }
  return formats;
}

void check_format(const Command& command, const std::string& format) {
  const Strings formats = formats_of(command);
  if (std::find(formats.begin(), formats.end(), format) != formats.end()) return;
  throw usage_error(fmt::format("--format {}: `kvroof {}` gives {}{}", format, command.name, join(formats, " or "),
                                did_you_mean(format, formats)));
}

po::options_description common_options(const Command& command) {
  const std::string formats(command.formats);
  const std::string out(command.out);
  po::options_description options("Common options");
  options.add_options()
      ("format", po::value<std::string>()->default_value(formats_of(command).front()), formats.c_str())
      ("out,o", po::value<std::string>(), out.c_str())
      ("seed", po::value<std::string>()->default_value("0"), "seed of every random draw")
      ("threads", po::value<std::string>(), "threads (default: the cores this process may use)")
      ("quiet,q", "no progress and no summary on stderr")
      ("verbose,v", "print the resolved options on stderr first")
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

// "; `kvroof plan` and `kvroof compare` have it": the verbs that an option belongs to, or nothing.
std::string who_has(const std::string& option, std::span<const Command> commands) {
  Strings verbs;
  for (const Command& command : commands) {
    const Strings names = option_names(own_options(command));
    if (std::ranges::find(names, option) != names.end()) verbs.push_back(fmt::format("`kvroof {}`", command.name));
  }
  if (verbs.empty()) return {};
  const std::string last = verbs.back();
  verbs.pop_back();
  return verbs.empty() ? fmt::format("; {} has it", last) : fmt::format("; {} and {} have it", join(verbs), last);
}

Error unknown_option(const std::string& typed, const po::options_description& options, const Command& command,
                     std::span<const Command> commands) {
  const std::size_t dashes = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string bare = typed.substr(dashes);
  std::string help = who_has(bare, commands);
  if (const auto nearest = nearest_name(bare, option_names(options)); help.empty() && nearest) {
    help = "; did you mean --" + *nearest + "?";
  }
  return usage_error(fmt::format("unknown option '{}' of `kvroof {}`{}", typed, command.name, help))
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

// The value of a flag, which takes none on the command line: whether it is set.
bool is_set(const std::string& where, const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  throw usage_error(fmt::format("{}: '{}' for an option without a value; expected true or false", where, value));
}

// The variable of an option, or nothing for those that the command line alone has.
std::string variable_of(const std::string& option) {
  if (option == "help" || option == "config" || option == "print-config") return {};
  std::string variable = "KVROOF_" + option;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return variable;
}

void store_environment(const po::options_description& options, po::variables_map& values) {
  std::vector<std::pair<std::string, Strings>> texts;
  for (const std::string& name : option_names(options)) {
    const std::string variable = variable_of(name);
    if (variable.empty()) continue;
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;  // `KVROOF_DEVICE= kvroof …` unsets it
    if (options.find(name, false).semantic()->max_tokens() > 0) {
      texts.emplace_back(name, Strings{value});
    } else if (is_set("environment: " + variable, value)) {
      texts.emplace_back(name, Strings{""});
    }
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
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  const bool readable = std::filesystem::is_regular_file(status) || std::filesystem::is_fifo(status);
  try {
    if (!readable) throw YAML::BadFile(path);
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    throw usage_error(fmt::format("{}: the configuration file cannot be read", path));
  } catch (const YAML::Exception& error) {
    throw usage_error(fmt::format("{}: not YAML: {}", path, error.what()));
  }
  if (root.IsNull()) return;  // comments alone
  if (!root.IsMap()) throw usage_error(fmt::format("{}: expected a map of options, as in `device: h200`", path));
  const Strings names = option_names(options);
  std::vector<std::pair<std::string, Strings>> texts;
  for (const auto& entry : root) {
    const int line = entry.first.Mark().line + 1;
    if (!entry.first.IsScalar()) throw usage_error(fmt::format("{}:{}: expected the name of an option", path, line));
    const auto key = entry.first.as<std::string>();
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      throw usage_error(fmt::format("{}:{}: unknown key '{}'{}", path, line, key, did_you_mean(key, names)));
    }
    const po::option_description& option = options.find(key, false);
    if (option.semantic()->max_tokens() == 0) {
      if (is_set(fmt::format("{}:{}: {}", path, line, key), entry.second.as<std::string>("")))
        texts.emplace_back(key, Strings{""});
      continue;
    }
    texts.emplace_back(key, yaml_values(entry.second, option, fmt::format("{}:{}", path, line)));
  }
  store_texts(texts, options, path, values);
}

void emit_option(YAML::Emitter& yaml, const std::string& name, const po::variable_value& value,
                 const po::options_description& options) {
  yaml << YAML::Key << name << YAML::Value;
  if (options.find(name, false).semantic()->max_tokens() == 0) {
    const auto* flag = boost::any_cast<bool>(&value.value());
    yaml << (flag == nullptr || *flag);
  } else if (const auto* list = boost::any_cast<Strings>(&value.value())) {
    yaml << YAML::Flow << *list;
  } else {
    yaml << value.as<std::string>();
  }
}

// As YAML that --config reads back. Defaults are comments: what is read counts as given, and some options go together
// only where they are.
std::string config_yaml(const po::variables_map& values, const po::options_description& options) {
  YAML::Emitter given;
  given << YAML::BeginMap;
  std::string defaults;
  for (const auto& [name, value] : values) {
    if (name == "config" || name == "print-config" || name == "words") continue;
    if (!value.defaulted()) {
      emit_option(given, name, value, options);
      continue;
    }
    YAML::Emitter one;
    one << YAML::BeginMap;
    emit_option(one, name, value, options);
    one << YAML::EndMap;
    defaults += fmt::format("# {}\n", one.c_str());
  }
  given << YAML::EndMap;
  return std::string(given.c_str()) + "\n" + defaults;
}

po::variables_map parse_words(const Command& command, const Strings& words, const po::options_description& visible,
                              std::span<const Command> commands) {
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
    throw unknown_option(error.get_option_name(), visible, command, commands);
  } catch (const po::multiple_occurrences& error) {
    throw usage_error(fmt::format("option {} was given more than once", error.get_option_name()))
        .note("a list of values is written with commas");
  } catch (const po::error& error) {
    throw usage_error(error.what()).note(fmt::format("`kvroof help {}` lists the options", command.name));
  }
  return values;
}

// What a verb's own options ask for is not asked of another program; that the environment has some is no mistake.
void check_program_options(const Command& command, const po::variables_map& typed) {
  for (const std::string& name : option_names(own_options(command))) {
    if (typed.count(name) == 0 || typed[name].defaulted()) continue;
    throw usage_error(fmt::format("--{} and `-- CMD`: {} runs a model, or someone else's program", name, command.name))
        .note("after `--` every word is the program's");
  }
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

std::vector<std::string> option_variables(const Command& command) {
  po::options_description all;
  all.add(own_options(command)).add(common_options(command));
  Strings variables;
  for (const std::string& name : option_names(all)) {
    if (std::string variable = variable_of(name); !variable.empty()) variables.push_back(std::move(variable));
  }
  return variables;
}

void print_help(const Command& command) {
  fmt::print("kvroof {}: {}\n\nusage: kvroof {} {}\n", command.name, command.summary, command.name, command.usage);
  if (!command.examples.empty()) fmt::print("\nexamples:\n{}\n", command.examples);
  std::ostringstream text;
  text << own_options(command) << "\n" << common_options(command);
  fmt::print("\n{}", text.str());
}

std::optional<Arguments> parse_arguments(const Command& command, const Strings& typed,
                                         std::span<const Command> commands) {
  const auto dashes = command.takes_program ? std::find(typed.begin(), typed.end(), "--") : typed.end();
  const Strings words(typed.begin(), dashes);
  po::options_description visible;
  visible.add(own_options(command)).add(common_options(command));
  if (std::find_if(words.begin(), words.end(), [](const auto& w) { return w == "--help" || w == "-h"; }) !=
      words.end()) {
    print_help(command);
    return std::nullopt;
  }
  Arguments arguments;
  if (dashes != typed.end()) {
    arguments.program.assign(dashes + 1, typed.end());
    if (arguments.program.empty()) throw usage_error("after `--` the command to run is missing");
  }
  arguments.values = parse_words(command, words, visible, commands);
  po::variables_map& values = arguments.values;
  if (!arguments.program.empty()) check_program_options(command, values);
  store_environment(visible, values);
  if (values.count("config") > 0) store_file(values["config"].as<std::string>(), visible, values);
  if (values.count("words") > 0) arguments.positional = values["words"].as<Strings>();
  if (values.count("print-config") > 0) {
    fmt::print("{}", config_yaml(values, visible));
    return std::nullopt;
  }
  check_words(command, arguments.positional);
  arguments.command_line = fmt::format("kvroof {}{}{}", command.name, typed.empty() ? "" : " ", command_text(typed));
  arguments.quiet = values.count("quiet") > 0;
  if (values.count("verbose") > 0) say("{}", config_yaml(values, visible));
  arguments.seed = whole_value("seed", arguments.get<std::string>("seed"), 0, UINT64_MAX);
  arguments.threads = default_threads();
  if (arguments.has("threads")) {
    arguments.threads = static_cast<unsigned>(whole_value("threads", arguments.get<std::string>("threads"), 1, 1024));
  }
  check_format(command, arguments.get<std::string>("format"));
  // Where results go without it.
  if (command.out == kResultFile && arguments.has("out") && arguments.get<std::string>("out") == "-") {
    arguments.values.erase("out");
  }
  check_written_files(command, arguments);
  return arguments;
}

std::string command_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "@%+=:,./_-";
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](unsigned char c) {
      return std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
    });
    text += text.empty() ? "" : " ";
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace kvroof
