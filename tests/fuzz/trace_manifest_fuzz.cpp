// Fuzz target: any bytes as manifest.json. What is accepted survives being written and read again.
#include <cstdint>
#include <string_view>

#include "traces/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = kvroof::manifest_from_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!manifest) {
    kvroof::check(!manifest.error().empty(), "a refusal says why");
    return 0;
  }
  for (const auto& layer : manifest.value().layers) {
    kvroof::check(layer.kv_heads > 0 && layer.query_heads % layer.kv_heads == 0, "query heads share KV heads evenly");
  }
  const std::string text = kvroof::manifest_to_json(manifest.value());
  const auto again = kvroof::manifest_from_json(text);
  kvroof::check(again.ok() && kvroof::manifest_to_json(again.value()) == text, "writing and reading change nothing");
  return 0;
}
