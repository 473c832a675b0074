// JSON has no words for infinity and what is no number; C++ and Python write `inf` and `NaN` where such a value stands.
#pragma once

#include <cstddef>
#include <span>

namespace kvroof {

// Blanks such words out of a JSON text that comes in pieces, in place: an empty string stands where a word was, so that
// no value is made up and every other byte stays where it is.
class FiniteNumbers {
 public:
  // Returns how many bytes of the piece are done: at its end may be the start of a word. The next piece begins with the
  // rest. Of the last piece all bytes are done.
  std::size_t clean(std::span<char> piece, bool last);

 private:
  bool quoted_ = false, escaped_ = false;
};

}  // namespace kvroof
