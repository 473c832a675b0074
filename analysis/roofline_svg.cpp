// Draws a roofline: the roof, marks with letters that find room beside them, and a table of what the letters are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "analysis/plot_svg.hpp"
#include "analysis/roofline.hpp"

namespace kvroof {
namespace {

using svg::Anchor;

constexpr double kLeft = 66, kRight = svg::kWidth - 22, kTop = 84, kBottom = kTop + 330, kTable = kBottom + 92;
constexpr double kRow = 18, kColumn = 58;                         // of the table
constexpr double kLargest = 26, kSmallest = 3.5, kDiamond = 6.5;  // radius with all of the time, with none; of a whole
constexpr double kCharacter = 7.2, kLine = 15;                    // of a label
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::size_t kColours = 3;
const PlotAxis kAcross{"", true, false, LogTicks::kBinary}, kUpwards{"", true};
constexpr double kMargin = 2;  // the smallest value keeps so far from the end of the axis

// The colours of plot_svg.cpp, as areas.
constexpr std::string_view kStyle = R"(<style>
.kvroof .mark{fill:currentColor;fill-opacity:.3;stroke:currentColor;stroke-width:1.3}.kvroof .whole{fill-opacity:1}
.kvroof .m0{color:#0072b2}.kvroof .m1{color:#d55e00}.kvroof .m2{color:#009e73}
.kvroof .roof{fill:none;stroke:#1f2328;stroke-width:2;stroke-linejoin:round}.kvroof .leader{stroke:#57606a}
@media (prefers-color-scheme:dark){.kvroof .roof{stroke:#e6edf3}.kvroof .leader{stroke:#9ba5b0}
.kvroof .m0{color:#58a9e6}.kvroof .m1{color:#f0883e}.kvroof .m2{color:#3fc79a}}
</style>
)";

struct Box {
  double left, top, right, bottom;
  [[nodiscard]] bool meets(const Box& o) const {
    return left < o.right && o.left < right && top < o.bottom && o.top < bottom;
  }
  [[nodiscard]] bool within(const Box& o) const {
    return left >= o.left && top >= o.top && right <= o.right && bottom <= o.bottom;
  }
};

// Finds room for labels: beside their marks, else at the end of a line.
class Labels {
 public:
  explicit Labels(const Box& page) : page_(page) {}
  void avoid(const Box& box) { taken_.push_back(box); }
  void avoid_line(double x1, double y1, double x2, double y2, double half) {
    const int steps = 1 + static_cast<int>(std::hypot(x2 - x1, y2 - y1) / 4);
    for (int i = 0; i <= steps; ++i) {
      const double x = x1 + (x2 - x1) * i / steps, y = y1 + (y2 - y1) * i / steps;
      avoid({x - half, y - half, x + half, y + half});
    }
  }

  // A text beside a circle; empty where there is no room.
  std::string label(double x, double y, double radius, const std::string& text) {
    constexpr double kStep = 5, kNear = 10, kFarthest = 200;
    constexpr int kDirections = 16;
    const double width = svg::width_of(text, kCharacter);
    for (double distance = kStep; distance < kFarthest; distance += kStep) {
      for (int i = 0; i < kDirections; ++i) {  // to the right, then ever more to the left, below first
        const double angle = (i % 2 == 0 ? -1 : 1) * ((i + 1) / 2) * 2 * std::numbers::pi / kDirections;
        const double dx = std::cos(angle), dy = std::sin(angle), reach = radius + distance;
        const double middle = x + reach * dx + dx * width / 2, base = y + reach * dy + dy * kLine / 2;
        const Box box{middle - width / 2, base - kLine / 2, middle + width / 2, base + kLine / 2};
        if (!free(box)) continue;
        avoid(box);
        const bool far = distance > kNear;
        if (far) avoid_line(x + radius * dx, y + radius * dy, x + reach * dx, y + reach * dy, 1);
        return (far ? svg::line(x + radius * dx, y + radius * dy, x + reach * dx, y + reach * dy, "leader") : "") +
               svg::text(middle, box.bottom - 3.5, text, "label", Anchor::kMiddle);
      }
    }
    return "";
  }

 private:
  [[nodiscard]] bool free(const Box& box) const {
    return box.within(page_) && std::none_of(taken_.begin(), taken_.end(), [&](const Box& t) { return t.meets(box); });
  }
  Box page_;
  std::vector<Box> taken_;
};

std::string style_of(std::size_t group) { return fmt::format("mark m{}", group % kColours); }

std::string diamond(double x, double y, double half, const std::string& style, const std::string& title) {
  return fmt::format("<path class=\"{} whole\" d=\"M{:.1f},{:.1f} l{:.1f},{:.1f} l{:.1f},{:.1f} l{:.1f},{:.1f}z\">"
                     "<title>{}</title></path>\n",
                     style, x, y - half, half, half, -half, half, -half, -half, xml_text(title));
}

std::string circle(double x, double y, double radius, const std::string& style, const std::string& title) {
  return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"><title>{}</title></circle>\n",
                     style, x, y, radius, xml_text(title));
}

double radius_of(const RooflineMark& mark) {
  return mark.whole ? kDiamond : std::max(kSmallest, kLargest * std::sqrt(mark.share));
}

std::string percent(double share) {
  return share > 0 && share < 0.01 ? "< 1 %" : fmt::format("{:.0f} %", share * 100);
}

// Rates of devices that people write in Tflop/s, or of smaller ones.
struct Unit {
  double value;
  const char* flops;
};
Unit unit_of(const Roof& roof) { return roof.flops_per_second >= 1e12 ? Unit{1e12, "Tflop/s"} : Unit{1e9, "Gflop/s"}; }

class Picture {
 public:
  Picture(const Roof& roof, const Roofline& roofline)
      : roof_(roof),
        roofline_(roofline),
        unit_(unit_of(roof)),
        x_(kAcross, values(&RooflineMark::flops_per_byte, 1, {ridge(), 4 * ridge()}), kLeft, kRight),
        y_(kUpwards, values(&RooflineMark::flops_per_second, unit_.value, {peak()}), kBottom, kTop),
        labels_({kLeft + 2, kTop - 4, kRight, kBottom - 2}) {
    std::map<std::string, double> shares;
    for (const RooflineMark& mark : roofline.marks) {
      if (!mark.whole) shares[mark.name] += mark.share;
    }
    for (const auto& [name, share] : shares) names_.push_back(name);
    std::stable_sort(names_.begin(), names_.end(),
                     [&](const std::string& a, const std::string& b) { return shares[a] > shares[b]; });
  }

  std::string draw(const std::string& title) {
    std::string out = roof() + marks();
    double bottom = kTable;
    out += table(bottom);
    out += left_out(bottom);
    return svg::open_picture(bottom + 8, title) + std::string(kStyle) + legend() + axes() + out + "</svg>\n";
  }

 private:
  [[nodiscard]] double ridge() const { return roof_.flops_per_second / roof_.bytes_per_second; }
  [[nodiscard]] double peak() const { return roof_.flops_per_second / unit_.value; }
  [[nodiscard]] double slope() const { return roof_.bytes_per_second / unit_.value; }
  [[nodiscard]] double x(const RooflineMark& mark) const { return x_.place(mark.flops_per_byte); }
  [[nodiscard]] double y(const RooflineMark& mark) const { return y_.place(mark.flops_per_second / unit_.value); }
  [[nodiscard]] double of_roof(const RooflineMark& mark) const {
    return mark.flops_per_second / std::min(roof_.flops_per_second, mark.flops_per_byte * roof_.bytes_per_second);
  }
  [[nodiscard]] std::vector<double> values(double RooflineMark::*of, double unit, std::vector<double> more) const {
    for (const RooflineMark& mark : roofline_.marks) {
      more.insert(more.end(), {mark.*of / unit / kMargin, mark.*of / unit});
    }
    return more;
  }
  // Those of an operator in all groups are the same.
  [[nodiscard]] std::string letter(const RooflineMark& mark) const {
    const auto at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), mark.name) - names_.begin());
    return at < kLetters.size() ? std::string(1, kLetters[at]) : "";
  }

  [[nodiscard]] std::string legend() const {
    std::string out;
    double at = kLeft;
    const auto entry = [&](const std::string& text) {
      out += svg::text(at + 13, 52, text, "label", Anchor::kStart);
      at += 13 + svg::width_of(text, 6.9) + 20;
    };
    for (std::size_t g = 0; g < roofline_.groups.size(); ++g) {
      if (roofline_.groups[g].empty()) continue;
      out += circle(at + 4, 48, 6, style_of(g), "");
      entry(roofline_.groups[g]);
    }
    return out + svg::text(kRight, 52, "area: share of the kernels' time", "tick", Anchor::kEnd);
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    for (const svg::Scale::Tick& tick : y_.ticks()) {
      out += svg::line(kLeft, tick.at, kRight, tick.at, "grid");
      out += svg::text(kLeft - 8, tick.at + 4, tick.label, "tick", Anchor::kEnd);
    }
    for (const svg::Scale::Tick& tick : x_.ticks()) {
      out += svg::line(tick.at, kTop, tick.at, kBottom, "grid");
      out += svg::text(tick.at, kBottom + 19, tick.label, "tick", Anchor::kMiddle);
    }
    out += svg::line(kLeft, kBottom, kRight, kBottom, "axis") + svg::line(kLeft, kTop, kLeft, kBottom, "axis");
    out += svg::text((kLeft + kRight) / 2, kBottom + 40, "arithmetic intensity (flop/byte)", "label", Anchor::kMiddle);
    return out + svg::upright_text(16, (kTop + kBottom) / 2, fmt::format("operations reached ({})", unit_.flops),
                                   "label");
  }

  // The slope, the peak, and what they are; labels of marks keep off.
  std::string roof() {
    const double from = std::max(x_.low(), y_.low() / slope());
    const double x1 = x_.place(from), y1 = y_.place(from * slope()), x2 = x_.place(ridge()), y2 = y_.place(peak());
    labels_.avoid_line(x1, y1, x2, y2, 3);
    labels_.avoid_line(x2, y2, kRight, y2, 3);
    const std::string bandwidth = fmt::format("{:.4g} GB/s", roof_.bytes_per_second / 1e9);
    const std::string top = fmt::format("{:.4g} {} in 16 bits", peak(), unit_.flops);
    const double angle = std::atan2(y2 - y1, x2 - x1), half = svg::width_of(bandwidth, kCharacter) / 2;
    const double tx = (x1 + x2) / 2 + 9 * std::sin(angle), ty = (y1 + y2) / 2 - 9 * std::cos(angle);
    labels_.avoid_line(tx - half * std::cos(angle), ty - half * std::sin(angle), tx + half * std::cos(angle),
                       ty + half * std::sin(angle), 8);
    return fmt::format("<path class=\"roof\" d=\"M{:.1f},{:.1f} L{:.1f},{:.1f} L{:.1f},{:.1f}\"/>\n", x1, y1, x2, y2,
                       kRight, y2) +
           fmt::format("<text class=\"label\" transform=\"translate({:.1f},{:.1f}) rotate({:.1f})\" "
                       "text-anchor=\"middle\">{}</text>\n",
                       tx, ty, angle * 180 / std::numbers::pi, xml_text(bandwidth)) +
           svg::text(kRight, y2 - 7, top, "label", Anchor::kEnd);
  }

  std::string marks() {
    std::vector<RooflineMark> marks = roofline_.marks;  // the largest below
    std::stable_sort(marks.begin(), marks.end(), [](const RooflineMark& a, const RooflineMark& b) {
      return std::pair(b.whole, a.share) > std::pair(a.whole, b.share);
    });
    std::string out;
    for (const RooflineMark& mark : marks) {
      const double radius = radius_of(mark);
      const std::string all = fmt::format("{}: {:.4g} flop/byte, {:.4g} {}", mark.name, mark.flops_per_byte,
                                          mark.flops_per_second / unit_.value, unit_.flops);
      out += mark.whole ? diamond(x(mark), y(mark), kDiamond, style_of(mark.group), all)
                        : circle(x(mark), y(mark), radius, style_of(mark.group), all);
      labels_.avoid({x(mark) - radius, y(mark) - radius, x(mark) + radius, y(mark) + radius});
    }
    for (std::vector<RooflineMark>& cluster : clusters(marks)) {
      const RooflineMark first = cluster[0];
      std::stable_sort(cluster.begin(), cluster.end(), [](const RooflineMark& a, const RooflineMark& b) {
        return a.flops_per_second > b.flops_per_second;
      });
      std::string letters;
      for (const RooflineMark& mark : cluster) letters += (letters.empty() ? "" : " ") + letter(mark);
      out += labels_.label(x(first), y(first), radius_of(first), letters);
    }
    return out;
  }

  // Marks of a group that lie upon one another, as products of decode steps do, have one label.
  [[nodiscard]] std::vector<std::vector<RooflineMark>> clusters(const std::vector<RooflineMark>& marks) const {
    constexpr double kNear = 24;
    std::vector<std::vector<RooflineMark>> found;
    for (const RooflineMark& mark : marks) {
      if (mark.whole) continue;
      const auto of = std::find_if(found.begin(), found.end(), [&](const std::vector<RooflineMark>& cluster) {
        const RooflineMark& first = cluster[0];
        return first.group == mark.group && std::hypot(x(first) - x(mark), y(first) - y(mark)) < kNear;
      });
      (of == found.end() ? found.emplace_back() : *of).push_back(mark);
    }
    return found;
  }

  // What the letters are, with numbers of each group; `y` becomes the bottom.
  [[nodiscard]] std::string table(double& y) const {
    std::string out;
    const std::size_t groups = roofline_.groups.size();
    const auto column = [&](std::size_t group, int i) {
      return kRight - kColumn * static_cast<double>(3 * (groups - 1 - group) + 2 - static_cast<std::size_t>(i));
    };
    for (std::size_t g = 0; g < groups; ++g) {
      out += svg::text(column(g, 1) - 4, y - 16, roofline_.groups[g], "label", Anchor::kMiddle);
      constexpr std::array<const char*, 3> kHeads = {"time", "flop/byte", "of roof"};
      for (int i = 0; i < 3; ++i) out += svg::text(column(g, i), y, kHeads[i], "tick", Anchor::kEnd);
    }
    out += svg::line(kLeft, y + 5, kRight, y + 5, "axis");
    const auto row = [&](const std::string& name, bool whole) {
      y += kRow;
      const auto most = static_cast<std::size_t>((column(0, 0) - 40 - kLeft - 20) / kCharacter);
      out += svg::text(kLeft + 20, y, name.size() > most ? name.substr(0, most - 1) + "…" : name, "label",
                       Anchor::kStart);
      for (const RooflineMark& mark : roofline_.marks) {
        if (mark.whole != whole || (!whole && mark.name != name)) continue;
        const std::array<std::string, 3> cells = {percent(mark.share), fmt::format("{:.3g}", mark.flops_per_byte),
                                                  percent(of_roof(mark))};
        for (int i = 0; i < 3; ++i) out += svg::text(column(mark.group, i), y, cells[i], "label", Anchor::kEnd);
      }
    };
    for (std::size_t i = 0; i < std::min(names_.size(), kLetters.size()); ++i) {
      row(names_[i], false);
      out += svg::text(kLeft + 4, y, std::string(1, kLetters[i]), "label", Anchor::kMiddle);
    }
    std::set<std::size_t> wholes;
    for (const RooflineMark& mark : roofline_.marks) {
      if (mark.whole) wholes.insert(mark.group);
    }
    if (!wholes.empty()) row("all kernels", true);
    double at = wholes.size() > 1 ? kLeft - 1 : kLeft + 4;
    for (const std::size_t g : wholes) {
      out += diamond(at, y - 4, 5, style_of(g), "");
      at += 11;
    }
    return out;
  }

  [[nodiscard]] std::string left_out(double& y) const {
    const std::size_t n = roofline_.left_out.size();
    if (n == 0) return "";
    y += 24;
    return svg::text(kLeft, y,
                     fmt::format("Not shown: {} operator{} without declared operations, {} of the kernels' time.", n,
                                 n == 1 ? "" : "s", percent(roofline_.left_out_share)),
                     "tick", Anchor::kStart);
  }

  const Roof& roof_;
  const Roofline& roofline_;
  Unit unit_;
  svg::Scale x_, y_;
  Labels labels_;
  std::vector<std::string> names_;  // of operators, the longest first: the order of the letters
};

}  // namespace

std::string roofline_svg(const std::string& title, const Roof& roof, const Roofline& roofline) {
  return Picture(roof, roofline).draw(title);
}

}  // namespace kvroof
