// A file of requests that was recorded of a service, as `kvroof simulate` and `kvroof prefixes` take it.
#pragma once

#include <string>

#include "sim/serving/request_trace.hpp"

namespace kvroof {

// What messages call the file: its path, or standard input for "-".
std::string requests_name(const std::string& path);
// Throws Error (usage) where the file cannot be read, is larger than 4 GiB, or holds no requests in a known form.
RequestTrace read_requests_file(const std::string& path, Unanswered unanswered = Unanswered::kLeftOut);

}  // namespace kvroof
