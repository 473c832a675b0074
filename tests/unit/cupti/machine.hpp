// A machine made for a test: a root of its own with the files that are named, variables, a driver that answers as told.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "kernels/cupti/machine.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof::test {

class MadeMachine {
 public:
  MadeMachine() {
    machine.root = folder_.path();
    machine.variable = [this](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    machine.driver = [this] { return driver; };
    machine.cupti_version = [this](const std::string& path) {
      const auto found = cupti.find(path);
      return found == cupti.end() ? std::nullopt : std::optional(found->second);
    };
  }
  void file(const std::string& path, const std::string& text = "") const {
    const std::filesystem::path full = folder_.path() / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  Machine machine;
  DriverFacts driver;
  std::map<std::string, std::string> variables;
  std::map<std::string, std::uint32_t> cupti;

 private:
  TemporaryFolder folder_;
};

}  // namespace kvroof::test
