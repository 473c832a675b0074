// Fuzz target: any bytes as tokenizer.json, then a NUL byte, then any bytes as text.
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/tokenizer/tokenizer.hpp"
#include "kernels/tokenizer/unicode.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(bytes.find('\0'), bytes.size());
  const auto tokenizer = kvroof::Tokenizer::from_json(bytes.substr(0, border));
  if (!tokenizer) {
    kvroof::check(!tokenizer.error().empty(), "a refusal says why");
    return 0;
  }
  const std::string_view text = bytes.substr(std::min(border + 1, bytes.size()));
  const auto ids = tokenizer.value().encode(text, true);
  for (const std::int64_t id : ids) kvroof::check(tokenizer.value().token_of(id).has_value(), "ids have tokens");
  const std::string whole = tokenizer.value().decode(ids, false);
  kvroof::check(kvroof::is_valid_utf8(whole), "decoded text is valid UTF-8");
  kvroof::StreamingDecoder decoder(tokenizer.value(), false);
  std::string streamed;
  for (const std::int64_t id : ids) {
    streamed += decoder.push(id);
    kvroof::check(kvroof::is_valid_utf8(streamed), "streamed text is valid UTF-8");
    if (streamed.size() > 4096) return 0;  // the check is quadratic
  }
  kvroof::check(streamed + decoder.finish() == whole, "streamed text equals the whole");
  return 0;
}
