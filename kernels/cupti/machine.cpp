#include "kernels/cupti/machine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

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

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string path_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Fills in the devices; empty, or why not. The functions are those of cuda.h, whose results are 0 for success.
std::string list_devices(void* library, std::vector<DriverDevice>& devices) {
  constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CUdevice_attribute
  auto* const init = symbol<int(unsigned)>(library, "cuInit");
  auto* const count = symbol<int(int*)>(library, "cuDeviceGetCount");
  auto* const name = symbol<int(char*, int, int)>(library, "cuDeviceGetName");
  auto* const attribute = symbol<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  auto* const memory = symbol<int(std::size_t*, int)>(library, "cuDeviceTotalMem_v2");
  auto* const error_text = symbol<int(int, const char**)>(library, "cuGetErrorString");
  if (!init || !count || !name || !attribute || !memory || !error_text) return "libcuda lacks functions of CUDA 13";
  const auto why = [error_text](int status) {
    const char* text = nullptr;
    return error_text(status, &text) == 0 && text != nullptr ? std::string(text) : "error " + std::to_string(status);
  };
  if (const int status = init(0)) return why(status);
  int devices_here = 0;
  if (const int status = count(&devices_here)) return why(status);
  for (int i = 0; i < devices_here; ++i) {
    DriverDevice device;
    char text[256] = {};
    std::size_t bytes = 0;
    name(text, sizeof text, i);
    attribute(&device.major, kComputeMajor, i);
    attribute(&device.minor, kComputeMinor, i);
    memory(&bytes, i);
    device.name = text;
    device.memory_bytes = bytes;
    devices.push_back(std::move(device));
  }
  return {};
}

DriverFacts ask_driver() {
  DriverFacts facts;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return facts;
  auto* const version = symbol<int(int*)>(library, "cuDriverGetVersion");
  if (version == nullptr || version(&facts.version) != 0 || facts.version <= 0) {
    facts.version = 0;
    return facts;
  }
  facts.path = path_of(reinterpret_cast<void*>(version));
  facts.problem = list_devices(library, facts.devices);
  return facts;  // the library stays loaded: a driver that was started cannot be taken down
}

std::optional<std::uint32_t> ask_cupti(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  std::uint32_t version = 0;
  auto* const ask = symbol<int(std::uint32_t*)>(library, "cuptiGetVersion");
  return ask != nullptr && ask(&version) == 0 ? std::optional(version) : std::nullopt;
}

// Entries of a folder whose names start so, the highest name first.
std::vector<std::string> matching(const Machine& machine, const std::string& folder, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(below(machine, folder), ignored)) {
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

void add_toolkits(const Machine& machine, std::vector<std::string>& folders) {
  std::vector<std::string> toolkits;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}) {
    if (const auto value = machine.variable(name)) toolkits.push_back(*value);
  }
  toolkits.emplace_back("/usr/local/cuda");
  for (const std::string& found : matching(machine, "/usr/local", "cuda-")) toolkits.push_back(found);
  for (const std::string& toolkit : toolkits) {
    for (const char* inner : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib",
                              "/extras/CUPTI/lib64", "/extras/CUPTI/lib"}) {
      folders.push_back(toolkit + inner);
    }
  }
}

// Above each folder of PATH that has a python3, whose links are not followed: an environment's is one to the system's.
void add_pythons_of_path(const Machine& machine, std::vector<std::string>& prefixes) {
  for (const std::string& folder : split_path(machine.variable("PATH").value_or(""))) {
    std::error_code ignored;
    const fs::path bin = fs::path(folder + "/").parent_path();
    if (!bin.is_absolute() || !fs::exists(below(machine, folder + "/python3"), ignored)) continue;
    const std::string above = bin.parent_path().string();
    prefixes.push_back(above);
    if (bin.filename() != "shims") continue;  // pyenv's, each of which starts one of its versions
    for (const std::string& version : matching(machine, above + "/versions", "")) prefixes.push_back(version);
  }
}

void add_python(const Machine& machine, std::vector<std::string>& folders) {
  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto value = machine.variable(name)) prefixes.push_back(*value);
  }
  if (const auto conda = machine.variable("CONDA_PREFIX")) folders.push_back(*conda + "/lib");
  add_pythons_of_path(machine, prefixes);
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  if (const auto home = machine.variable("HOME")) prefixes.push_back(*home + "/.local");
  for (const std::string& prefix : prefixes) {
    for (const std::string& python : matching(machine, prefix + "/lib", "python3")) {
      for (const char* packages : {"/site-packages/nvidia", "/dist-packages/nvidia"}) {
        // nvidia/cu13/lib since CUDA 13; nvidia/cuda_cupti/lib and others before.
        for (const std::string& package : matching(machine, python + packages, "cu")) {
          folders.push_back(package + "/lib");
        }
      }
    }
  }
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.variable = environment;
  machine.driver = ask_driver;
  machine.cupti_version = ask_cupti;
  machine.superuser = geteuid() == 0;
  return machine;
}

fs::path below(const Machine& machine, std::string_view path) {
  return machine.root / fs::path(path).relative_path();
}

std::vector<std::string> find_library(const Machine& machine, const std::string& file_name) {
  std::vector<std::string> folders;
  if (const auto value = machine.variable("LD_LIBRARY_PATH")) folders = split_path(*value);
  add_toolkits(machine, folders);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    folders.emplace_back(folder);
  }
  add_python(machine, folders);
  std::vector<std::string> found;
  std::vector<fs::path> files;  // the same file by another name (a link of a folder) comes once
  for (const std::string& folder : folders) {
    std::error_code missing;
    const fs::path real = fs::canonical(below(machine, folder) / file_name, missing);
    if (missing || std::find(files.begin(), files.end(), real) != files.end()) continue;
    files.push_back(real);
    found.push_back(folder + "/" + file_name);
  }
  return found;
}

bool names_cupti(const fs::path& path) { return path.filename().string().starts_with("libcupti.so"); }

std::string open_library(const Machine& machine, LibraryFiles files, int flags, const TakeLibrary& take) {
  std::string refused, unloadable;
  for (const char* file : files) {
    for (const std::string& path : find_library(machine, file)) {
      void* const library = dlopen(below(machine, path).c_str(), flags);
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
    void* const library = machine.root == "/" ? dlopen(file, flags) : nullptr;
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
