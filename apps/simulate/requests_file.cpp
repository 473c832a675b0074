#include "apps/simulate/requests_file.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "sim/core/error.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMostTraceBytes = std::uint64_t{4} << 30;

}  // namespace

std::string requests_name(const std::string& path) { return path == "-" ? "standard input" : path; }

RequestTrace read_requests_file(const std::string& path, Unanswered unanswered) {
  const std::string name = requests_name(path);
  const std::string text = read_input(path, kMostTraceBytes).or_throw(name, ExitCode::kUsage);
  if (text.starts_with("\x1f\x8b")) {
    throw usage_error(fmt::format("{}: expected CSV or JSON lines, found bytes 0 and 1 of gzip", name))
        .note("decompress it (gunzip); - reads standard input");
  }
  return request_trace_from_text(text, unanswered).or_throw(name, ExitCode::kUsage);
}

}  // namespace kvroof
