#include "kernels/cuda/cuda.hpp"

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_problem.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostHead = 256;

// How the device keeps a quantised cache of such a type; nothing: not at all.
std::optional<cuda::Stored> stored_as(KvType kv) {
  if (kv == KvType::kInt8) return cuda::Stored::kInt8;
  if (kv == KvType::kInt4) return cuda::Stored::kInt4;
  return std::nullopt;
}

}  // namespace

bool cuda_is_built() { return true; }

std::optional<std::string> cuda_device_problem() {
  cuda::DeviceFacts facts;
  const char* why = cuda::find_device(facts);
  if (why == nullptr) return std::nullopt;
  return cuda::device_problem(facts, why);
}

bool cuda_device_is_there() {
  cuda::DeviceFacts facts;
  static_cast<void>(cuda::find_device(facts));
  return facts.devices > 0;
}

std::optional<std::string> cuda_model_problem(const ModelConfig& config, DType weights, KvType kv) {
  const ModelShape& shape = config.shape;
  if (weights == DType::kF32) return "weights of 32 bits; `--dtype bf16` or `--dtype f16` converts them";
  if (kv == DType::kF32) return "a KV cache of 32 bits; `--kv bf16` or `--kv f16` rounds it";
  if (kv.quantised() && !stored_as(kv)) {
    return fmt::format("a KV cache of {}; of quantised ones it has int8 and int4", name_of(kv));
  }
  const StateLayers& states = shape.state;
  if (states.key_dim > cuda::kMostStateKeys) return fmt::format("states of keys of {} elements", states.key_dim);
  if (states.layers > 0 && (shape.norms_per_layer != 2 || shape.latent() ||
                            config.options.residual != ResidualOrder::kSequential)) {
    return "layers that hold a state beside latent attention, parallel residuals or other than two norms a layer";
  }
  if (shape.experts > 0 && config.options.residual == ResidualOrder::kParallel) return "experts beside attention";
  if (shape.experts > cuda::kMostExperts) return fmt::format("mixtures of {} experts", shape.experts);
  const auto fits = [&](std::uint32_t size, std::uint32_t most) {
    return size % 8 == 0 && size <= (shape.latent() ? most : kMostHead);
  };
  if (!fits(shape.head_dim, cuda::kLatentWidth)) return fmt::format("heads of {} elements", shape.head_dim);
  if (!fits(shape.v_head_dim, cuda::kLatentValue)) return fmt::format("heads of {} elements", shape.v_head_dim);
  for (const std::uint32_t size : {shape.hidden, shape.embedding_width, shape.ffn, shape.expert_ffn,
                                   shape.shared_expert_ffn, shape.latent_q_rank, shape.latent_nope_dim,
                                   shape.latent_v_dim, 2 * states.key_heads * states.key_dim,
                                   states.heads * states.value_dim}) {
    if (size % 8 != 0) return fmt::format("rows of {} elements, which is no multiple of 8", size);
  }
  return std::nullopt;
}

std::optional<std::string> cuda_policy_problem(const PolicySpec& policy) {
  return unserved(policy, {HostNeed::kTokenKinds, HostNeed::kOutputProjection});
}

std::unique_ptr<Backend> make_cuda_backend(const Model& model, const PolicySpec& policy, std::uint64_t seed,
                                           KvType kv_type, LinearBy linear, const ElementProgress& progress) {
  cuda::CudaBackendOptions options{policy, seed, kv_type == DType::kF16 ? DType::kF16 : DType::kBF16};
  options.linear = linear;
  options.quantised = stored_as(kv_type);
  options.progress = progress;
  return std::make_unique<cuda::CudaBackend>(model, std::move(options));
}

}  // namespace kvroof
