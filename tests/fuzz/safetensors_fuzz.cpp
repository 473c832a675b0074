// Fuzz target: any bytes as a safetensors file. What is accepted tiles the file exactly.
#include <cstdint>
#include <span>

#include "traces/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header = kvroof::parse_safetensors_header(std::as_bytes(std::span(data, size)), size);
  if (!header) {
    kvroof::check(!header.error().empty(), "a refusal says why");
    return 0;
  }
  std::uint64_t at = size;
  for (const auto& t : header.value().tensors) at -= t.bytes;  // now where the data must start
  for (const auto& t : header.value().tensors) {
    kvroof::check(t.offset == at && t.bytes <= size - at, "tensors follow each other inside the file");
    kvroof::check(t.elements() * kvroof::size_of(t.type) == t.bytes, "a tensor holds whole elements");
    at += t.bytes;
  }
  kvroof::check(at == size, "the last tensor ends with the file");
  return 0;
}
