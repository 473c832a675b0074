// The machine as the recorder and `kvroof doctor` look at it: files below a root, the environment, libraries by path.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// A test gives a folder for the root, and answers of its own.
struct Machine {
  std::filesystem::path root = "/";
  std::function<std::optional<std::string>(const char* name)> variable;  // of the environment
  std::function<DriverFacts()> driver;                                   // starts the driver
  // Of the library at a path, 13.0 as 130001; nothing: it cannot be loaded.
  std::function<std::optional<std::uint32_t>(const std::string&)> cupti_version;
  bool superuser = false;
};

// This machine.
Machine this_machine();

// A path of the machine as a path below its root.
std::filesystem::path below(const Machine& machine, std::string_view path);

// Paths (of the machine, not below its root) of a shared library that exist, in this order: LD_LIBRARY_PATH; the
// toolkits that CUDA_HOME, CUDA_PATH and /usr/local/cuda* name, newest first, each with its extras/CUPTI; the system's
// folders; CONDA_PREFIX's; the nvidia/ folders of Python environments (VIRTUAL_ENV, CONDA_PREFIX, those whose python3
// is on PATH, system, user). No path comes twice.
std::vector<std::string> find_library(const Machine& machine, const std::string& file_name);

// Names of one library's file, the best first.
using LibraryFiles = std::span<const char* const>;

// Opens what find_library names for each file, then what the system's loader finds by name alone, with dlopen's
// `flags`, until `take` takes one: it returns why not, or nothing. Empty, or one sentence: what was wrong with one that
// `take` refused, else with the first that cannot be loaded, else that none was found.
using TakeLibrary = std::function<std::string(void* library, const std::string& path)>;
std::string open_library(const Machine& machine, LibraryFiles files, int flags, const TakeLibrary& take);

// Whether a path is that of some copy of CUPTI, by its name.
bool names_cupti(const std::filesystem::path& path);

// Major version of CUDA that CUPTI's records are decoded for.
inline constexpr std::uint32_t kCuptiMajor = 13;
inline constexpr const char* kCuptiFile = "libcupti.so.13";
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// NVTX calls what this variable names: CUPTI itself, whose ranges then reach whoever records with that copy.
inline constexpr const char* kNvtxVariable = "NVTX_INJECTION64_PATH";
// Of CUDA 13.0 before its first update: it ends a program that names a thread through NVTX (NVIDIA/NVTX issue 125).
inline constexpr std::uint32_t kCuptiWithoutNvtx = 130000;
inline constexpr std::array kCublasLtFiles = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};

}  // namespace kvroof
