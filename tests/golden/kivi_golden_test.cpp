// The quantiser against the codes, scales and round trips of KIVI's own code, and the window's bytes against its rule.
// KVROOF_GOLDEN_POLICIES=DIR compares another folder of such cases.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/core/kv_quantizer.hpp"
#include "tests/catch.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;

namespace {

std::filesystem::path folder() {
  const char* other = std::getenv("KVROOF_GOLDEN_POLICIES");
  return other != nullptr ? other : KVROOF_SOURCE_DIR "/tests/golden/policies";
}

nlohmann::json json_of(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(folder() / (name + ".json")));
}

// One of k and v of a case: [heads, tokens, channels], groups of 32 along tokens (k) or channels (v).
class Side {
 public:
  Side(const std::string& name, char side)
      : json_(json_of(name)),
        file_(SafetensorsFile::open(folder() / (name + ".safetensors")).or_throw(name)),
        side_(side),
        shape_(file_.header().find(std::string(1, side))->shape) {}

  [[nodiscard]] std::vector<float> floats(const std::string& what) const {
    return file_.read_floats(*file_.header().find(side_ + what));
  }
  template <class T>
  [[nodiscard]] std::vector<T> whole(const std::string& what) const {
    const TensorInfo& info = *file_.header().find(side_ + what);
    std::vector<T> values(info.bytes / sizeof(T));
    file_.read(info, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Calls visit(elements of the group as indices into the tensor, index of the group's scale).
  template <class Visit>
  void groups(const Visit& visit) const {
    const std::size_t tokens = shape_[1], channels = shape_[2];
    const std::size_t along = side_ == 'k' ? channels : 1;
    std::vector<std::size_t> elements(kKiviGroup);
    const std::size_t rows = side_ == 'k' ? tokens / kKiviGroup : tokens;
    const std::size_t columns = side_ == 'k' ? channels : channels / kKiviGroup;
    for (std::size_t head = 0; head < shape_[0]; ++head) {
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
          const std::size_t first = side_ == 'k' ? row * kKiviGroup * channels + column
                                                 : row * channels + column * kKiviGroup;
          for (std::size_t i = 0; i < kKiviGroup; ++i) elements[i] = head * tokens * channels + first + i * along;
          visit(elements, (head * rows + row) * columns + column);
        }
      }
    }
  }
  [[nodiscard]] std::uint32_t bits() const { return json_["parameters"]["bits"].get<std::uint32_t>(); }
  [[nodiscard]] DType arithmetic() const { return *parse_dtype(json_["parameters"]["dtype"].get<std::string>()); }
  [[nodiscard]] std::uint64_t bytes() const { return json_["bytes"][side_ == 'k' ? "keys" : "values"]; }
  [[nodiscard]] std::size_t channels() const { return shape_[2]; }

 private:
  nlohmann::json json_;
  SafetensorsFile file_;
  char side_;
  std::vector<std::uint64_t> shape_;
};

// Words of 32 bits with the first element in the lowest bits, along tokens (k) or channels (v).
std::vector<std::uint32_t> packed(const Side& side, char name, const std::vector<std::uint8_t>& levels) {
  const std::size_t in_word = 32 / side.bits();
  const std::size_t stride = name == 'k' ? side.channels() : 1;
  std::vector<std::uint32_t> words(levels.size() / in_word);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::size_t at = i / stride % in_word;
    const std::size_t word = i / (stride * in_word) * stride + i % stride;
    words[word] |= static_cast<std::uint32_t>(levels[i]) << (at * side.bits());
  }
  return words;
}

void check_side(const std::string& name, char which) {
  INFO(name << ", " << which);
  const Side side(name, which);
  const std::vector<float> x = side.floats(""), minima = side.floats("_min"), scales = side.floats("_scale");
  const std::vector<float> dequantised = side.floats("_dequant");
  std::vector<std::uint8_t> levels(x.size());
  const double most = side.arithmetic() == DType::kF16 ? 0.52 : 0.50001;
  std::uint64_t bytes = x.size() * side.bits() / 8;
  side.groups([&](const std::vector<std::size_t>& elements, std::size_t at) {
    std::vector<float> group, back(elements.size());
    for (const std::size_t i : elements) group.push_back(x[i]);
    std::vector<std::uint8_t> group_levels(elements.size());
    const GroupScale scale = quantise_group(side.bits(), side.arithmetic(), group, group_levels);
    dequantise_group(scale, side.arithmetic(), group_levels, back);
    REQUIRE(scale.scale == scales[at]);
    REQUIRE(scale.minimum == minima[at]);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      levels[elements[i]] = group_levels[i];
      REQUIRE(back[i] == dequantised[elements[i]]);
      REQUIRE(std::fabs(back[i] - group[i]) <= most * scale.scale);
    }
    bytes += 2 * size_of(side.arithmetic());
  });
  CHECK(levels == side.whole<std::uint8_t>("_level"));
  CHECK(packed(side, which, levels) == side.whole<std::uint32_t>("_code"));
  CHECK(bytes == side.bytes());
}

}  // namespace

TEST_CASE("codes and round trips are those of KIVI's code, in float32 and in float16") {
  for (const char* name : {"kivi_2bit_f32", "kivi_4bit_f16"}) {
    check_side(name, 'k');
    check_side(name, 'v');
  }
}

TEST_CASE("tokens in and before KIVI's window, and their bytes, are those of its rule at every length") {
  const nlohmann::json table = json_of("kivi_lengths");
  const auto d = table["parameters"]["d"].get<std::uint32_t>();
  REQUIRE(table["parameters"]["residual"] == kKiviResidual);
  REQUIRE(!table["rows"].empty());
  for (const nlohmann::json& row : table["rows"]) {
    const auto tokens = row["prompt"].get<std::uint64_t>() + row["decode"].get<std::uint64_t>();
    INFO(tokens << " tokens");
    const std::uint64_t keys = kivi_packed_keys(tokens), values = kivi_packed_values(tokens);
    CHECK(keys == row["k_quantised"]);
    CHECK(tokens - keys == row["k_full"]);
    CHECK(values == row["v_quantised"]);
    CHECK(tokens - values == row["v_full"]);
    CHECK(aged_bytes(KvType::kKivi2, d, 0, {tokens - keys, 0, keys, 0}).total() == row["k_bytes"]);
    CHECK(aged_bytes(KvType::kKivi2, 0, d, {0, tokens - values, 0, values}).total() == row["v_bytes"]);
  }
}
