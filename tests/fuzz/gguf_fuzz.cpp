// Fuzz target: any bytes as a GGUF file, whole and as the beginning of a larger one.
#include <cstdint>

#include "sim/model/gguf.hpp"

namespace {

void parse(std::span<const std::byte> bytes, std::uint64_t file_size) {
  const auto header = kvroof::parse_gguf_header(bytes, file_size);
  if (!header.ok()) {
    kvroof::check(!header.error().empty() && header.error().size() < 1000, "a refusal is one sentence");
    return;
  }
  if (!header.value()) {
    kvroof::check(bytes.size() < file_size, "a whole file is not asked for more");
    return;
  }
  for (const kvroof::GgufTensor& tensor : header.value()->tensors) {
    kvroof::check(tensor.bytes > 0 && tensor.bytes <= file_size && tensor.elements > 0, "tensors lie in the file");
  }
  const auto model = kvroof::gguf_model(*header.value());
  if (!model.ok()) return;
  kvroof::check(kvroof::shape_problem(model.value().shape).empty(), "accepted shapes are possible");
  kvroof::check(model.value().bytes <= file_size, "weights fit the file");
  static_cast<void>(kvroof::parameter_count(model.value().shape));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  parse(bytes, size);
  parse(bytes, std::uint64_t{1} << 40);
  return 0;
}
