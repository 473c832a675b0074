// Where results go: standard output or a file that appears whole, in the form that --format asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "apps/cli/command.hpp"
#include "apps/cli/table.hpp"

namespace kvroof {

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
// In the form that --format asks for, to where write_result writes.
void write_table(const Arguments& arguments, const Table& table);

}  // namespace kvroof
