// Model shapes as JSON; model_shape.hpp has the text form.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/model/model_shape.hpp"

namespace kvroof {

// An object with the sizes of a model, as shape_from_json() of a text.
Result<ModelShape> shape_from_json(const nlohmann::json& in);

}  // namespace kvroof
