// A scatter plot in characters, for terminals.
#pragma once

#include <string>
#include <vector>

namespace kvroof {

struct ScatterSeries {
  std::string name;
  char mark = '*';
  std::vector<std::pair<double, double>> points;  // x and y, above 0
};

// Both axes logarithmic, each with its title and unit; a cell that two series share shows the first. Empty without
// points.
std::string scatter_text(const std::vector<ScatterSeries>& series, const std::string& x_title,
                         const std::string& y_title);

}  // namespace kvroof
