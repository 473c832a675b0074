// Small traces with known content, shared by the tests of traces.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace kvroof::test {

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace kvroof::test
