#include "kernels/cuda/calibration.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/device_activity.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

ActivityApi* cuda::device_activity() { return nullptr; }

bool cuda_is_built() { return false; }

std::optional<std::string> cuda_device_problem() { return "this build has no CUDA"; }

bool cuda_device_is_there() { return false; }

std::optional<std::string> cuda_model_problem(const ModelConfig&, DType, KvType) { return std::nullopt; }

std::optional<std::string> cuda_policy_problem(const PolicySpec&) { return std::nullopt; }

std::unique_ptr<Backend> make_cuda_backend(const Model&, const PolicySpec&, std::uint64_t, KvType, LinearBy,
                                           const ElementProgress&) {
  throw Error(*cuda_device_problem(), ExitCode::kNeedsDevice);
}

CudaCalibration calibrate_cuda(const std::function<void(unsigned, unsigned)>&) {
  throw Error(*cuda_device_problem(), ExitCode::kNeedsDevice);
}

CudaBoard cuda_board() { return {}; }

}  // namespace kvroof
