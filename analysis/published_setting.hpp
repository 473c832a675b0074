// What a published row ran, in the catalog's terms: model, device, engine, layout, batch and lengths.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/published.hpp"
#include "analysis/published_names.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

// A part of a decoder layer, and the head behind the last one.
enum class LayerOperator : std::uint8_t { kQkv, kAttentionOut, kGateUp, kDown, kHead, kAttention, kElementwise };

// More than any product, model or head count has; a number above it is a mistake of the file.
inline constexpr unsigned kMostPublishedHeads = 1024, kMostPublishedWidth = 4096;

struct PublishedSetting {
  ModelShape shape;
  Device device;
  EngineProfile engine;
  Deployment deployment = TrafficTypes{};
  std::uint32_t devices = 1;
  std::uint32_t replicas = 1;  // of the deployment, which share the requests (data parallelism)
  std::optional<std::uint32_t> batch;  // nothing: as many as fit, or as many as arrive
  bool saturated = false;              // all requests queued at once
  bool open_loop = false;              // requests arrive whatever the server does
  std::optional<double> arrivals;      // of them, a second
  std::uint32_t input = 1, output = 1;
  bool equal_lengths = false;         // of all prompts and of all answers, as far as the row says
  std::optional<LayerOperator> part;  // of the model, by itself
};

// Reads rows with the devices, models and engines of the catalog, each of which is read once.
class PublishedCatalog {
 public:
  explicit PublishedCatalog(std::filesystem::path catalog);
  // The setting, or why there is none.
  [[nodiscard]] Result<PublishedSetting> setting(const PublishedRow& row) const;

 private:
  struct Names;  // published_setting.cpp
  std::shared_ptr<Names> names_;
};

}  // namespace kvroof
