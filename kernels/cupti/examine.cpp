#include "kernels/cupti/examine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>

namespace fs = std::filesystem;

namespace kvroof {
namespace {

constexpr const char* kDriverDownload = "install NVIDIA's driver of branch 580 or newer (nvidia.com/drivers)";
constexpr int kNeededDriver = 13000;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// A small text file; empty where it is not.
std::string text_of(const fs::path& path) {
  constexpr std::size_t kMost = 1U << 16;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMost, '\0');
  file.read(text.data(), kMost);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

bool exists(const Machine& machine, std::string_view path) {
  std::error_code ignored;
  return fs::exists(below(machine, path), ignored);
}

// The value of a line "key: value".
std::optional<std::string> value_of(const std::string& text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.starts_with(key) && line.substr(key.size()).starts_with(":")) {
      const std::size_t start = line.find_first_not_of(" \t", key.size() + 1);
      return start == std::string_view::npos ? std::string() : std::string(line.substr(start));
    }
    at = end + 1;
  }
  return std::nullopt;
}

// The release of the kernel module, as "580.65.06"; empty when no module is loaded.
std::string module_release(const Machine& machine) {
  const std::string text = text_of(below(machine, "/proc/driver/nvidia/version"));
  for (std::size_t at = text.find_first_of("0123456789"); at < text.size();
       at = text.find_first_of("0123456789", text.find_first_not_of("0123456789.", at))) {
    const std::string word = text.substr(at, text.find_first_not_of("0123456789.", at) - at);
    if (word.find('.') != std::string::npos) return word;  // "x86_64" has digits as well
  }
  return {};
}

int module_branch(const Machine& machine) {
  const std::string release = module_release(machine);
  int branch = 0;
  std::from_chars(release.data(), release.data() + release.size(), branch);
  return branch;
}

Finding driver_finding(const Machine& machine, const DriverFacts& facts) {
  const std::string release = module_release(machine);
  const std::string module = release.empty() ? "" : "kernel module " + release;
  if (facts.version == 0 && !release.empty()) {
    return {"driver", Health::kMissing, module + ", but no libcuda.so.1",
            "in a container: start it with `--gpus all` (NVIDIA Container Toolkit) and NVIDIA_DRIVER_CAPABILITIES="
            "compute,utility; else install the driver's library (Debian: libcuda1)"};
  }
  if (facts.version == 0) return {"driver", Health::kMissing, "no libcuda.so.1, no kernel module", kDriverDownload};
  std::string found = fmt::format("CUDA {}{}{}, {}", version_text(facts.version), module.empty() ? "" : ", ", module,
                                  facts.path);
  if (facts.version < kNeededDriver) {
    return {"driver", Health::kMissing, found, fmt::format("CUDA 13 is needed: {}", kDriverDownload)};
  }
  if (release.empty()) {
    return {"driver", Health::kLimited, found + "; no kernel module is loaded",
            "`sudo modprobe nvidia`; in a container: start it with `--gpus all`"};
  }
  return {"driver", Health::kOk, found, ""};
}

void add_devices(const Machine& machine, const DriverFacts& facts, std::vector<Finding>& findings) {
  if (facts.version != 0 && facts.devices.empty()) {
    std::string remedy = "`nvidia-smi` must list a GPU";
    if (const auto hidden = machine.variable(kVisibleDevices)) {
      remedy = fmt::format("CUDA_VISIBLE_DEVICES is '{}': unset it", *hidden);
    } else if (!exists(machine, "/dev/nvidiactl")) {
      remedy = "there is no /dev/nvidiactl: `sudo nvidia-modprobe`, or in a container `--gpus all`";
    }
    findings.push_back({"device", Health::kMissing,
                        facts.problem.empty() ? "the driver lists no GPU" : "libcuda: " + facts.problem, remedy});
  } else if (facts.devices.empty()) {
    findings.push_back({"device", Health::kMissing, "none without a driver", "see driver"});
  }
  for (std::size_t i = 0; i < facts.devices.size(); ++i) {
    const DriverDevice& device = facts.devices[i];
    findings.push_back({fmt::format("device {}", i), Health::kOk,
                        fmt::format("{}, compute capability {}.{}, {:.1f} GiB", device.name, device.major, device.minor,
                                    static_cast<double>(device.memory_bytes) / (1U << 30U)),
                        ""});
    if (device.major >= 8) continue;
    findings.back().health = Health::kLimited;
    findings.back().remedy = "the engine's kernels need compute capability 8.0: models run on the CPU";
  }
}

