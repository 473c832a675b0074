#include "apps/prediction/workload_weights.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/values.hpp"
#include "sim/core/suggest.hpp"
#include "sim/model/stored_format.hpp"

namespace fs = std::filesystem;

namespace kvroof {

namespace {

// What the file says that is meant by a path or by the name of a bundled model; nothing where there is none.
std::optional<StoredFormat> format_of_file(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error)) return stored_format_of(fs::path(name));
  const auto bundled = bundled_model(name, data_folder() / "catalog");
  return bundled ? std::optional(stored_format_of(*bundled)) : std::nullopt;
}

}  // namespace

std::optional<WeightFormat> stored_format(const std::string& name, const ModelShape& model) {
  const fs::path catalog = data_folder() / "catalog";
  if (name == model.name && std::ranges::count(catalog_model_names(catalog), name) > 0) {
    return parse_weight_format(stored_format_of(name, catalog));
  }
  if (const auto stored = format_of_file(name)) return weight_format_of(*stored);
  if (const auto format = format_in_name(fs::path(name).filename().string())) return format;
  return parse_weight_format(stored_format_of(model.name, catalog));
}

WeightFormat weight_format_value(const std::string& text) {
  if (const auto format = parse_weight_format(text)) return *format;
  std::vector<std::string> known = {"bf16", "f16", "f32"};
  for (const WeightFormat& f : weight_formats()) known.emplace_back(f.name);
  throw usage_error(fmt::format("--dtype {}: no such type of weights{}", text, did_you_mean(text, known)))
      .note("known: " + join(known));
}

namespace {

// Of a checkpoint that is stored in a plain type, what the engine runs it in.
DType run_type(const WorkloadRequest& request) {
  const DType stored = request.model.weight_type;
  if (stored != DType::kF32 || !request.engine || !request.engine->halves_float32) return stored;
  return request.engine->bf16_of_float32 ? DType::kBF16 : DType::kF16;
}

}  // namespace

std::vector<WeightFormat> weight_formats_of(const Arguments& arguments, WorkloadRequest& request) {
  if (arguments.has("dtype") && arguments.get<std::string>("dtype") != "auto") {
    std::vector<WeightFormat> formats;
    for (const std::string& item : split_list("dtype", arguments.get<std::string>("dtype"))) {
      formats.push_back(weight_format_value(item));
    }
    return formats;
  }
  const bool keeps = !request.is_own_engine();
  const auto stored = stored_format(arguments.get<std::string>("model"), request.model);
  const WeightFormat own = keeps && stored ? *stored : plain_format(run_type(request));
  if (!arguments.has("dtype")) {
    request.stored_format = stored && stored->quantised() ? std::string(stored->name) : std::string();
    request.keeps_stored = keeps;
    request.stored_cache = format_of_file(arguments.get<std::string>("model")).value_or(StoredFormat{}).cache;
    request.keeps_cache = keeps && request.engine->takes_stored_cache && !request.stored_cache.empty();
    request.halved = !stored && run_type(request) != request.model.weight_type;
    return {own};
  }
  std::vector<WeightFormat> formats = {own};
  for (const char* other : {"fp8", "int4"}) {
    if (own.name != other) formats.push_back(*parse_weight_format(other));
  }
  return formats;
}

}  // namespace kvroof
