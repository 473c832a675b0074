#include "kernels/engine/trace_recorder.hpp"

#include <sys/utsname.h>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

std::string host_name() {
  utsname system{};
  if (uname(&system) != 0) return "unknown";
  return fmt::format("{} {} {} {}", system.nodename, system.sysname, system.release, system.machine);
}

RotaryInfo rotary_info(const RotaryRule& rule) {
  RotaryInfo info;
  info.style = rule.style == RotaryStyle::kHalfSplit ? "half_split" : "adjacent_pairs";
  info.dims = rule.dims;
  info.theta = rule.theta;
  info.magnitude = rule.magnitude;
  if (rule.inverse_frequencies != plain_inverse_frequencies(rule.theta, rule.dims)) {
    info.inverse_frequencies = rule.inverse_frequencies;
  }
  info.long_from = rule.long_from;
  info.long_inverse_frequencies = rule.long_inverse_frequencies;
  return info;
}

TraceLayer trace_layer(const Model& model, std::uint32_t index) {
  const ModelConfig& config = model.config;
  const LayerRule& rule = config.options.layers[index];
  TraceLayer layer;
  layer.query_heads = config.shape.heads;
  layer.kv_heads = config.shape.kv_heads;
  layer.k_width = config.shape.head_dim;
  layer.v_width = config.shape.v_head_dim;
  layer.scale = rule.scale;
  layer.softcap = rule.softcap;
  layer.window = config.shape.window(index);
  layer.alibi_slopes = config.options.alibi_slopes;
  layer.alibi_rounded_scale = config.options.alibi_rounded_scale;
  if (!model.weights.layers.empty()) {  // a model may be its configuration alone
    const std::span<const float> sinks = model.layer(LayerId(index)).attention_sinks();
    layer.attention_sinks.assign(sinks.begin(), sinks.end());
  }
  if (!config.options.rotary.empty() && config.options.rotary[rule.rotary].dims > 0) {
    layer.rotary = rotary_info(config.options.rotary[rule.rotary]);
    layer.rotary.first = config.shape.latent_rank;
  }
  return layer;
}

}  // namespace

TraceManifest make_manifest(const Model& model, const RecordedRun& run) {
  const ModelConfig& config = model.config;
  TraceManifest manifest;
  manifest.tool_version = run.tool_version;
  manifest.model_name = config.shape.name;
  manifest.model_path = run.model_path;
  manifest.model_shape_json = shape_to_json(config.shape);
  manifest.backend = run.backend;
  manifest.policy = run.policy;
  manifest.seed = run.seed;
  manifest.weight_type = run.weight_type;
  manifest.kv_type = run.kv_type.rows();
  if (run.kv_type.quantised()) manifest.cache_type = run.kv_type;
  manifest.command_line = run.command_line;
  manifest.host = host_name();
  for (std::uint32_t i = 0; i < config.shape.layers; ++i) manifest.layers.push_back(trace_layer(model, i));
  for (std::uint32_t i = 0; i < run.prompts.size(); ++i) {
    manifest.sequences.push_back({i, run.prompts[i], run.requested_new_tokens, 0, "unknown"});
  }
  return manifest;
}

TraceManifest without_attention(TraceManifest manifest) {
  manifest.source = "profile";
  manifest.layers.clear();
  manifest.sequences.clear();
  return manifest;
}

TraceRecorder::TraceRecorder(const std::filesystem::path& path, TraceManifest manifest)
    : captures_(has_attention(manifest)), writer_(path, std::move(manifest)) {}

void TraceRecorder::rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
                         std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v) {
  writer_.add_rows(sequence, layer, first, count, q, k, v);
}

void TraceRecorder::eviction(const EvictionRecord& eviction) { writer_.add_eviction(eviction); }

void TraceRecorder::tokens(std::uint32_t sequence, std::uint32_t first, std::span<const std::int64_t> ids,
                           std::span<const float> logprobs) {
  if (captures_) writer_.add_tokens(sequence, first, ids, logprobs);
}

void TraceRecorder::end_step(StepRecord step) {
  step.step = steps_++;
  step.experts = std::exchange(experts_, 0);
  writer_.end_step(step);
}

void TraceRecorder::stopped(std::uint32_t sequence, std::string_view reason) {
  if (captures_) writer_.set_stop_reason(sequence, std::string(reason));
}

}  // namespace kvroof
