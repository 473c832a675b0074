// What `kvroof doctor` finds on machines that are made for the test, situation by situation.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/cupti/examine.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cupti/machine.hpp"

using kvroof::Examination;
using kvroof::Finding;
using kvroof::Health;
using kvroof::TakeLibrary;
using kvroof::test::MadeMachine;

namespace {

constexpr const char* kModule =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 06:54:38 UTC 2025\n"
    "GCC version: gcc 12.2.0\n";
const std::string kToolkit = "/usr/local/cuda/lib64/";

Finding find(const Examination& examination, const std::string& item) {
  for (const Finding& finding : examination.findings) {
    if (finding.item == item) return finding;
  }
  return {item, Health::kMissing, "no such item", ""};
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// An H200 with everything, used by root with every capability.
void make_whole(MadeMachine& made) {
  made.driver = {13000, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "", {{"NVIDIA H200", 9, 0, 141ULL << 30U}}};
  made.file("/proc/driver/nvidia/version", kModule);
  made.file("/proc/driver/nvidia/params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\nTegraFlag: 0\n");
  made.file("/proc/self/status", "Name:\tkvroof\nCapEff:\t000001ffffffffff\n");
  made.file("/proc/12/comm", "bash\n");
  made.file("/usr/local/cuda/bin/nvcc");
  for (const char* name : {"libcupti.so.13", "libnvperf_host.so", "libcudart.so.13", "libcublasLt.so.13"}) {
    made.file(kToolkit + name);
  }
  made.cupti[kToolkit + "libcupti.so.13"] = 130001;
  made.machine.superuser = true;
}

}  // namespace

TEST_CASE("A machine with everything is ok in every line, and no line asks for anything") {
  MadeMachine made;
  make_whole(made);
  const Examination all = examine(made.machine, std::nullopt);
  CHECK(all.has_device);
  for (const Finding& finding : all.findings) {
    INFO(finding.item << ": " << finding.found);
    CHECK(finding.health == Health::kOk);
    CHECK(finding.remedy.empty());
  }
  CHECK(says(find(all, "driver").found, "CUDA 13.0, kernel module 580.65.06"));
  CHECK(says(find(all, "device 0").found, "NVIDIA H200, compute capability 9.0, 141.0 GiB"));
  CHECK(says(find(all, "CUPTI").found, "130001, " + kToolkit + "libcupti.so.13"));
}

TEST_CASE("On an empty machine every line that is not ok says what to do, and there is no device") {
  MadeMachine made;
  const Examination all = examine(made.machine, "this build has no CUDA", false);
  CHECK_FALSE(all.has_device);
  for (const Finding& finding : all.findings) {
    INFO(finding.item << ": " << finding.found);
    CHECK((finding.health == Health::kOk) == finding.remedy.empty());
  }
  CHECK(find(all, "driver").health == Health::kMissing);
  CHECK(says(find(all, "engine").remedy, "-DKVROOF_CUDA=ON"));
  CHECK(says(find(all, "CUPTI").remedy, "pip install nvidia-cuda-cupti"));
}

TEST_CASE("A container with the kernel module but without the driver's library is told to ask for GPUs") {
  MadeMachine made;
  made.file("/proc/driver/nvidia/version", kModule);
  const Finding driver = find(examine(made.machine, std::nullopt), "driver");
  CHECK(driver.health == Health::kMissing);
  CHECK(says(driver.found, "580.65.06, but no libcuda.so.1"));
  CHECK(says(driver.remedy, "--gpus all"));
}

TEST_CASE("A driver of CUDA 12 is too old, whatever it lists") {
  MadeMachine made;
  make_whole(made);
  made.driver.version = 12080;
  const Finding driver = find(examine(made.machine, std::nullopt), "driver");
  CHECK(driver.health == Health::kMissing);
  CHECK(says(driver.found, "CUDA 12.8"));
  CHECK(says(driver.remedy, "580 or newer"));
}

TEST_CASE("A driver that lists no device names the reason and the hiding variable") {
  MadeMachine made;
  make_whole(made);
  made.driver.devices.clear();
  made.driver.problem = "no CUDA-capable device is detected";
  CHECK(says(find(examine(made.machine, std::nullopt), "device").remedy, "/dev/nvidiactl"));
  made.file("/dev/nvidiactl");
  made.variables["CUDA_VISIBLE_DEVICES"] = "-1";
  const Examination all = examine(made.machine, std::nullopt);
  CHECK_FALSE(all.has_device);
  CHECK(says(find(all, "device").found, "no CUDA-capable device"));
  CHECK(says(find(all, "device").remedy, "CUDA_VISIBLE_DEVICES is '-1'"));
}

TEST_CASE("A variable that hides every device by being empty is named, other empty ones are as good as none") {
  MadeMachine made;
  make_whole(made);
  made.driver.devices.clear();
  made.file("/dev/nvidiactl");
  made.variables["CUDA_VISIBLE_DEVICES"] = "";
  CHECK(says(find(examine(made.machine, std::nullopt), "device").remedy, "CUDA_VISIBLE_DEVICES is '': unset it"));
  const kvroof::Machine here = kvroof::this_machine();
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(here.variable("CUDA_VISIBLE_DEVICES") == "");
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK_FALSE(here.variable("CUDA_VISIBLE_DEVICES").has_value());
  setenv("KVROOF_TEST_EMPTY", "", 1);
  CHECK_FALSE(here.variable("KVROOF_TEST_EMPTY").has_value());
}

TEST_CASE("A device that the engine has no kernels for is limited") {
  MadeMachine made;
  make_whole(made);
  made.driver.devices[0] = {"Tesla V100", 7, 0, 32ULL << 30U};
  const Examination all = examine(made.machine, "the GPU, Tesla V100, has compute capability 7.0");
  CHECK(all.has_device);
  CHECK(find(all, "device 0").health == Health::kLimited);
  CHECK(says(find(all, "engine").found, "capability 7.0"));
}

TEST_CASE("Counters are allowed by the driver's parameter, by CAP_SYS_ADMIN, or by CAP_PERFMON from driver 565 on") {
  MadeMachine made;
  make_whole(made);
  CHECK(says(counter_permission(made.machine).found, "CAP_SYS_ADMIN"));

  made.file("/proc/self/status", "CapEff:\t0000004000000000\n");  // bit 38 alone
  CHECK(says(counter_permission(made.machine).found, "CAP_PERFMON"));
  made.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31\n");
  CHECK(counter_permission(made.machine).health == Health::kLimited);

  made.file("/proc/self/status", "CapEff:\t0000000000000000\n");
  CHECK(says(counter_permission(made.machine).remedy, "--cap-add SYS_ADMIN"));  // root of a container
  made.machine.superuser = false;
  CHECK(says(counter_permission(made.machine).remedy, "NVreg_RestrictProfilingToAdminUsers=0"));

  made.file("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n");
  CHECK(says(counter_permission(made.machine).found, "every user"));
}

TEST_CASE("CUPTI is taken from the toolkit, from extras/CUPTI and from Python's packages, CUDA 12 has the wrong one") {
  MadeMachine made;
  const auto cupti = [&] { return find(examine(made.machine, std::nullopt), "CUPTI"); };
  made.file("/usr/local/cuda-12.8/lib64/libcupti.so.12");
  CHECK(says(cupti().found, "libcupti.so.12, which is of CUDA 12"));

  const std::string packaged = "/home/u/.local/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.13";
  made.variables["HOME"] = "/home/u";
  made.file(packaged);
  CHECK(says(cupti().found, "cannot be loaded"));
  made.cupti[packaged] = 130001;
  CHECK(cupti().health == Health::kOk);

  const std::string extras = "/opt/cuda/extras/CUPTI/lib64/libcupti.so.13";
  made.variables["CUDA_HOME"] = "/opt/cuda";
  made.file(extras);
  made.cupti[extras] = 140000;
  CHECK(says(cupti().remedy, "version 13xxxx is needed"));  // what comes first is what the recorder would load
  CHECK(find_library(made.machine, "libcupti.so.13") == std::vector<std::string>{extras, packaged});
}

TEST_CASE("A library in the Python environment whose python3 is on PATH is found, for a link too") {
  MadeMachine made;
  const std::string packages = "/opt/tool/.venv/lib/python3.12/site-packages/nvidia/";
  made.file(packages + "cu13/lib/libcublasLt.so.13");
  made.file(packages + "cublas/lib/libcublasLt.so.12");
  made.file("/usr/bin/python3.12");
  std::filesystem::create_directories(made.machine.root / "opt/tool/.venv/bin");
  made.variables["PATH"] = "bin:/usr/sbin:/opt/tool/.venv/bin/";
  CHECK(find_library(made.machine, "libcublasLt.so.13").empty());
  std::filesystem::create_symlink(made.machine.root / "usr/bin/python3.12",
                                  made.machine.root / "opt/tool/.venv/bin/python3");
  CHECK(find_library(made.machine, "libcublasLt.so.13") ==
        std::vector<std::string>{packages + "cu13/lib/libcublasLt.so.13"});
  CHECK(find_library(made.machine, "libcublasLt.so.12") ==
        std::vector<std::string>{packages + "cublas/lib/libcublasLt.so.12"});
}

TEST_CASE("Behind pyenv's shims are the libraries of its versions") {
  MadeMachine made;
  const std::string library = "/home/u/.pyenv/versions/3.12.4/lib/python3.12/site-packages/nvidia/cu13/lib/libx.so.13";
  made.file(library);
  made.file("/home/u/.pyenv/shims/python3");
  CHECK(find_library(made.machine, "libx.so.13").empty());
  made.variables["PATH"] = "/home/u/.pyenv/shims:/usr/bin";
  CHECK(find_library(made.machine, "libx.so.13") == std::vector<std::string>{library});
}

TEST_CASE("CONDA_PREFIX has libraries in its lib, and one of an older name is enough for cuBLASLt") {
  MadeMachine made;
  made.variables["CONDA_PREFIX"] = "/opt/conda";
  made.file("/opt/conda/lib/libcublasLt.so.12");
  const Finding found = find(examine(made.machine, std::nullopt), "cuBLASLt");
  CHECK(found.health == Health::kOk);
  CHECK(found.found == "/opt/conda/lib/libcublasLt.so.12");
}

TEST_CASE("Of a library's names one that is broken is named, and what the loader finds by name alone comes last") {
  MadeMachine made;
  made.variables["LD_LIBRARY_PATH"] = "/broken";
  made.file("/broken/libnone.so.2", "no library");
  const TakeLibrary take = [](void*, const std::string&) { return std::string(); };
  CHECK_THAT(open_library(made.machine, std::array{"libnone.so.3", "libnone.so.2"}, RTLD_NOW, take),
             Catch::StartsWith("/broken/libnone.so.2 cannot be loaded: "));
  CHECK_THAT(open_library(made.machine, std::array{"libnone.so.3"}, RTLD_NOW, take),
             Catch::StartsWith("libnone.so.3 was not found"));
  made.machine.root = "/";
  std::string last;
  const TakeLibrary by_name = [&](void*, const std::string& path) {
    last = path;
    return std::string(path.starts_with("/") ? "not by its path" : "");
  };
  CHECK(open_library(made.machine, std::array{"libnone.so.2", "libc.so.6"}, RTLD_NOW, by_name).empty());
  CHECK(last == "libc.so.6");
}

TEST_CASE("A library that several folders show by links comes once") {
  MadeMachine made;
  made.file("/usr/local/cuda-13.0/lib64/libcupti.so.13");
  std::filesystem::create_directory_symlink("cuda-13.0", made.machine.root / "usr/local/cuda");
  CHECK(find_library(made.machine, "libcupti.so.13") ==
        std::vector<std::string>{"/usr/local/cuda/lib64/libcupti.so.13"});
}

TEST_CASE("Other profilers are named with their process and how to end them") {
  MadeMachine made;
  make_whole(made);
  made.variables["CUDA_INJECTION64_PATH"] = "/opt/tool.so";
  made.file("/proc/77/comm", "nv-hostengine\n");
  std::vector<Finding> seen;
  for (const Finding& finding : examine(made.machine, std::nullopt).findings) {
    if (finding.item == "profilers") seen.push_back(finding);
  }
  REQUIRE(seen.size() == 2);
  CHECK(says(seen[0].remedy, "unset CUDA_INJECTION64_PATH"));
  CHECK(says(seen[1].found, "nv-hostengine runs (process 77)"));
  CHECK(says(seen[1].remedy, "dcgmi profile --pause"));
}
