// kvroof calibrate: a device file of what this machine, a recorded run or a table of kernels measured.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/calibrate/calibrate_cpu.hpp"
#include "apps/calibrate/calibrate_cuda.hpp"
#include "apps/calibrate/calibrate_from.hpp"
#include "apps/calibrate/calibration_file.hpp"
#include "apps/catalog/device_facts.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "kernels/cuda/cuda.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;
using F = DeviceField;

std::string_view title_of(KernelKind kind) {
  constexpr std::array<std::string_view, 3> kTitles = {"matrix products", "attention", "attention calls by themselves"};
  return kTitles[static_cast<std::size_t>(kind)];
}

// What each kind of kernel said, on stderr: the file is the result.
void print_fits(const std::vector<KernelFit>& fits, bool of_run) {
  for (const KernelFit& fit : fits) {
    const std::string_view what = of_run ? "decode steps" : title_of(fit.kind);
    std::vector<std::string> facts;
    for (const F field : fit.facts) facts.emplace_back(device_fields()[static_cast<std::size_t>(field)].key);
    if (!fit.refused.empty()) {
      const std::string set = facts.empty() ? "nothing" : join(facts) + " alone";
      say("{}: {} is set: {}\n", what, set, fit.refused);
      continue;
    }
    say("{}: {} samples set {}; {} off by {:.1f} % on average\n", what, fit.samples, join(facts),
        of_run ? "they are" : "every other one, fitted to the rest, is", 100 * fit.test_error);
    if (!fit.no_matmul.empty()) say("{}: matmul_fraction is not set: {}\n", what, fit.no_matmul);
  }
}

void require_facts(const std::vector<KernelFit>& fits, const std::string& of, const Device& device) {
  if (std::any_of(fits.begin(), fits.end(), [](const KernelFit& f) { return !f.facts.empty(); })) return;
  throw Error(fmt::format("{}: its samples determine no fact of {}", of, device.name));
}

int run_from(const Arguments& arguments) {
  const auto& path = arguments.get<std::string>("from");
  // What an environment for all verbs says of it is no mistake.
  const char* const of_all = std::getenv("KVROOF_BACKEND");
  if (arguments.has("backend") && (of_all == nullptr || arguments.get<std::string>("backend") != of_all)) {
    throw usage_error("--from and --backend: a calibration is fitted to a file, or measures this machine");
  }
  if (!arguments.has("device")) {
    throw usage_error("--from needs --device: the device that was measured, whose other facts stay as they are");
  }
  std::vector<KernelFit> fits;
  const Device device = calibrated_from(path, arguments.get<std::string>("device"), fits);
  print_fits(fits, device.kind == DeviceKind::kCpu);
  require_facts(fits, path, device);
  if (arguments.has("out") || format_of(arguments) == Format::kTable) write_result(arguments, calibration_file(device));
  if (format_of(arguments) == Format::kJson) fmt::print("{}", format_json_rows(device_facts(device)));
  if (format_of(arguments) == Format::kCsv) fmt::print("{}", format_csv(device_facts(device)));
  return 0;
}

// What to measure, and what the catalog or a file says of it.
struct Target {
  bool cuda = false;
  std::optional<std::string> base;  // of a GPU: --device
};

Target target_of(const Arguments& arguments) {
  const auto text = [&](const char* option) {
    return arguments.has(option) ? arguments.get<std::string>(option) : std::string();
  };
  const std::string backend = text("backend"), device = text("device");
  // `fast` is the back end that the CPU is measured with, and what an environment for all verbs may say.
  const std::vector<std::string> known = {"cpu", "cuda", "fast"};
  if (!backend.empty() && std::find(known.begin(), known.end(), backend) == known.end()) {
    throw usage_error(fmt::format("--backend {}: calibrate measures cpu or cuda{}", backend,
                                  did_you_mean(backend, known)));
  }
  const bool cpu = backend == "cpu" || backend == "fast";
  const auto contradiction = [&](const char* what) {
    return usage_error(fmt::format("--device {} is a {}, which --backend {} does not measure", device, what, backend));
  };
  if (device == "cpu") {
    if (backend == "cuda") throw contradiction("CPU");
    return {};
  }
  if (!device.empty()) {
    if (find_device(device, data_folder() / "catalog").kind == DeviceKind::kCpu) {
      throw usage_error(fmt::format("--device {} is a CPU: `--device cpu` measures this one anew", device));
    }
    if (cpu) throw contradiction("GPU");
  } else if (cpu || (backend.empty() && cuda_device_problem())) {
    return {};
  }
  if (const auto problem = cuda_device_problem()) {
    const std::string asked = device.empty() ? "--backend cuda" : "--device " + device;
    throw Error(fmt::format("{}: {}", asked, *problem), ExitCode::kNeedsDevice)
        .note("--from F fits a device to tables of kernels and to recorded traces, without the device");
  }
  return {true, device.empty() ? std::nullopt : std::optional(device)};
}

