// Failures: Result<T> for foreign bytes, Error for what ends a command, check() for broken invariants.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvroof {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,        // failed while running
  kUsage = 2,          // wrong usage
  kGateFailed = 3,     // a gate that was asked for failed
  kDamagedTrace = 4,   // damaged or incomplete trace
  kNeedsDevice = 77,   // needs a device that is not here
};

// Ended by a signal, after sealing: a shell's 128 and its number, so that SIGINT is 130 and SIGTERM 143.
constexpr ExitCode ended_by(int signal) { return static_cast<ExitCode>(128 + signal); }

// Ends a command. The message says what, where, expected, found; notes say what to do. Caught once, in apps/.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(message), code_(code) {}
  Error&& note(std::string text) && {
    notes_.push_back(std::move(text));
    return std::move(*this);
  }
  [[nodiscard]] ExitCode code() const { return code_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  ExitCode code_;
  std::vector<std::string> notes_;
};

// A mistake of the user on the command line or in a file they wrote.
inline Error usage_error(const std::string& message) { return Error(message, ExitCode::kUsage); }

// Why foreign bytes were refused.
struct Failure {
  std::string message;
};

// The outcome of reading foreign bytes: a value, or one sentence that says why not.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT: implicit on purpose

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] const std::string& error() const { return std::get<1>(state_).message; }

  // The value, or an Error "where: why" with the given exit code.
  [[nodiscard]] T or_throw(std::string_view where, ExitCode code = ExitCode::kFailure) && {
    if (!ok()) throw Error(fmt::format("{}: {}", where, error()), code);
    return std::move(*this).value();
  }

 private:
  std::variant<T, Failure> state_;
};

template <class... Args>
Failure failure(fmt::format_string<Args...> text, Args&&... args) {
  return Failure{fmt::format(text, std::forward<Args>(args)...)};
}

// Ends the program when an invariant of our own is broken; kept in release builds, never used on input.
inline void check(bool holds, std::string_view invariant) {
  if (!holds) throw std::logic_error(fmt::format("broken invariant: {}", invariant));
}

}  // namespace kvroof
