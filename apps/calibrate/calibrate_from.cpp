#include "apps/calibrate/calibrate_from.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "analysis/device_names.hpp"
#include "analysis/published_metric.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/prediction/intervals.hpp"
#include "sim/cost/engine_profile.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/reader.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

void refuse_other_device(const std::string& where, const std::string& measured, const Device& device) {
  throw usage_error(fmt::format("{} was measured on {}, not on {}: a calibration is of one device", where, measured,
                                device.name));
}

bool kernel_of_16_bits(const PublishedSetting& setting) {
  return setting.deployment.weights.layer_bits == 16 && setting.deployment.weights.expert_bits == 16;
}

// Kernels of a table in the columns of validation/published.csv.
std::vector<KernelSample> samples_of_table(const std::string& path, const Device& device) {
  const std::vector<PublishedRow> rows = read_published_rows(path);
  const PublishedCatalog catalog(data_folder() / "catalog");
  std::vector<KernelSample> samples;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PublishedRow& row = rows[i];
    if (row.level != "kernel") continue;
    const std::string where = fmt::format("{}: row {}", path, row.id.empty() ? std::to_string(i + 1) : row.id);
    const auto setting = catalog.setting(row);
    if (!setting) throw usage_error(fmt::format("{}: {}", where, setting.error()));
    if (setting.value().device.name != device.name) refuse_other_device(where, row.gpu, device);
    const auto unit = per_second(row.unit);
    if (!unit) throw usage_error(fmt::format("{}: `{}` is no unit of time; expected s, ms or us", where, row.unit));
    if (!row.value || !(*row.value > 0)) throw usage_error(fmt::format("{}: it has no measured time", where));
    // Other types have starts and rates of their own, which the facts fitted here are not of.
    if (!kernel_of_16_bits(setting.value())) continue;
    const auto kernel = published_kernel(row, setting.value());
    if (!kernel) throw usage_error(fmt::format("{}: {}: {}", where, row.model, kernel.error()));
    const PublishedKind kind = kernel.value().kind;
    if (kind == PublishedKind::kElementwise || kind == PublishedKind::kStates) continue;  // no fact is fitted to them
    samples.push_back({kind == PublishedKind::kAttention ? KernelKind::kAttentionCall : KernelKind::kProduct,
                       static_cast<double>(kernel.value().bytes.value), kernel.value().flops, *row.value / *unit,
                       where});
  }
  if (samples.empty()) throw usage_error(fmt::format("{}: no row is a kernel (level kernel) of 16-bit types", path));
  return samples;
}

// Kernels of a trace whose engine said what it meant by them.
std::vector<KernelSample> samples_of_kernels(const KernelReader& reader) {
  std::vector<KernelSample> samples;
  reader.for_each_work([&](const WorkRow& row) {
    if (row.kind != WorkKind::kKernel || !row.meaning || row.own_ns() == 0) return;
    const KernelMeaning& meaning = *row.meaning;
    const auto weights = static_cast<double>(meaning.declared[Cause::kWeights]);
    const auto cache = static_cast<double>(meaning.declared[Cause::kKvRead]);
    // Norms and embeddings read weights as well, scores the cache.
    const bool product = weights > cache && meaning.flops > 0;
    if (!product && !(cache > 0 && meaning.operation == "attention")) return;
    samples.push_back({product ? KernelKind::kProduct : KernelKind::kAttention,
                       static_cast<double>(meaning.declared.total()), static_cast<double>(meaning.flops),
                       1e-9 * static_cast<double>(row.own_ns()),
                       fmt::format("step {}, {}", meaning.step, row.name)});
  });
  return samples;
}

// Why no rate follows from any of its kernels.
Error without_samples(const KernelReader& reader, const std::string& path) {
  bool declared = false;  // by operators of another framework
  reader.for_each_work([&](const WorkRow& row) {
    declared = declared || (row.meaning && row.meaning->step == kNoStep && row.meaning->declared.total() > 0);
  });
  const std::string why = declared
                              ? "operators of PyTorch declare bytes without saying which are weights and which are the "
                                "cache's, so no rate of either follows from their times"
                              : "no kernel has declared bytes and a time, so no rate follows from them";
  return usage_error(fmt::format("{}: {}", path, why))
      .note("`kvroof record --cupti trace` of the engine's own runs has both; a table of kernels with their shapes "
            "serves as well");
}

void require_recorded_on(const KernelReader& reader, const Device& device, const std::string& path) {
  for (const DeviceRecord& recorded : reader.devices()) {
    const auto name = catalog_name_of(recorded.name, data_folder() / "catalog");
    if (!name || *name != device.name) refuse_other_device(path, std::string(recorded.name), device);
  }
}

// Decode steps of a CPU run, whose engine counted their bytes.
KernelFit fit_run(const TraceReader& trace, Device& device, const std::string& source) {
  if (device.kind != DeviceKind::kCpu) {
    refuse_other_device(trace.path().string(), "a CPU (it holds no kernels of a GPU)", device);
  }
  std::vector<StepSample> samples;
  for (const StepRecord& step : trace.steps()) {
    if (step.phase != "decode" || step.end_ns <= step.start_ns) continue;
    samples.push_back({static_cast<double>(step.bytes[Cause::kWeights]),
                       static_cast<double>(step.bytes[Cause::kKvRead]),
                       1e-9 * static_cast<double>(step.end_ns - step.start_ns)});
  }
  const EngineProfile engine = default_engine_profile(DeviceKind::kCpu, data_folder() / "catalog");
  const auto layers = static_cast<double>(trace.manifest().layers.size());
  const auto us = [&](DeviceField f) { return device.value(f); };
  const double fixed = (layers * engine.linears_per_layer + 1) * us(DeviceField::kLinearT0Us) +
                       layers * (us(DeviceField::kAttentionFloorUs) + us(DeviceField::kElementwiseUs)) + engine.step_us;
  return fit_steps(device, samples, fixed * 1e-6, source);
}

}  // namespace

Device calibrated_from(const std::string& path, const std::string& base, std::vector<KernelFit>& fits) {
  Device device = find_device(base, data_folder() / "catalog");
  const std::string source = fmt::format("kvroof calibrate from {}", fs::path(path).filename().string());
  if (!fs::is_directory(path)) {
    fits = fit_kernels(device, samples_of_table(path, device), source);
    return device;
  }
  const TraceReader trace = TraceReader::open(path);
  const KernelReader reader = KernelReader::open(path);
  if (reader.counts().kernels == 0) {
    fits = {fit_run(trace, device, source)};
    return device;
  }
  require_recorded_on(reader, device, path);
  const std::vector<KernelSample> samples = samples_of_kernels(reader);
  if (samples.empty()) throw without_samples(reader, path);
  fits = fit_kernels(device, samples, source);
  return device;
}

}  // namespace kvroof