// -o is the device file, whatever is printed.
int write_calibration(const Arguments& arguments, const Device& device, const std::string& curves,
                      const std::function<void(nlohmann::ordered_json&)>& add_curves) {
  const std::string file = calibration_file(device) + curves;
  const Format format = format_of(arguments);
  if (arguments.has("out") || format == Format::kTable) write_result(arguments, file);
  if (format == Format::kJson) {
    nlohmann::ordered_json json = {{"device", device.name}, {"title", device.title}};
    json["facts"] = nlohmann::ordered_json::parse(format_json_rows(device_facts(device)));
    add_curves(json);
    fmt::print("{}\n", json.dump(2));
  }
  if (format == Format::kCsv) fmt::print("{}", format_csv(device_facts(device)));
  return 0;
}

// What was measured, where no facts follow from it: the GPU may be lent for one run.
void print_unfitted(const Arguments& arguments, const Device& device, const CudaCalibration& c) {
  if (format_of(arguments) != Format::kJson) {
    say("{}", cuda_curves(c, device));
    return;
  }
  nlohmann::ordered_json json = {{"device", device.name}, {"title", device.title}, {"facts", nullptr}};
  add_cuda_curves(json, c);
  fmt::print("{}\n", json.dump(2));
}

int run_cuda(const Arguments& arguments, const std::optional<std::string>& base) {
  Device device = calibrated_device(cuda_board(), base);
  Progress progress(arguments, "calibrating");
  const CudaCalibration c = calibrate_cuda([&](unsigned done, unsigned total) { progress.at(done, total); });
  try {
    const std::vector<KernelFit> fits = fit_calibration(device, c);
    print_fits(fits, false);
    require_facts(fits, "the kernels of " + c.device, device);
  } catch (const Error&) {
    print_unfitted(arguments, device, c);
    throw;
  }
  if (!c.no_library.empty()) say("our own kernels made products of many tokens: {}\n", c.no_library);
  if (c.cut > 0) say("{} cut: no time or no memory was left\n", counted(c.cut, "measurement"));
  return write_calibration(arguments, device, cuda_curves(c, device),
                           [&](nlohmann::ordered_json& json) { add_cuda_curves(json, c); });
}

int run_cpu(const Arguments& arguments) {
  Progress progress(arguments, "calibrating");
  const auto measure = [&] {
    return calibrate_cpu(arguments.threads, [&](unsigned done, unsigned total) { progress.at(done, total); });
  };
  const CpuCalibration c = [&] {
    try {
      return measure();
    } catch (const Error& busy) {  // others may have gone meanwhile
      say("{}; measuring once more\n", busy.what());
      return measure();
    }
  }();
  return write_calibration(arguments, cpu_device(c), cpu_curves(c),
                           [&](nlohmann::ordered_json& json) { add_cpu_curves(json, c); });
}

int run_calibrate(const Arguments& arguments) {
  if (arguments.has("from")) return run_from(arguments);
  const Target target = target_of(arguments);
  return target.cuda ? run_cuda(arguments, target.base) : run_cpu(arguments);
}

void describe_calibrate(po::options_description_easy_init add) {
  add("backend", po::value<std::string>(), "what to measure: cpu | cuda (default: cuda where a GPU can be used)");
  add("device", po::value<std::string>(),
      "cpu; or the GPU that is here or, with --from, that was measured: a name or a file, whose other facts stay");
  add("from", po::value<std::string>(), "fit to these measurements instead: a .csv of kernels, or a recorded trace");
}

}  // namespace

Command calibrate_command() {
  return {"calibrate",
          "measure this machine's GPU or CPU, or fit a device to recorded kernels, and write it as a device file",
          "[--backend cuda|cpu] [--from F --device D] [-o F]",
          "  kvroof calibrate -o mine.yaml\n"
          "  kvroof calibrate --backend cpu -o cpu.yaml\n"
          "  kvroof calibrate --backend cuda --device h200.yaml -o mine.yaml\n"
          "  kvroof calibrate --from kernels.csv --device h100-sxm -o mine.yaml\n"
          "  kvroof calibrate --from run.kvt --device cpu.yaml -o fitted.yaml\n"
          "  kvroof calibrate --format json\n"
          "  kvroof replay run.kvt --policy full,h2o --budget 0.5 --device cpu.yaml",
          describe_calibrate,
          run_calibrate};
}

}  // namespace kvroof
