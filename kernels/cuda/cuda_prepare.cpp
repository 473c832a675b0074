// What becomes of q, k and v between their projections and attention: clamp, norm, rotation, the new rows of the cache.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_tables.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {
namespace {

HeadNorm head_norm_of(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone: return HeadNorm::kNone;
    case QkNorm::kHead: return HeadNorm::kHead;
    case QkNorm::kEachHead: return HeadNorm::kEachHead;
    case QkNorm::kWhole: return HeadNorm::kWhole;
  }
  check(false, "kernels know every norm of q and k");
  return HeadNorm::kNone;
}

}  // namespace

void CudaBackend::prepare(const AttentionInput& input, std::span<const DeviceCache* const> caches,
                          std::span<const std::uint32_t> slot_of, bool first) {
  std::vector<CacheSlots> slots;
  for (const DeviceCache* cache : caches) cache->append_slots(slots);
  DeviceTables tables(stream_, tables_);
  const std::size_t slots_at = tables.add(std::span<const CacheSlots>(slots));
  const std::size_t slot_of_at = tables.add(slot_of);
  tables.send();
  PrepareArguments a = prepare_arguments(input);
  a.slots = tables.at<CacheSlots>(slots_at);
  if (!slot_of.empty()) a.slot_of = tables.at<std::uint32_t>(slot_of_at);
  const std::uint64_t rows = std::uint64_t{input.tokens} * shape().kv_heads * a.copies;
  DeclaredWork work = moved(Cause::kKvWrite, rows * row_bytes());
  if (first) work.bytes.add(Cause::kWeights, head_norm_bytes(input.layer));
  const Launch launch(launches_, {"append", layer_number(input.layer), Cause::kKvWrite, work});
  run_prepare(stream_, weights_->type(), format_.type, a);
}

std::uint64_t CudaBackend::head_norm_bytes(LayerId layer) const {
  const LayerWeights& w = model_.layer(layer);
  std::uint64_t bytes = 0;
  for (const Norm* norm : {&w.q_norm, &w.k_norm, &w.latent.kv_norm}) bytes += norm->scale.bytes() + norm->bias.bytes();
  return bytes;
}

PrepareArguments CudaBackend::prepare_arguments(const AttentionInput& input) {
  const ModelOptions& options = model_.config.options;
  const DeviceLayer& w = weights_->layer(input.layer);
  PrepareArguments a;
  a.tokens = input.tokens;
  const bool rotates = input.cos_sin != nullptr;
  if (shape().latent()) {
    a.q = {input.q, shape().heads, shape().latent_rope_dim, nullptr, nullptr, rotates};
    a.absorbed = shape().latent_rank;
    const DeviceNorm& norm = w.latent.kv_norm;
    a.k = {input.k, 1, shape().head_dim, norm.scale, norm.bias, rotates, a.absorbed, a.absorbed};
    a.norm = HeadNorm::kHead;
    a.norm_eps = options.latent_norm_eps;
  } else {
    a.q = {input.q, shape().heads, shape().head_dim, w.q_norm.scale, w.q_norm.bias, rotates};
    a.k = {input.k, shape().kv_heads, shape().head_dim, w.k_norm.scale, w.k_norm.bias, rotates};
    a.v = {input.v, shape().kv_heads, shape().v_head_dim, nullptr, nullptr, false};
    a.norm = head_norm_of(shape().qk_norm);
    a.norm_eps = options.norm_eps;
    a.norm_last = options.norms_after_rotary;
  }
  a.clip = options.qkv_clip;
  a.norm_mode = shape().norm == NormKind::kRms ? NormMode::kRms : NormMode::kLayer;
  a.norm_offset = options.norm_offset;
  a.query_scale = options.query_scale;
  a.adjacent = rotates && options.rotary[options.layers[input.layer.value].rotary].style == RotaryStyle::kAdjacentPairs;
  a.rotary_pairs = input.rotary_pairs;
  a.cos_sin = input.cos_sin;
  a.positions = input.positions;
  a.copies = active_[0]->layers[input.layer.value].policy.storage_heads() / shape().kv_heads;
  a.key_row_bytes = format_.key_row_bytes();
  a.value_row_bytes = format_.value_row_bytes();
  a.q_out = input.queries;
  if (recorder_ != nullptr) {
    const std::size_t keys = std::size_t{2} * input.tokens * shape().kv_heads * shape().head_dim;
    new_rows_.reserve(keys + std::size_t{2} * input.tokens * shape().kv_heads * format_.stored_value_dim());
    a.k_copy = new_rows_.at();
    a.v_copy = new_rows_.at(keys);
  }
  return a;
}

}  // namespace kvroof::cuda
