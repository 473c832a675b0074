// Fuzz target: any bytes as tokenizer.json, then a NUL byte, then any bytes as text.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tokenizer/tokenizer.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace {

void check_decoding(const kvroof::Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) {
  const std::string whole = tokenizer.decode(ids, false);
  kvroof::check(kvroof::is_valid_utf8(whole), "decoded text is valid UTF-8");
  kvroof::StreamingDecoder decoder(tokenizer, false);
  std::string streamed;
  for (const std::int64_t id : ids) {
    const std::string part = decoder.push(id);
    kvroof::check(kvroof::is_valid_utf8(part), "streamed text is valid UTF-8");
    streamed += part;
  }
  kvroof::check(streamed + decoder.finish() == whole, "streamed text equals the whole");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(bytes.find('\0'), bytes.size());
  const auto tokenizer = kvroof::Tokenizer::from_json(bytes.substr(0, border));
  if (!tokenizer) {
    kvroof::check(!tokenizer.error().empty(), "a refusal says why");
    return 0;
  }
  try {
    const auto ids = tokenizer.value().encode(bytes.substr(std::min(border + 1, bytes.size())), true);
    for (const std::int64_t id : ids) kvroof::check(tokenizer.value().token_of(id).has_value(), "ids have tokens");
    check_decoding(tokenizer.value(), ids);
  } catch (const kvroof::Error& e) {  // a text that the tokenizer cannot express, or a regular expression without end
    kvroof::check(e.what()[0] != '\0', "a refusal says why");
  }
  return 0;
}
