#include "kernels/libraries/libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace fs = std::filesystem;

namespace kvroof {
namespace {

// An empty variable is as good as none, but for the one that then hides every device.
std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || (*value == '\0' && std::string_view(name) != kVisibleDevices)) return std::nullopt;
  return value;
}

// Entries of a folder whose names start so, the highest name first.
std::vector<std::string> matching(const Host& host, const std::string& folder, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(below(host, folder), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) names.push_back(folder + "/" + name);
  }
  std::sort(names.rbegin(), names.rend());
  return names;
}

std::vector<std::string> split_path(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

void add_toolkits(const Host& host, std::vector<std::string>& folders) {
  std::vector<std::string> toolkits;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}) {
    if (const auto value = host.variable(name)) toolkits.push_back(*value);
  }
  toolkits.emplace_back("/usr/local/cuda");
  for (const std::string& found : matching(host, "/usr/local", "cuda-")) toolkits.push_back(found);
  for (const std::string& toolkit : toolkits) {
    for (const char* inner : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib",
                              "/extras/CUPTI/lib64", "/extras/CUPTI/lib"}) {
      folders.push_back(toolkit + inner);
    }
  }
}

// Above each folder of PATH that has a python3, whose links are not followed: an environment's is one to the system's.
void add_pythons_of_path(const Host& host, std::vector<std::string>& prefixes) {
  for (const std::string& folder : split_path(host.variable("PATH").value_or(""))) {
    std::error_code ignored;
    const fs::path bin = fs::path(folder + "/").parent_path();
    if (!bin.is_absolute() || !fs::exists(below(host, folder + "/python3"), ignored)) continue;
    const std::string above = bin.parent_path().string();
    prefixes.push_back(above);
    if (bin.filename() != "shims") continue;  // pyenv's, each of which starts one of its versions
    for (const std::string& version : matching(host, above + "/versions", "")) prefixes.push_back(version);
  }
}

void add_python(const Host& host, std::vector<std::string>& folders) {
  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto value = host.variable(name)) prefixes.push_back(*value);
  }
  if (const auto conda = host.variable("CONDA_PREFIX")) folders.push_back(*conda + "/lib");
  add_pythons_of_path(host, prefixes);
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  if (const auto home = host.variable("HOME")) prefixes.push_back(*home + "/.local");
  for (const std::string& prefix : prefixes) {
    for (const std::string& python : matching(host, prefix + "/lib", "python3")) {
      for (const char* packages : {"/site-packages/nvidia", "/dist-packages/nvidia"}) {
        // nvidia/cu13/lib since CUDA 13; nvidia/cuda_cupti/lib and others before.
        for (const std::string& package : matching(host, python + packages, "cu")) {
          folders.push_back(package + "/lib");
        }
      }
    }
  }
}

}  // namespace

void* symbol_of(void* library, const char* name) { return dlsym(library, name); }

Host this_host() { return {"/", environment}; }

fs::path below(const Host& host, std::string_view path) {
  return host.root / fs::path(path).relative_path();
}

std::vector<std::string> find_library(const Host& host, const std::string& file_name) {
  std::vector<std::string> folders;
  if (const auto value = host.variable("LD_LIBRARY_PATH")) folders = split_path(*value);
  add_toolkits(host, folders);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    folders.emplace_back(folder);
  }
  add_python(host, folders);
  std::vector<std::string> found;
  std::vector<fs::path> files;  // the same file by another name (a link of a folder) comes once
  for (const std::string& folder : folders) {
    std::error_code missing;
    const fs::path real = fs::canonical(below(host, folder) / file_name, missing);
    if (missing || std::find(files.begin(), files.end(), real) != files.end()) continue;
    files.push_back(real);
    found.push_back(folder + "/" + file_name);
  }
  return found;
}

std::string open_library(const Host& host, LibraryFiles files, int flags, const TakeLibrary& take) {
  std::string refused, unloadable;
  for (const char* file : files) {
    for (const std::string& path : find_library(host, file)) {
      void* const library = dlopen(below(host, path).c_str(), flags);
      if (library != nullptr) {
        refused = take(library, path);
        if (refused.empty()) return {};
      } else if (unloadable.empty()) {
        const char* const why = dlerror();
        unloadable = fmt::format("{} cannot be loaded: {}", path, why != nullptr ? why : "unknown error");
      }
    }
  }
  for (const char* file : files) {
    void* const library = host.root == "/" ? dlopen(file, flags) : nullptr;
    if (library == nullptr) continue;
    const std::string why = take(library, file);
    if (why.empty()) return {};
    if (refused.empty()) refused = why;
  }
  if (!refused.empty()) return refused;
  if (!unloadable.empty()) return unloadable;
  return fmt::format("{} was not found; `kvroof doctor` says where it is looked for", files.front());
}

}  // namespace kvroof
