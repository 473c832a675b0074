// The machine as the recorder and `kvroof doctor` look at it: files below a root, the environment, its driver.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/libraries/libraries.hpp"

namespace kvroof {

struct DriverDevice {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::uint64_t memory_bytes = 0;
};

// What libcuda answers. version = 0: the library is not here.
struct DriverFacts {
  int version = 0;      // the newest CUDA that it serves, 13.0 as 13000
  std::string path;     // of the library
  std::string problem;  // why devices cannot be listed; empty: they are below
  std::vector<DriverDevice> devices;
};

// A test gives answers of its own.
struct Machine : Host {
  std::function<DriverFacts()> driver;  // starts the driver
  // Of the library at a path, 13.0 as 130001; nothing: it cannot be loaded.
  std::function<std::optional<std::uint32_t>(const std::string&)> cupti_version;
  bool superuser = false;
};

// This machine.
Machine this_machine();

// Whether a path is that of some copy of CUPTI, by its name.
bool names_cupti(const std::filesystem::path& path);

// Major version of CUDA that CUPTI's records are decoded for.
inline constexpr std::uint32_t kCuptiMajor = 13;
inline constexpr const char* kCuptiFile = "libcupti.so.13";

// NVTX calls what this variable names: CUPTI itself, whose ranges then reach whoever records with that copy.
inline constexpr const char* kNvtxVariable = "NVTX_INJECTION64_PATH";
// Of CUDA 13.0 before its first update: it ends a program that names a thread through NVTX (NVIDIA/NVTX issue 125).
inline constexpr std::uint32_t kCuptiWithoutNvtx = 130000;

}  // namespace kvroof
