#include "sim/core/csv.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

// All but the end of a line.
bool is_inner_blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

// What separates the fields of a header that has no comma, or nothing.
std::string_view other_separator(std::string_view only_field) {
  if (only_field.find(';') != std::string_view::npos) return "semicolons";
  return only_field.find('\t') != std::string_view::npos ? "tabs" : "";
}

}  // namespace

const std::string& CsvRow::operator[](std::string_view column) const {
  static const std::string kNothing;
  const auto at = reader_.find(column);
  return at ? fields_[*at] : kNothing;
}

Result<CsvReader> CsvReader::open(std::string_view text, Comments comments) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";  // which spreadsheets write
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return Failure{"it is UTF-16, expected UTF-8"};
  if (text.starts_with(kUtf8Mark)) text.remove_prefix(kUtf8Mark.size());
  CsvReader reader(text, comments);
  if (!reader.next_record()) {
    return Failure{trimmed(text).empty() ? "the file is empty" : "no line names the columns"};
  }
  if (reader.open_quote_ > 0) return reader.at_line(reader.open_quote_, "a quote is never closed");
  reader.header_line_ = reader.record_line_;
  reader.columns_.assign(reader.fields_.begin(), reader.fields_.begin() + static_cast<std::ptrdiff_t>(reader.count_));
  if (reader.count_ > 1) return reader;
  const std::string_view separator = other_separator(reader.columns_.front());
  if (separator.empty()) return reader;
  return reader.at_line(reader.header_line_, fmt::format("its fields are separated by {}, expected commas", separator));
}

std::optional<std::size_t> CsvReader::find(std::string_view column) const {
  const auto at = std::find(columns_.begin(), columns_.end(), column);
  return at == columns_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(at - columns_.begin()));
}

std::optional<Failure> CsvReader::require(std::span<const std::string_view> columns) const {
  std::vector<std::string> missing;
  for (const std::string_view column : columns) {
    if (!find(column)) missing.emplace_back(column);
  }
  if (missing.size() == 1) return at_line(header_line_, fmt::format("the column {} is missing", missing.front()));
  if (!missing.empty()) return at_line(header_line_, fmt::format("the columns {} are missing", join(missing)));
  for (auto column = columns_.begin(); column != columns_.end(); ++column) {
    if (column->empty() || std::find(columns_.begin(), column, *column) == column) continue;
    return at_line(header_line_, fmt::format("the column {} is there twice", shown(*column)));
  }
  return std::nullopt;
}

std::optional<Failure> CsvReader::for_each_row(const std::function<std::string(const CsvRow&)>& use) {
  while (next_record()) {
    if (open_quote_ > 0) return at_line(open_quote_, "a quote is never closed");
    if (count_ != columns_.size()) {
      return at_line(record_line_, fmt::format("{} fields, but the header has {}{}", count_, columns_.size(),
                                               count_ > columns_.size() ? "; a field with a comma is quoted" : ""));
    }
    const std::string problem = use(CsvRow(*this, std::span(fields_).first(count_)));
    if (!problem.empty()) return at_line(record_line_, problem);
  }
  return std::nullopt;
}

// Reads the fields of the next line that is neither blank nor a comment, and of those after it that quotes make one
// with it. False: there is none.
bool CsvReader::next_record() {
  for (;; ++line_) {
    if (at_ >= text_.size()) return false;
    const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
    if (!trimmed(line).empty() && !(comments_ == Comments::kHash && line.front() == '#')) break;
    at_ += line.size() + 1;
  }
  record_line_ = line_;
  count_ = 0;
  for (bool more = true; more; ++at_) {
    if (fields_.size() == count_) fields_.emplace_back();
    if (!read_field(fields_[count_++])) return true;
    more = at_ < text_.size() && text_[at_] == ',';
  }
  ++line_;
  return true;
}

// The field at `at_`, which moves to the comma or the end of the line behind it. False: its quote is never closed.
bool CsvReader::read_field(std::string& field) {
  field.clear();
  while (at_ < text_.size() && is_inner_blank(text_[at_])) ++at_;
  if (at_ < text_.size() && text_[at_] == '"' && !read_quoted(field)) return false;
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') ++at_;
  std::size_t end = at_;
  while (end > begin && is_inner_blank(text_[end - 1])) --end;
  field += text_.substr(begin, end - begin);
  return true;
}

// What is between the quote at `at_` and the one that closes it, behind which `at_` moves. False: there is none.
bool CsvReader::read_quoted(std::string& field) {
  const std::size_t opened = line_;
  for (++at_;;) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) break;
    const std::string_view part = text_.substr(at_, quote - at_);
    field += part;
    line_ += static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
    at_ = quote + 1;
    if (at_ >= text_.size() || text_[at_] != '"') return true;
    field += text_[at_++];
  }
  open_quote_ = opened;
  at_ = text_.size();
  return false;
}

Failure CsvReader::at_line(std::size_t line, std::string_view problem) const {
  return failure("line {}: {}", line, problem);
}

}  // namespace kvroof
