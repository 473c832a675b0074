// Numbers as people read them.
#pragma once

#include <string>

namespace kvroof {

// Three significant digits, at most six after the point, with an exponent below 1e-4; – for what is no number.
std::string number_text(double x);

}  // namespace kvroof
