#include "kernels/engine/output_projections.hpp"

#include <filesystem>
#include <memory>
#include <optional>

#include "kernels/engine/elements.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

Model load(const TraceManifest& manifest) {
  constexpr std::string_view kWhy = "a policy that weighs v by the model's output projection reads it from there";
  if (manifest.model_path.empty()) {
    throw usage_error(fmt::format("the trace names no model folder, and {}", kWhy));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(manifest.model_path, ignored)) {
    throw usage_error(
        fmt::format("{}: the model folder that the trace names is not here, and {}", manifest.model_path, kWhy));
  }
  Model model = open_model(manifest.model_path, manifest.weight_type);
  const std::size_t layers = model.config.shape.layers;
  if (layers != manifest.layers.size()) {
    throw usage_error(fmt::format("{}: a model of {} layers; expected the {} of the trace that names it",
                                  manifest.model_path, layers, manifest.layers.size()));
  }
  make_output_projections(model);
  return model;
}

}  // namespace

void make_output_projections(Model& model) {
  for (LayerWeights& layer : model.weights.layers) {
    if (!layer.o.empty()) make_elements(layer.o.matrix);
  }
}

std::function<RowsView(LayerId)> output_projections_of(const TraceManifest& manifest) {
  return [manifest, model = std::shared_ptr<const Model>()](LayerId layer) mutable {
    if (model == nullptr) model = std::make_shared<const Model>(load(manifest));
    return model->layer(layer).o.matrix.view();
  };
}

}  // namespace kvroof
