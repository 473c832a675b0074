#include "kernels/cupti/machine.hpp"

#include <dlfcn.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace kvroof {
namespace {

std::string path_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Fills in the devices; empty, or why not. The functions are those of cuda.h, whose results are 0 for success.
std::string list_devices(void* library, std::vector<DriverDevice>& devices) {
  constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CUdevice_attribute
  auto* const init = function_of<int(unsigned)>(library, "cuInit");
  auto* const count = function_of<int(int*)>(library, "cuDeviceGetCount");
  auto* const name = function_of<int(char*, int, int)>(library, "cuDeviceGetName");
  auto* const attribute = function_of<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  auto* const memory = function_of<int(std::size_t*, int)>(library, "cuDeviceTotalMem_v2");
  auto* const error_text = function_of<int(int, const char**)>(library, "cuGetErrorString");
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
  auto* const version = function_of<int(int*)>(library, "cuDriverGetVersion");
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
  auto* const ask = function_of<int(std::uint32_t*)>(library, "cuptiGetVersion");
  return ask != nullptr && ask(&version) == 0 ? std::optional(version) : std::nullopt;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  static_cast<Host&>(machine) = this_host();
  machine.driver = ask_driver;
  machine.cupti_version = ask_cupti;
  machine.superuser = geteuid() == 0;
  return machine;
}

bool names_cupti(const fs::path& path) { return path.filename().string().starts_with("libcupti.so"); }

}  // namespace kvroof
