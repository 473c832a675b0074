// A file of requests that was recorded of a service, as `kvroof simulate` and `kvroof prefixes` take it.
#pragma once

#include <string>

#include "sim/serving/request_trace.hpp"

namespace kvroof {

// Throws Error (usage) where the file cannot be read, is larger than 4 GiB, or holds no requests in a known form.
RequestTrace read_requests_file(const std::string& path);

}  // namespace kvroof
