// kvroof tokenize and kvroof detokenize: text to ids and back, one JSON object or record of CSV a line.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/command.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/text_input.hpp"
#include "kernels/tokenizer/tokenizer.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using JsonLine = nlohmann::json;

Tokenizer tokenizer_of(const Arguments& arguments) {
  if (!arguments.has("model")) throw usage_error("--model DIR is missing: the folder that holds tokenizer.json");
  const std::filesystem::path given = model_folder(arguments);
  return Tokenizer::load(std::filesystem::is_directory(given) ? given / "tokenizer.json" : given);
}

constexpr std::size_t kMostLine = std::size_t{64} << 20;  // bytes

// The next line without its end; false: there is none. Throws where it never ends.
bool next_line(std::istream& input, std::string& line, const std::string& where) {
  line.clear();
  for (char c; input.get(c);) {
    if (c == '\n') return true;
    if (line.size() == kMostLine) throw Error(fmt::format("{} is longer than {} bytes", where, kMostLine));
    line += c;
  }
  return !line.empty();
}

// A field of CSV: a text as it is, ids as --ids takes them.
std::string field_of(const JsonLine& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string ids;
  for (const JsonLine& id : value) ids += (ids.empty() ? "" : " ") + id.dump();
  return ids;
}

// Results by the number of their line, which tells an empty one from none.
std::string lines_csv(const std::string& key, const std::vector<JsonLine>& results) {
  Table table;
  table.columns = {{"line", "line"}, {key, key, false}};
  for (const JsonLine& result : results) {
    table.rows.push_back({std::to_string(table.rows.size() + 1), field_of(result)});
  }
  return format_csv(table);
}

std::string lines_json(const std::string& key, const std::vector<JsonLine>& results) {
  std::string text;
  for (const JsonLine& result : results) text += JsonLine{{key, result}}.dump() + '\n';
  return text;
}

// Applies f to each input line; its results, of which each is called `key`, go out in the same order.
void convert_lines(const Arguments& arguments, const std::string& key,
                   const std::function<JsonLine(const JsonLine&)>& f) {
  std::ifstream file;
  std::string name = "standard input";
  if (arguments.has("jsonl")) {
    name = arguments.get<std::string>("jsonl");
    file.open(name, std::ios::binary);
    if (!file || std::filesystem::is_directory(name)) {
      throw Error(fmt::format("{}: no such file, or it cannot be read", name));
    }
  }
  std::istream& input = arguments.has("jsonl") ? file : std::cin;
  std::vector<JsonLine> results;
  std::size_t number = 1;
  for (std::string line; next_line(input, line, fmt::format("{}: line {}", name, number)); ++number) {
    require_text(fmt::format("{}: line {}", name, number), line);
    try {
      results.push_back(f(JsonLine::parse(line)));
    } catch (const JsonLine::exception&) {
      throw Error(fmt::format("{}: line {} is not a JSON object as expected", name, number))
          .note(R"(tokenize reads {"text": "…"}, detokenize {"ids": [1, 2]}, one a line)");
    } catch (const Error& e) {
      throw Error(fmt::format("{}: line {}: {}", name, number, e.what()), e.code());
    }
  }
  if (input.bad()) throw Error(fmt::format("{}: reading failed", name));
  write_result(arguments, format_of(arguments) == Format::kCsv ? lines_csv(key, results) : lines_json(key, results));
}

int run_tokenize(const Arguments& arguments) {
  const Tokenizer tokenizer = tokenizer_of(arguments);
  const bool special = arguments.has("special");
  convert_lines(arguments, "ids", [&](const JsonLine& line) {
    return JsonLine(tokenizer.encode(line.at("text").get_ref<const std::string&>(), special));
  });
  return 0;
}

std::vector<std::int64_t> known_ids(const JsonLine& line, const Tokenizer& tokenizer) {
  std::vector<std::int64_t> ids;
  for (const JsonLine& item : line.at("ids").get_ref<const JsonLine::array_t&>()) {
    if (!item.is_number_integer() || !tokenizer.token_of(item.get<std::int64_t>())) {
      throw Error(fmt::format("there is no token with the id {} (the largest is {})", item.dump(),
                              tokenizer.vocab_size() - 1));
    }
    ids.push_back(item.get<std::int64_t>());
  }
  return ids;
}

int run_detokenize(const Arguments& arguments) {
  const Tokenizer tokenizer = tokenizer_of(arguments);
  const bool skip_special = arguments.has("skip-special");
  convert_lines(arguments, "text", [&](const JsonLine& line) {
    return JsonLine(tokenizer.decode(known_ids(line, tokenizer), skip_special));
  });
  return 0;
}

void describe_common(po::options_description_easy_init add) {
  add("model", po::value<std::string>(), "folder with tokenizer.json, that file, or `demo`")
     ("jsonl", po::value<std::string>(), "file of JSON lines (default: standard input)");
}

void describe_tokenize(po::options_description_easy_init add) {
  describe_common(add);
  add("special", "add the special tokens of the post-processor, such as begin of text");
}

void describe_detokenize(po::options_description_easy_init add) {
  describe_common(add);
  add("skip-special", "leave special tokens out of the text");
}

}  // namespace

Command tokenize_command() {
  return {"tokenize", "text to token ids, as the model's tokenizer.json says",
          "--model DIR [--special] [--jsonl F]",
          R"(  echo '{"text": "Hello"}' | kvroof tokenize --model models/demo --special

Reads {"text": "…"} and prints {"ids": […]}, one a line; with --format csv the columns line and ids, those of a line
between spaces. Only tokenizer.json is needed; docs/tokenizers.md lists the
parts that are known. Chat templates are out of scope: give the text as the model is to see it, with the special tokens
that it expects.)",
          describe_tokenize, run_tokenize};
}

Command detokenize_command() {
  return {"detokenize", "token ids to text", "--model DIR [--skip-special] [--jsonl F]",
          R"(  echo '{"ids": [0, 41]}' | kvroof detokenize --model models/demo

Reads {"ids": […]} and prints {"text": "…"}, one a line; with --format csv the columns line and text.)",
          describe_detokenize, run_detokenize};
}

}  // namespace kvroof
