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
#include "sim/model/config_json.hpp"

namespace kvroof {

// Larger ones are refused in every family.
inline constexpr std::uint32_t kMostLayers = 1024;
inline constexpr std::uint32_t kMostHeads = 1024;
inline constexpr std::uint32_t kMostHeadDim = 65536;

// The first thing that is wrong is remembered, later reads go on with harmless values, and the family's parser asks
// once at its end: `if (fields.failed()) return fields.failure();`. An absent key and a null mean the same. A key with
// dots names a value inside objects: rope_scaling.factor.
class ConfigFields {
 public:
  // Fails at once (see failed()) unless `text` is a JSON object.
  explicit ConfigFields(std::string_view text);
  ~ConfigFields();
  ConfigFields(const ConfigFields&) = delete;
  ConfigFields& operator=(const ConfigFields&) = delete;

  // Values of keys that are absent (not null), as a JSON object: what the family's class in transformers assumes.
  void defaults(std::string_view json_object);

  // Keys that say nothing of what is read of a family; "a.b" is one of the object under a.
  void forget(std::initializer_list<std::string_view> keys);

  [[nodiscard]] bool has(std::string_view key) const;
  // The one of several names for a value that is there, or the first; two that differ are refused.
  std::string_view named(std::initializer_list<std::string_view> keys);
  [[nodiscard]] bool has_object(std::string_view key) const;
  // Names in the object under a key; none where there is no object.
  [[nodiscard]] std::vector<std::string> names(std::string_view key) const;
  // Whether it is this number.
  [[nodiscard]] bool is_number(std::string_view key, double number) const;
  [[nodiscard]] bool is_list(std::string_view key) const;
  [[nodiscard]] bool is_text(std::string_view key) const;
  // Whether something lies outside of an interval [low, high], where high may be Infinity; an absent one holds all that
  // is above 0.
  [[nodiscard]] bool bounds_something(std::string_view key) const;
  // Whether the key is absent or holds an empty list.
  [[nodiscard]] bool empty(std::string_view key) const;
  // A size in [1, most]; required unless there is a fallback.
  std::uint32_t size(std::string_view key, std::optional<std::uint32_t> fallback = {}, std::uint32_t most = 1U << 24);
  // A list, of one entry for each layer, becomes what all of them are; it is refused where they differ.
  void unify(std::string_view key);
  // A whole number in [0, most].
  std::uint32_t count(std::string_view key, std::uint32_t fallback, std::uint32_t most = 1U << 24);
  // A finite number above 0; required unless there is a fallback.
  double positive(std::string_view key, std::optional<double> fallback = {});
  // The same of each entry of a list; empty for an absent one.
  std::vector<double> positives(std::string_view key);
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // A list of texts; empty for an absent one.
  std::vector<std::string> texts(std::string_view key);
  // The name of an activation as transformers spells them.
  Activation activation(std::string_view key, Activation fallback);
  // The value has to be one of these (or absent), because nothing else is built.
  void only(std::string_view key, std::initializer_list<std::string_view> allowed, std::string_view why);
  // The same of a flag.
  void only(std::string_view key, bool allowed, std::string_view why);
  // Token ids under a key: a number, a list of numbers, or none.
  std::vector<std::int64_t> ids(std::string_view key, std::vector<std::int64_t> fallback);
  // torch_dtype or dtype: f32, f16 or bf16; f32 when absent.
  DType weight_type();
  // Refuses a key that changes the arithmetic in a way that is not built, unless it is absent.
  void refuse(std::string_view key, std::string_view why);
  void fail(std::string message);
  [[nodiscard]] bool failed() const { return !problem_.empty(); }
  [[nodiscard]] Failure failure() const { return Failure{problem_}; }

 private:
  struct Json;
  std::uint32_t whole(std::string_view key, std::optional<std::uint32_t> fallback, std::uint32_t least,
                      std::uint32_t most);

  std::unique_ptr<Json> json_;
  std::string problem_;
};

// What was read, unless something is wrong.
Result<ModelConfig> finish_config(const ConfigFields& fields, ModelConfig config);

}  // namespace kvroof
