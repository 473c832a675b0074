// Texts that a user gives: of files, pipes and standard input, and held to be texts before a model reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvroof {

// The whole text of `path`, which `option` names; "-" is standard input. Throws Error (usage) where it cannot be read,
// is larger than `limit` bytes, or is no text: compressed by gzip, no UTF-8, or with more NUL bytes than documents that
// they separate would have.
std::string text_input(const std::string& option, const std::string& path, std::uint64_t limit);
// Throws Error (usage) where `text`, which messages call `name`, is no text as above.
void require_text(const std::string& name, std::string_view text);

}  // namespace kvroof
