// Shared libraries of others, which are looked for on the host, opened at run time and called by the names of their
// functions.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// Where is looked. A test gives a folder for the root, and an environment of its own.
struct Host {
  std::filesystem::path root = "/";
  std::function<std::optional<std::string>(const char* name)> variable;  // of the environment
};

// This process's.
Host this_host();

inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// A path of the host as a path below its root.
std::filesystem::path below(const Host& host, std::string_view path);

// Paths (of the host, not below its root) of a shared library that exist, in this order: LD_LIBRARY_PATH; the toolkits
// that CUDA_HOME, CUDA_PATH and /usr/local/cuda* name, newest first, each with its extras/CUPTI; the system's folders;
// CONDA_PREFIX's; the nvidia/ folders of Python environments (VIRTUAL_ENV, CONDA_PREFIX, those whose python3 is on
// PATH, system, user). No path comes twice.
std::vector<std::string> find_library(const Host& host, const std::string& file_name);

// Names of one library's file, the best first.
using LibraryFiles = std::span<const char* const>;
inline constexpr std::array kCublasLtFiles = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};

// Opens what find_library names for each file, then what the system's loader finds by name alone, with dlopen's
// `flags`, until `take` takes one: it returns why not, or nothing. Empty, or one sentence: what was wrong with one that
// `take` refused, else with the first that cannot be loaded, else that none was found.
using TakeLibrary = std::function<std::string(void* library, const std::string& path)>;
std::string open_library(const Host& host, LibraryFiles files, int flags, const TakeLibrary& take);

void* symbol_of(void* library, const char* name);  // null where it has none

// Points `function` at a library's function of this name; whether it has one. What type it has, the caller must know.
template <class Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(symbol_of(library, name));
  return function != nullptr;
}
template <class Function>
Function* function_of(void* library, const char* name) {
  Function* function = nullptr;
  find_function(library, name, function);
  return function;
}

}  // namespace kvroof
