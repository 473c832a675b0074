// The types of weights that a workload is asked about.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/prediction/workload.hpp"

namespace kvroof {

// How the weights of a model are stored where the name of a checkpoint, its config.json, its GGUF file or the catalog
// says that it is not in 16 bits; nothing where they do not. `name` is what find_model_shape() found `model` by.
std::optional<WeightFormat> stored_format(const std::string& name, const ModelShape& model);

// A type of weights by any of its names. Throws Error (usage) with "did you mean".
WeightFormat weight_format_value(const std::string& text);

// Those of --dtype, else the model's own, of which the request is told: engines keep weights as a checkpoint is stored,
// and kvroof's own runs all of them in 16 bits. The request has its model and engine. Throws Error (usage) with "did
// you mean".
std::vector<WeightFormat> weight_formats_of(const Arguments& arguments, WorkloadRequest& request);

}  // namespace kvroof
