// A scatter plot in characters, for terminals.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvroof {

struct ScatterSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, above 0
};

// Both axes logarithmic, each with its title and unit. Series with points are marked A to Z, a to z and 0 to 9 in their
// order, and as many as that are drawn; a cell that two share shows the first. Empty without points.
std::string scatter_text(const std::vector<ScatterSeries>& series, const std::string& x_title,
                         const std::string& y_title);

}  // namespace kvroof
