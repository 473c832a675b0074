#include "traces/kernel_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace kvroof {
namespace {

constexpr std::string_view kOperator = "operator";

bool is_word(char c) { return c == '_' || c == '$' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

// The end of `operator()`, `operator<` and their like, whose signs are no brackets; else `at`.
std::size_t after_operator(std::string_view name, std::size_t at) {
  if (!name.substr(at).starts_with(kOperator) || (at > 0 && is_word(name[at - 1]))) return at;
  std::size_t end = at + kOperator.size();
  if (end < name.size() && is_word(name[end])) return at;
  if (name.substr(end).starts_with("()")) return end + 2;
  while (end < name.size() && std::string_view("<>=!+-*/%^&|~,[]").find(name[end]) != std::string_view::npos) ++end;
  return end;
}

// Finds the last component of the qualified name that stands before the parameters.
class Scanner {
 public:
  explicit Scanner(std::string_view name) : name_(name) {}

  std::string_view component() {
    for (std::size_t at = 0; at < name_.size(); ++at) {
      const std::size_t skipped = depth_ == 0 ? after_operator(name_, at) : at;
      if (skipped > at) {
        at = skipped - 1;
        end_ = skipped;
      } else if (!take(at)) {
        break;
      }
    }
    const std::string_view found = name_.substr(begin_, end_ - begin_);
    return found.empty() ? name_ : found;
  }

 private:
  // False where the parameters begin.
  bool take(std::size_t at) {
    const char c = name_[at];
    const bool closes = c == ')' || c == '}' || c == ']' || (c == '>' && (at == 0 || name_[at - 1] != '-'));
    if (c == '(' && depth_ == 0 && end_ > begin_) return continues_after_brackets(at);
    if (c == '<' || c == '(' || c == '{' || c == '[') {
      ++depth_;
    } else if (closes) {
      depth_ = std::max(0, depth_ - 1);
    } else if (depth_ == 0 && (c == ':' || (c == ' ' && !name_.substr(at + 1).starts_with('<')))) {
      begin_ = end_ = at + 1;
    } else if (depth_ == 0 && is_word(c)) {
      end_ = at + 1;
    }
    return true;
  }

  // Parameters of an enclosing function are followed by "::".
  bool continues_after_brackets(std::size_t at) {
    int depth = 0;
    for (std::size_t i = at; i < name_.size(); ++i) {
      if (name_[i] == '(') ++depth;
      if (name_[i] != ')' || --depth > 0) continue;
      if (!name_.substr(i + 1).starts_with("::") && !name_.substr(i + 1).starts_with(" const::")) return false;
      depth_ = 1;
      return true;
    }
    return false;
  }

  std::string_view name_;
  std::size_t begin_ = 0, end_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string demangled_name(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? std::string(text.get()) : std::string(name);
}

std::string short_name(std::string_view demangled) {
  if (demangled.starts_with(kWholeGraph)) return std::string(demangled);
  return std::string(Scanner(demangled).component());
}

}  // namespace kvroof