Finding engine_finding(const std::optional<std::string>& problem, bool is_built) {
  if (!problem) return {"engine", Health::kOk, "has kernels for device 0", ""};
  return {"engine", Health::kLimited, *problem,
          is_built ? "models run on the CPU until this is mended"
                   : "models run on the CPU; to use a GPU, install nvcc of CUDA 13 and build with -DKVROOF_CUDA=ON"};
}

Finding toolkit_finding(const Machine& machine) {
  std::string found;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const auto value = machine.variable(name);
    if (value && exists(machine, *value + "/bin/nvcc")) found = *value + "/bin/nvcc";
    if (!found.empty()) break;
  }
  if (found.empty() && exists(machine, "/usr/local/cuda/bin/nvcc")) found = "/usr/local/cuda/bin/nvcc";
  if (found.empty() && exists(machine, "/usr/bin/nvcc")) found = "/usr/bin/nvcc";
  if (!found.empty()) return {"toolkit", Health::kOk, found, ""};
  return {"toolkit", Health::kLimited, "no nvcc in CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/bin",
          "only building for a GPU needs it: install CUDA 13 (developer.nvidia.com/cuda-downloads)"};
}

Finding library_finding(const Machine& machine, std::string item, LibraryFiles files, std::string remedy) {
  for (const char* file : files) {
    const auto paths = find_library(machine, file);
    if (!paths.empty()) return {std::move(item), Health::kOk, paths.front(), ""};
  }
  return {std::move(item), Health::kLimited, fmt::format("no {}", files.front()), std::move(remedy)};
}

Finding cupti_finding(const Machine& machine) {
  const std::string install = "for `record -- CMD`: `pip install nvidia-cuda-cupti` (CUDA 13), or "
                              "set CUDA_HOME to a toolkit of CUDA 13";
  const auto paths = find_library(machine, kCuptiFile);
  for (const std::string& path : paths) {
    const auto version = machine.cupti_version(path);
    if (!version) continue;
    const std::string found = fmt::format("version {}, {}", *version, path);
    if (*version / 10000 == kCuptiMajor) return {"CUPTI", Health::kOk, found, ""};
    return {"CUPTI", Health::kMissing, found, fmt::format("version {}xxxx is needed: {}", kCuptiMajor, install)};
  }
  if (!paths.empty()) {
    return {"CUPTI", Health::kMissing, paths.front() + " cannot be loaded",
            "`ldd` on it names what it lacks; or " + install};
  }
  const auto older = find_library(machine, "libcupti.so.12");
  if (!older.empty()) return {"CUPTI", Health::kMissing, older.front() + ", which is of CUDA 12", install};
  return {"CUPTI", Health::kMissing, fmt::format("no {}", kCuptiFile), install};
}

// Programs that hold the performance monitors or CUPTI for themselves, by the name that /proc/PID/comm gives them
// (15 bytes at most).
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kProfilers = {{
    {"nv-hostengine", "DCGM: `dcgmi profile --pause` while counters are recorded"},
    {"dcgm-exporter", "DCGM: `dcgmi profile --pause` while counters are recorded"},
    {"nsys", "Nsight Systems: end its session"},
    {"nsys-launcher", "Nsight Systems: end its session"},
    {"ncu", "Nsight Compute: end its session"},
    {"nv-nsight-cu-cl", "Nsight Compute: end its session"},
}};

