// Results and progress: tables, CSV, JSON rows, files that appear whole, and a progress line on the terminal.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/command.hpp"
#include "apps/unfinished_file.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

const std::vector<std::string>& raw_row(const Table& table, std::size_t i) {
  return table.raw_rows.empty() ? table.rows[i] : table.raw_rows[i];
}

// Splits a text at spaces into lines of at most `width`, as far as its words allow.
std::vector<std::string> wrap_words(const std::string& title, std::size_t width) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  while (start < title.size()) {
    std::size_t end = title.find(' ', start);
    if (end == std::string::npos) end = title.size();
    const std::string word = title.substr(start, end - start);
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
    start = end + 1;
  }
  return lines;
}

// Columns of a terminal that a UTF-8 text takes, counting one for each code point.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return right ? space + text : text + space;
}

std::string trim_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// Columns of the terminal, or those of a page where the result goes elsewhere.
std::size_t page_width() {
  constexpr std::size_t kPage = 120;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kPage;
  return std::max<std::size_t>(size.ws_col, 80);
}

// A last column of text takes what the others leave of the page: its cells go on below themselves.
void fit_last_column(const Table& table, std::vector<std::size_t>& widths) {
  if (table.columns.back().number) return;
  constexpr std::size_t kLeast = 30;
  std::size_t others = 0;
  for (std::size_t c = 0; c + 1 < widths.size(); ++c) others += widths[c] + 2;
  const std::size_t page = page_width();
  widths.back() = std::min(widths.back(), page > others + kLeast ? page - others : kLeast);
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::filesystem::path data_folder() {
  namespace fs = std::filesystem;
  if (const char* home = std::getenv("KVROOF_HOME")) return home;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    if (fs::is_directory(at / "catalog" / "devices", ignored)) return at;
    if (fs::is_directory(at / "share" / "kvroof" / "catalog", ignored)) return at / "share" / "kvroof";
  }
  throw Error("the folder catalog/ was not found beside or above the program")
      .note("set KVROOF_HOME to the folder that holds it");
}

Format format_of(const Arguments& arguments) {
  const auto& text = arguments.get<std::string>("format");
  if (text == "json") return Format::kJson;
  return text == "csv" ? Format::kCsv : Format::kTable;
}

void write_result(const Arguments& arguments, std::string_view text) {
  if (!arguments.has("out")) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  write_file(arguments.get<std::string>("out"), text);
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish();
}

void require_writable(const std::string& path) {
  std::error_code ignored;
  const std::string temporary = temporary_name(path);
  int reason = std::filesystem::is_directory(path, ignored) ? EISDIR : 0;
  if (temporary != path) {  // a pipe is not opened twice
    const UnfinishedFile unfinished(temporary);
    std::FILE* const file = std::fopen(temporary.c_str(), "wb");
    if (file == nullptr) {
      reason = errno;
    } else {
      std::fclose(file);
      std::remove(temporary.c_str());
    }
  }
  if (reason != 0) throw Error(fmt::format("{}: cannot be written: {}", path, std::strerror(reason)));
}

std::string format_paragraph(const std::string& text, std::size_t indent) {
  std::string out;
  for (const std::string& line : wrap_words(text, page_width() - indent)) out += std::string(indent, ' ') + line + "\n";
  return out;
}

std::string format_table(const Table& table) {
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> titles;
  std::size_t title_lines = 1;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = 4;
    for (const auto& row : table.rows) width = std::max(width, display_width(row[c]));
    titles.push_back(wrap_words(table.columns[c].title, std::max<std::size_t>(width, 9)));
    for (const std::string& line : titles.back()) width = std::max(width, display_width(line));
    title_lines = std::max(title_lines, titles.back().size());
    widths.push_back(width);
  }
  fit_last_column(table, widths);
  std::string text;
  for (std::size_t i = 0; i < title_lines; ++i) {
    std::string line;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const std::size_t skipped = title_lines - titles[c].size();
      line += pad(i < skipped ? "" : titles[c][i - skipped], widths[c], table.columns[c].number) + "  ";
    }
    text += trim_right(line) + "\n";
  }
  for (const auto& row : table.rows) {
    std::string line;
    for (std::size_t c = 0; c + 1 < row.size(); ++c) line += pad(row[c], widths[c], table.columns[c].number) + "  ";
    const std::string indent(display_width(line), ' ');
    const std::size_t last = row.size() - 1;
    for (const std::string& part : wrap_words(row[last], widths[last])) {
      text += trim_right(line + pad(part, widths[last], table.columns[last].number)) + "\n";
      line = indent;
    }
    if (row[last].empty()) text += trim_right(line) + "\n";
  }
  return text;
}

std::string format_csv(const Table& table) {
  std::string text;
  for (std::size_t c = 0; c < table.columns.size(); ++c) text += (c > 0 ? "," : "") + csv_field(table.columns[c].key);
  text += "\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = raw_row(table, i);
    for (std::size_t c = 0; c < row.size(); ++c) text += (c > 0 ? "," : "") + csv_field(row[c]);
    text += "\n";
  }
  return text;
}

std::string format_json_rows(const Table& table) {
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    nlohmann::ordered_json object;
    const auto& row = raw_row(table, i);
    for (std::size_t c = 0; c < row.size(); ++c) {
      const Table::Column& column = table.columns[c];
      if (row[c].empty()) {
        object[column.key] = nullptr;
      } else if (column.number) {
        object[column.key] = nlohmann::ordered_json::parse(row[c]);
      } else {
        object[column.key] = row[c];
      }
    }
    rows.push_back(std::move(object));
  }
  return rows.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_table(const Arguments& arguments, const Table& table) {
  switch (format_of(arguments)) {
    case Format::kJson:
      return write_result(arguments, format_json_rows(table));
    case Format::kCsv:
      return write_result(arguments, format_csv(table));
    case Format::kTable:
      return write_result(arguments, format_table(table));
  }
}

Progress::Progress(const Arguments& arguments, std::string what)
    : what_(std::move(what)), active_(!arguments.quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (active_) fmt::print(stderr, "\r\033[K");
}

void Progress::at(std::uint64_t done, std::uint64_t total) {
  if (!active_ || total == 0) return;
  const std::uint64_t percent = done * 100 / total;
  if (percent == last_ && done != total) return;
  last_ = percent;
  print("");
}

void Progress::under_way(const std::string& what) {
  if (active_) print(", " + what);
}

void Progress::print(const std::string& more) const {
  fmt::print(stderr, "\r\033[K{} {:3} %{}", what_, last_, more);
  std::fflush(stderr);
}

}  // namespace kvroof
