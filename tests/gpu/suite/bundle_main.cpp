// The program of a bundle: kvroof, and under the name gpu_suite the suite. Code for the GPU is in it once.
#include <string_view>

#include "apps/program.hpp"
#include "tests/gpu/suite/parts.hpp"

int main(int count, char** words) {
  const std::string_view name = count > 0 ? words[0] : "";
  return name.ends_with("gpu_suite") ? kvroof::suite::suite_program(count, words)
                                     : kvroof::kvroof_program(count, words);
}
