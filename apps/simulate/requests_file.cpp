#include "apps/simulate/requests_file.hpp"

#include <cstdint>

#include "sim/core/error.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMostTraceBytes = std::uint64_t{4} << 30;

}  // namespace

RequestTrace read_requests_file(const std::string& path) {
  const std::string text = read_text_file(path, kMostTraceBytes).or_throw(path, ExitCode::kUsage);
  return request_trace_from_text(text).or_throw(path, ExitCode::kUsage);
}

}  // namespace kvroof
