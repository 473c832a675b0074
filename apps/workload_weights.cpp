#include "apps/workload_weights.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/values.hpp"
#include "sim/core/suggest.hpp"
#include "sim/model/stored_format.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

// How the weights of `--model` are stored where the name of a checkpoint, its config.json or the catalog says that it
// is not in 16 bits. Names are looked up as find_model_shape() does.
std::optional<WeightFormat> stored_format(const Arguments& arguments, const ModelShape& model) {
  const std::string& name = arguments.get<std::string>("model");
  const fs::path catalog = data_folder() / "catalog";
  if (name == model.name && std::ranges::count(catalog_model_names(catalog), name) > 0) {
    return parse_weight_format(stored_format_of(name, catalog));
  }
  std::error_code error;
  if (fs::exists(name, error)) return parse_weight_format(stored_format_of(fs::path(name)));
  if (const auto format = format_in_name(fs::path(name).filename().string())) return format;
  return parse_weight_format(stored_format_of(model.name, catalog));
}

}  // namespace

std::vector<WeightFormat> weight_formats_of(const Arguments& arguments, WorkloadRequest& request) {
  const bool keeps = !request.is_own_engine();
  const auto stored = stored_format(arguments, request.model);
  const WeightFormat own = keeps && stored ? *stored : plain_format(request.model.weight_type);
  if (!arguments.has("dtype")) {
    request.stored_format = stored && stored->quantised() ? std::string(stored->name) : std::string();
    request.keeps_stored = keeps;
    return {own};
  }
  const std::string& text = arguments.get<std::string>("dtype");
  if (text == "auto") {
    std::vector<WeightFormat> formats = {own};
    for (const char* other : {"fp8", "int4"}) {
      if (own.name != other) formats.push_back(*parse_weight_format(other));
    }
    return formats;
  }
  std::vector<WeightFormat> formats;
  for (const std::string& item : split_list("dtype", text)) {
    const auto format = parse_weight_format(item);
    if (!format) {
      std::vector<std::string> known = {"bf16", "f16", "f32"};
      for (const WeightFormat& f : weight_formats()) known.emplace_back(f.name);
      throw usage_error(fmt::format("--dtype {}: no such type of weights{}", item, did_you_mean(item, known)))
          .note("known: " + join(known) + "; auto tries the model's own, fp8 and int4");
    }
    formats.push_back(*format);
  }
  return formats;
}

}  // namespace kvroof
