// Typed, range-checked access to the keys of a Hugging Face config.json for the parsers of families.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// The first thing that is wrong is remembered, later reads go on with harmless values, and the family's parser asks
// once at its end: `if (fields.failed()) return fields.failure();`. An absent key and a null mean the same.
class ConfigFields {
 public:
  // Fails at once (see failed()) unless `text` is a JSON object.
  explicit ConfigFields(std::string_view text);
  ~ConfigFields();
  ConfigFields(const ConfigFields&) = delete;
  ConfigFields& operator=(const ConfigFields&) = delete;

  [[nodiscard]] bool has(std::string_view key) const;
  // A size in [1, most]; required unless there is a fallback.
  std::uint32_t size(std::string_view key, std::optional<std::uint32_t> fallback = {}, std::uint32_t most = 1U << 24);
  // A finite number above 0.
  double positive(std::string_view key, double fallback);
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // The value has to be one of these (or absent), because nothing else is built.
  void only(std::string_view key, std::initializer_list<std::string_view> allowed, std::string_view why);
  // Token ids under a key: a number, a list of numbers, or none.
  std::vector<std::int64_t> ids(std::string_view key, std::vector<std::int64_t> fallback);
  // torch_dtype or dtype: f32, f16 or bf16; f32 when absent.
  DType weight_type();
  // Refuses a key that changes the arithmetic in a way that is not built, unless it is absent.
  void refuse(std::string_view key, std::string_view why);
  // rope_theta, at the top or in rope_parameters; refuses every scaled rotary embedding, naming key and value.
  double plain_rope_theta(double fallback);

  void fail(std::string message);
  [[nodiscard]] bool failed() const { return !problem_.empty(); }
  [[nodiscard]] Failure failure() const { return Failure{problem_}; }

 private:
  struct Json;
  void check_unscaled(std::string_view key);

  std::unique_ptr<Json> json_;
  std::string problem_;
};

}  // namespace kvroof
