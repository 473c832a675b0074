#include "apps/cli/file_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "apps/cli/output.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

// Options of all verbs that name one file; --row-cache, which is updated in place, is none of them.
constexpr std::array kWritten = {"out",     "svg",         "per-request", "kept",
                                 "details", "dump-logits", "dump-scores", "readme"};
constexpr std::array kRead = {"requests", "rows", "from", "text", "jsonl", "config", "prompt-file"};
// Options that name entries of a catalog or files, a list, where a device may be followed by :fact=value, and a policy
// by :heads=file.
constexpr std::array kNames = {"device", "prefill-device", "model", "as", "draft", "random-weights", "policy"};

// Options that name a folder of a trace, a model or rows, as words of a command line may, and what is read in such a
// folder beside its tensors (of a trace also all of its segments).
constexpr std::array kFolders = {"trace", "closed-loop", "model", "draft", "as", "row-cache"};
constexpr std::array kReadInFolders = {"manifest.json",  "journal.jsonl", "kernels.sqlite",
                                       "seal.json",      "config.json",   "generation_config.json",
                                       "tokenizer.json", "model.safetensors.index.json"};

// The one name of a file that is or will be; empty: of a device or a pipe, or of nothing.
fs::path place_of(const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return {};
  fs::path path = fs::absolute(name, error);
  if (!error) path = fs::weakly_canonical(path, error);
  return error ? fs::path() : path;
}

// What was given, once or several times.
std::vector<std::string> texts_of(const Arguments& arguments, const char* option) {
  if (!arguments.has(option)) return {};
  const boost::any& value = arguments.values[option].value();
  if (const auto* text = boost::any_cast<std::string>(&value)) return {*text};
  const auto* texts = boost::any_cast<std::vector<std::string>>(&value);
  return texts == nullptr ? std::vector<std::string>() : *texts;
}

std::string text_of(const Arguments& arguments, const char* option) {
  const std::vector<std::string> texts = texts_of(arguments, option);
  return texts.size() == 1 ? texts.front() : std::string();
}

bool same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  const fs::path place = place_of(a);
  return !place.empty() && place == place_of(b);
}

// Whether there is a file `file` that belongs to the trace or model in `folder`.
bool is_part_of(const std::string& file, const std::string& folder) {
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error) || !fs::is_regular_file(file, error)) return false;
  const fs::path place = place_of(file), home = fs::canonical(folder, error);
  if (place.parent_path() == home / "segments") return true;
  if (place.parent_path() == home && place.extension() == ".safetensors") return true;
  return place.parent_path() == home && std::ranges::find(kReadInFolders, place.filename()) != kReadInFolders.end();
}

// The files among the names of an option.
std::vector<std::string> files_of(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string_view item : split(list, ',')) {
    names.emplace_back(item);
    for (const std::string_view part : split(item, ':')) names.emplace_back(part.substr(part.find('=') + 1));
  }
  std::erase_if(names, [](const std::string& name) {
    std::error_code ignored;
    return !fs::is_regular_file(name, ignored);
  });
  return names;
}

}  // namespace

void check_written_files(const Command& command, const Arguments& arguments) {
  for (std::size_t i = 0; i < kWritten.size(); ++i) {
    const std::string to = text_of(arguments, kWritten[i]);
    for (std::size_t j = 0; j < i; ++j) {
      if (!same_file(to, text_of(arguments, kWritten[j]))) continue;
      throw usage_error(fmt::format("--{} and --{} {}: one would overwrite the other", kWritten[j], kWritten[i], to))
          .note("give each a file of its own");
    }
    const auto refuse = [&](const std::string& what) {
      throw usage_error(fmt::format("--{} {}: would replace {}, which is read", kWritten[i], to, what))
          .note("give the result another name");
    };
    for (const char* option : kRead) {
      for (const std::string& read : texts_of(arguments, option)) {
        if (same_file(to, read)) refuse(fmt::format("the file of --{}", option));
      }
    }
    for (const char* option : kNames) {
      if (command.name == "calibrate") break;  // which brings a device's file up to date
      for (const std::string& file : files_of(text_of(arguments, option))) {
        if (same_file(to, file)) refuse(fmt::format("the file of --{}", option));
      }
    }
    for (const char* option : kFolders) {
      const std::string folder = text_of(arguments, option);
      if (is_part_of(to, folder)) refuse("a file of " + folder);
    }
    for (const std::string& word : arguments.positional) {
      std::error_code ignored;
      if (fs::is_regular_file(word, ignored) && same_file(to, word)) refuse(word);
      if (is_part_of(to, word)) refuse("a file of " + word);
    }
  }
  for (const char* option : kWritten) {
    if (text_of(arguments, option) != "-") continue;
    const bool folder = std::string_view(option) == "out";
    throw usage_error(
        folder ? fmt::format("--out -: expected a name, for this is {}", command.out)
               : fmt::format("--{} -: standard output is taken by the result; expected the name of a file", option));
  }
  for (const std::string_view option : kWritten) {
    const bool folder = option == "out" && command.out != kResultFile;
    if (const std::string to = text_of(arguments, option.data()); !to.empty() && !folder) require_writable(to);
  }
}

}  // namespace kvroof
