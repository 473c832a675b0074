#include "analysis/plot_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvroof {

std::string xml_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

namespace svg {
namespace {

// Colours that keep their distance for colour-blind readers (Okabe and Ito 2008, the darker ones), lighter on dark.
constexpr std::string_view kStyle = R"(<style>
.kvroof text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
.kvroof .title{font-size:15px;font-weight:600}
.kvroof .label{font-size:12.5px}.kvroof .strong{font-weight:600}
.kvroof .tick{font-size:11.5px;fill:#57606a}
.kvroof .page{fill:#ffffff}
.kvroof .grid{stroke:#d8dee4;stroke-width:1}
.kvroof .axis{stroke:#57606a;stroke-width:1}
.kvroof .line{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.kvroof .dashed{stroke-dasharray:6 5}
.kvroof .dotted{stroke-dasharray:1 5}
.kvroof .dash-dot{stroke-dasharray:10 4 1 4}
.kvroof .mark{fill:#ffffff;stroke-width:1.8}.kvroof .mark.faint{stroke-width:1.1}
.kvroof .interval{stroke-width:1;opacity:0.6}
.kvroof .ink{stroke:#1f2328;stroke-width:1.6}
.kvroof .faint{stroke:#b6bfc9;stroke-width:1.1}
.kvroof text.faint-name{font-size:9.5px;fill:#57606a;stroke:#ffffff;stroke-width:2.5px;paint-order:stroke}
.kvroof .c0{stroke:#0072b2}.kvroof .c1{stroke:#d55e00}.kvroof .c2{stroke:#009e73}.kvroof .c3{stroke:#b5559b}
.kvroof .c4{stroke:#8a6d00}.kvroof .c5{stroke:#56606b}
@media (prefers-color-scheme:dark){
.kvroof text{fill:#e6edf3}.kvroof .tick{fill:#9ba5b0}.kvroof .page,.kvroof .mark{fill:#0d1117}
.kvroof .grid{stroke:#262d36}.kvroof .axis{stroke:#9ba5b0}.kvroof .ink{stroke:#e6edf3}
.kvroof .faint{stroke:#4a535d}.kvroof text.faint-name{fill:#9ba5b0;stroke:#0d1117}
.kvroof .c0{stroke:#58a9e6}.kvroof .c1{stroke:#f0883e}.kvroof .c2{stroke:#3fc79a}.kvroof .c3{stroke:#e08cc6}
.kvroof .c4{stroke:#d9b93b}.kvroof .c5{stroke:#aab4bf}}
</style>
)";

// 1, 2 or 5 times a power of ten: about `count` of them between low and high.
double round_step(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) return factor * power;
  }
  return 10 * power;
}

constexpr double kMostTicks = 9;  // of a logarithmic axis

// 1, 2 and 5 times powers of ten, where these are many the powers alone, from the last that is not above `low` to the
// first that is not below `high`; two or more.
std::vector<double> decimal_marks(double low, double high) {
  const auto first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const auto last = static_cast<int>(std::ceil(std::log10(high) - 1e-9));
  const int decades = std::max(1, last - first);
  const int stride = static_cast<int>(std::ceil(decades / kMostTicks));
  std::vector<double> marks;
  for (int decade = first; decade < first + decades + stride; decade += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && 3 * decades > kMostTicks + 3) break;
      const double value = factor * std::pow(10.0, decade);
      if (value <= low * (1 + 1e-9)) marks.clear();
      marks.push_back(value);
      if (value >= high * (1 - 1e-9) && marks.size() > 1) return marks;
    }
  }
  return marks;
}

}  // namespace

std::string open_picture(double height, const std::string& title) {
  // A long title is set smaller, so that it ends inside the picture; bold letters of 15 px are some 8.9 wide.
  constexpr double kMargin = 16, kSize = 15, kLetter = 8.9;
  const auto letters = std::count_if(title.begin(), title.end(),
                                     [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
  const double wide = kLetter * static_cast<double>(letters);
  const double size = kSize * std::min(1.0, (kWidth - 2 * kMargin) / std::max(wide, 1.0));
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"kvroof\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n",
             kWidth, height, xml_text(title)) +
         std::string(kStyle) + fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, height) +
         fmt::format("<text class=\"title\" x=\"{}\" y=\"26\" style=\"font-size:{:.1f}px\">{}</text>\n", kMargin, size,
                     xml_text(title));
}

std::string text(double x, double y, const std::string& words, const std::string& style, Anchor anchor) {
  const char* where = anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", style, x, y, where,
                     xml_text(words));
}

double width_of(const std::string& text, double of_one) {
  const auto points =
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
  return static_cast<double>(points) * of_one;
}

std::string upright_text(double x, double y, const std::string& words, const std::string& style) {
  return fmt::format(
      "<text class=\"{0}\" transform=\"translate({1:.1f},{2:.1f}) rotate(-90)\" text-anchor=\"middle\">{3}</text>\n",
      style, x, y, xml_text(words));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                     x2, y2);
}

Scale::Scale(const PlotAxis& axis, const std::vector<double>& values, double begin, double end)
    : axis_(axis), begin_(begin), end_(end) {
  double low = INFINITY;
  double high = -INFINITY;
  for (const double value : values) {
    if (!shows(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 1;
  if (axis.log && axis.ticks == LogTicks::kDecimal) {
    marks_ = decimal_marks(low, high);
    low_ = marks_.front();
    high_ = marks_.back();
  } else if (axis.log) {
    const bool few = low >= 1 && high / low < 1e5;
    const double base = axis.ticks == LogTicks::kBinary || few ? 2 : 10;
    const double first = std::floor(std::log(low) / std::log(base) + 1e-9);
    const double last = std::max(first + 1, std::ceil(std::log(high) / std::log(base) - 1e-9));
    low_ = std::pow(base, first);
    high_ = std::pow(base, last);
    const double step = std::pow(base, std::ceil((last - first) / kMostTicks));
    for (double value = low_; value <= high_ * 1.0001; value *= step) marks_.push_back(value);
  } else if (axis.percent && low >= 0 && high <= 1 + 1e-9) {
    step_ = 0.2;
  } else {
    low = std::min(low, 0.0);
    step_ = round_step(std::max(high - low, 1e-12), 5);
    low_ = std::floor(low / step_ + 1e-9) * step_;
    high_ = std::max(low_ + step_, std::ceil(high / step_ - 1e-9) * step_);
  }
}

bool Scale::shows(double value) const { return std::isfinite(value) && (!axis_.log || value > 0); }

double Scale::place(double value) const {
  const double share = axis_.log ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return begin_ + share * (end_ - begin_);
}

std::string Scale::label(double value) const {
  if (axis_.percent) return fmt::format("{:.4g}", value * 100);
  if (!axis_.log || (value >= 1e-3 && value < 1e6)) return fmt::format("{:.6g}", std::abs(value) < 1e-12 ? 0 : value);
  return fmt::format("{:.0e}", value);
}

std::vector<Scale::Tick> Scale::ticks() const {
  std::vector<Tick> ticks;
  if (axis_.log) {
    for (const double value : marks_) ticks.push_back({place(value), label(value)});
  } else {
    const auto count = static_cast<int>(std::lround((high_ - low_) / step_));
    for (int i = 0; i <= count; ++i) ticks.push_back({place(low_ + i * step_), label(low_ + i * step_)});
  }
  return ticks;
}

}  // namespace svg
}  // namespace kvroof
