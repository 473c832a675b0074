// docs/devices.md says how to write a device file.
#include <fstream>
#include <sstream>

#include "sim/device/device.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kSource = KVROOF_SOURCE_DIR;

std::vector<std::string> lines_of_document() {
  std::ifstream file(kSource / "docs/devices.md");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The first block of indented lines.
std::string example() {
  std::string text;
  for (const std::string& line : lines_of_document()) {
    if (line.starts_with("    ")) {
      text += line.substr(4) + "\n";
    } else if (!text.empty()) {
      break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("the example of the document is a device file, and no fact of it can be left out") {
  const std::string text = example();
  const auto device = device_from_yaml(text);
  INFO(text << (device.ok() ? "" : device.error()));
  REQUIRE(device.ok());
  CHECK(device.value().name == "my-board");
  std::size_t facts = 0;
  for (const DeviceFieldInfo& info : device_fields()) {
    if (!device.value().fact(info.field)) continue;
    ++facts;
    std::istringstream lines(text);
    std::string without;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(std::string(info.key) + ":") == std::string::npos) without += line + "\n";
    }
    INFO(info.key);
    CHECK_FALSE(device_from_yaml(without).ok());
  }
  CHECK(facts == 3);
}

TEST_CASE("the document names every fact of a device, in a row with its unit") {
  for (const DeviceFieldInfo& info : device_fields()) {
    INFO(info.key);
    const std::string key = "`" + std::string(info.key) + "`";
    bool in_a_row = false;
    for (const std::string& line : lines_of_document()) {
      if (!line.starts_with("| `") || line.find(key) == std::string::npos) continue;
      const std::string unit = line.substr(line.find('|', 1));
      in_a_row = in_a_row || (unit.size() > 4 && unit.find_first_not_of("| ") != std::string::npos);
    }
    CHECK(in_a_row);
  }
}

}  // namespace kvroof
