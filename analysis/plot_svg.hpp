// What line charts and heat maps share: the page, its colours, and axes that find their ticks.
#pragma once

#include <string>
#include <vector>

#include "analysis/plot.hpp"

namespace kvroof::svg {

// A picture of `height` units that is 640 wide; the title is drawn at the top.
std::string open_picture(double height, const std::string& title);
inline constexpr double kWidth = 640;

enum class Anchor : std::uint8_t { kStart, kMiddle, kEnd };
// `style` is one of the classes of open_picture: title, label, label strong, tick.
std::string text(double x, double y, const std::string& words, const std::string& style, Anchor anchor);
// About: `of_one` for each code point.
double width_of(const std::string& text, double of_one);
// Turned by a quarter, to be read from below.
std::string upright_text(double x, double y, const std::string& words, const std::string& style);
std::string line(double x1, double y1, double x2, double y2, const std::string& style);

// From values to places along an axis, with round numbers on it.
class Scale {
 public:
  // Covers the finite values (and 0, unless the axis is logarithmic); `begin` and `end` are places in the picture.
  Scale(const PlotAxis& axis, const std::vector<double>& values, double begin, double end);

  struct Tick {
    double at;  // place
    std::string label;
  };
  [[nodiscard]] double place(double value) const;
  [[nodiscard]] bool shows(double value) const;  // finite, and positive on a logarithmic axis
  [[nodiscard]] std::vector<Tick> ticks() const;
  [[nodiscard]] double low() const { return low_; }  // the value at `begin`

 private:
  [[nodiscard]] std::string label(double value) const;
  PlotAxis axis_;
  double low_ = 0, high_ = 1, begin_, end_;
  double step_ = 1;            // between ticks of a linear axis
  std::vector<double> marks_;  // the ticks of a logarithmic one
};

}  // namespace kvroof::svg
