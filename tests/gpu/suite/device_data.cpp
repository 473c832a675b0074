#include "tests/gpu/suite/device_data.hpp"

namespace kvroof::suite {

using cuda::Stored;

namespace {

unsigned bits_of(Stored type) { return type == Stored::kInt8 ? 8 : type == Stored::kInt4 ? 4 : 16; }

DType float_type(Stored type) { return type == Stored::kBF16 ? DType::kBF16 : DType::kF16; }

void store_integer(Stored type, int value, std::byte* row, std::uint32_t column) {
  if (type == Stored::kInt8) {
    row[column] = static_cast<std::byte>(static_cast<std::uint8_t>(value));
    return;
  }
  const unsigned nibble = (static_cast<unsigned>(value) & 15U) << (column % 2 * 4);
  const unsigned old = column % 2 == 0 ? 0 : static_cast<unsigned>(row[column / 2]);
  row[column / 2] = static_cast<std::byte>(old | nibble);
}

}  // namespace

double stored_value(Stored type, const std::byte* row, double scale, std::uint32_t column) {
  if (bits_of(type) == 16) {
    float value = 0;
    convert_to_float(float_type(type), row + std::size_t{2} * column, {&value, 1});
    return static_cast<double>(value);
  }
  if (type == Stored::kInt8) return scale * static_cast<std::int8_t>(row[column]);
  const unsigned nibble = static_cast<unsigned>(row[column / 2]) >> (column % 2 * 4) & 15U;
  return scale * (nibble < 8 ? static_cast<int>(nibble) : static_cast<int>(nibble) - 16);
}

StoredRows stored_rows(Stored type, std::size_t rows, std::uint32_t width, float scale, Random& random) {
  std::normal_distribution<float> normal;
  StoredRows out;
  out.row_bytes = (width * bits_of(type) / 8 + 15) / 16 * 16;
  out.bytes.assign(rows * out.row_bytes, std::byte{0xff});
  out.values.reserve(rows * width);
  for (std::size_t r = 0; r < rows; ++r) {
    std::byte* row = out.bytes.data() + r * out.row_bytes;
    const float row_scale = bits_of(type) == 16 ? 1 : scale * 0.01F * static_cast<float>(1 + r % 7);
    if (bits_of(type) < 16) out.scales.push_back(row_scale);
    for (std::uint32_t c = 0; c < width; ++c) {
      const float value = scale * normal(random);
      if (bits_of(type) == 16) convert_from_float(float_type(type), {&value, 1}, row + std::size_t{2} * c);
      if (type == Stored::kInt8) store_integer(type, static_cast<int>(random() % 255) - 127, row, c);
      if (type == Stored::kInt4) store_integer(type, static_cast<int>(random() % 16) - 8, row, c);
      out.values.push_back(static_cast<float>(stored_value(type, row, static_cast<double>(row_scale), c)));
    }
  }
  return out;
}

std::vector<float> normal_floats(std::size_t count, float mean, Random& random) {
  std::normal_distribution<float> normal(mean, 1.0F);
  std::vector<float> x(count);
  for (float& v : x) v = normal(random);
  return x;
}

const char* name_of(Stored type) {
  switch (type) {
    case Stored::kBF16:
      return "bf16";
    case Stored::kF16:
      return "f16";
    case Stored::kInt8:
      return "int8";
    default:
      return "int4";
  }
}

Json results_of(const Deviations& deviations, double tolerance, std::uint64_t seed) {
  Json json, worst;
  for (const auto& [name, deviation] : deviations) {
    json[name] = deviation.relative();
    if (!(deviation.relative() <= tolerance)) worst[name] = deviation.worst();
  }
  json["tolerance"] = tolerance;
  json["seed"] = seed;
  if (!worst.is_null()) json["worst"] = worst;
  return json;
}

}  // namespace kvroof::suite