void add_profilers(const Machine& machine, std::vector<Finding>& findings) {
  std::vector<Finding> seen;
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    if (const auto value = machine.variable(name)) {
      seen.push_back({"profilers", Health::kLimited, fmt::format("{}={}", name, *value),
                      fmt::format("`unset {}`: CUPTI serves one profiler a process", name)});
    }
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(below(machine, "/proc"), ignored)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string name = text_of(entry.path() / "comm");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    for (const auto& [program, remedy] : kProfilers) {
      if (name != program) continue;
      seen.push_back({"profilers", Health::kLimited, fmt::format("{} runs (process {})", name, pid),
                      std::string(remedy)});
    }
  }
  std::sort(seen.begin(), seen.end(), [](const Finding& a, const Finding& b) { return a.found < b.found; });
  if (seen.empty()) seen.push_back({"profilers", Health::kOk, "none seen", ""});
  findings.insert(findings.end(), seen.begin(), seen.end());
}

bool has_capability(std::uint64_t effective, unsigned bit) { return (effective >> bit & 1U) != 0; }

}  // namespace

std::string_view name_of(Health health) {
  switch (health) {
    case Health::kOk: return "ok";
    case Health::kLimited: return "limited";
    default: return "missing";
  }
}

Finding counter_permission(const Machine& machine) {
  constexpr unsigned kSysAdmin = 21, kPerfmon = 38;  // capabilities(7)
  constexpr int kPerfmonBranch = 565;                // the first driver that honours CAP_PERFMON
  const std::string params = text_of(below(machine, "/proc/driver/nvidia/params"));
  const auto admin_only = value_of(params, "RmProfilingAdminOnly");
  if (admin_only == "0") return {"counters", Health::kOk, "the driver lets every user read them", ""};
  std::uint64_t effective = 0;
  if (const auto text = value_of(text_of(below(machine, "/proc/self/status")), "CapEff")) {
    std::from_chars(text->data(), text->data() + text->size(), effective, 16);
  }
  if (has_capability(effective, kSysAdmin)) return {"counters", Health::kOk, "this process has CAP_SYS_ADMIN", ""};
  if (has_capability(effective, kPerfmon) && module_branch(machine) >= kPerfmonBranch) {
    return {"counters", Health::kOk, "this process has CAP_PERFMON", ""};
  }
  const std::string why = admin_only ? "the driver keeps them for administrators (RmProfilingAdminOnly: 1)"
                                     : "the driver's parameters are not to be seen here";
  if (machine.superuser) {
    return {"counters", Health::kLimited, why + ", and this root has no CAP_SYS_ADMIN",
            "start the container with `--cap-add SYS_ADMIN`; kernel times need no right"};
  }
  return {"counters", Health::kLimited, why,
          "run with `sudo`, or `echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
          "/etc/modprobe.d/nvidia-counters.conf` and restart; kernel times need no right"};
}

Examination examine(const Machine& machine, const std::optional<std::string>& engine_problem, bool engine_is_built) {
  Examination examination;
  const DriverFacts facts = machine.driver();
  examination.has_device = !facts.devices.empty();
  std::vector<Finding>& findings = examination.findings;
  findings.push_back(driver_finding(machine, facts));
  add_devices(machine, facts, findings);
  findings.push_back(engine_finding(engine_problem, engine_is_built));
  findings.push_back(toolkit_finding(machine));
  findings.push_back(library_finding(machine, "cudart", std::array{"libcudart.so.13"},
                                     "kvroof has its own linked in; a program that is recorded may need it: "
                                     "`pip install nvidia-cuda-runtime`"));
  findings.push_back(library_finding(machine, "cuBLASLt", kCublasLtFiles,
                                     "long prompts and large batches take longer without it: "
                                     "`pip install nvidia-cublas`"));
  findings.push_back(cupti_finding(machine));
  findings.push_back(library_finding(machine, "nvperf", std::array{"libnvperf_host.so"},
                                     "for counters: it comes with CUPTI, `pip install nvidia-cuda-cupti` (CUDA 13)"));
  findings.push_back(counter_permission(machine));
  add_profilers(machine, findings);
  return examination;
}

}  // namespace kvroof
