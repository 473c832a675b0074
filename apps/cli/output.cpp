#include "apps/cli/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

#include "apps/cli/unfinished_file.hpp"
#include "sim/core/files.hpp"

namespace kvroof {

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

}  // namespace kvroof
