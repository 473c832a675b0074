// Each analysis of rows against hand calculations on a few rows of attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/analysis.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

using Rows = std::vector<std::vector<float>>;  // weights of the tokens 0 … query

// The rows from the query `first` on, those from `prompt` on being decoded, as analyze() would feed them.
HeadValues values_of(std::string_view name, std::uint32_t prompt, const Rows& rows, std::uint32_t first = 0) {
  const AnalysisInfo& info = find_analysis(name);
  HeadContext context;
  context.prompt = prompt;
  context.tokens = first + static_cast<std::uint32_t>(rows.size());
  const auto head = info.start(context);
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    HeadRow row;
    row.query = TokenPos(first + i);
    row.decoded = first + i >= prompt;
    row.weights = rows[i];
    row.mass = 0;
    for (const float weight : rows[i]) row.mass += static_cast<double>(weight);
    if (row.decoded || info.prompt_rows) head->row(row);
  }
  HeadValues values = head->finish();
  CHECK(values.measures.size() == info.measures.size());
  return values;
}

// `tokens` weights, nearly all on the given ones in equal parts.
std::vector<float> on(std::size_t tokens, const std::vector<std::size_t>& given) {
  std::vector<float> weights(tokens, 1e-6F);
  for (const std::size_t token : given) weights[token] = 1.0F / static_cast<float>(given.size());
  return weights;
}

bool falls(const std::vector<double>& y) { return std::is_sorted(y.rbegin(), y.rend()); }

}  // namespace

TEST_CASE("Attention mass: each step's largest weights, and one set in hindsight") {
  const Rows rows = {{1}, {0.25F, 0.75F}, {0.5F, 0.45F, 0.05F}, {0.05F, 0.25F, 0.1F, 0.6F}};
  const HeadValues values = values_of("mass", 2, rows);
  // 0.5 + 0.45 are 2 of 3 tokens; 0.6 + 0.25 + 0.1 are 3 of 4.
  CHECK(values.measures[0] == Approx((2.0 / 3 + 3.0 / 4) / 2));
  CHECK(values.measures[1] == Approx(2.5));
  // By token 0.55, 0.7, 0.15, 0.6 of 2: the first three of 0.7 + 0.6 + 0.55 are more than 1.8.
  CHECK(values.measures[2] == Approx(0.75));
  CHECK(values.lines[0][50] == Approx((0.95 + 0.85) / 2));  // ⌈1.5⌉ and 2 tokens
  CHECK(values.lines[0][34] == Approx((0.95 + 0.85) / 2));  // ⌈1.02⌉ and ⌈1.36⌉
  CHECK(values.lines[0][33] == Approx((0.5 + 0.85) / 2));
  CHECK(values.lines[1][50] == Approx(1.3 / 2));
}

TEST_CASE("The mass of no token is 0, that of all is 1, and more tokens never have less") {
  Rows rows(40);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) rows[i].push_back(static_cast<float>(1 + (i * 7 + j * 13) % 11));
  }
  const HeadValues values = values_of("mass", 10, rows);
  for (const std::vector<double>& line : values.lines) {
    CHECK(line.front() == 0);
    CHECK(line.back() == Approx(1));
    CHECK(std::is_sorted(line.begin(), line.end()));
  }
}

TEST_CASE("Sparsity counts weights below 1 % of the row's maximum, and below an even share") {
  const Rows rows = {{0.8F, 0.197F, 0.003F}, {0.27F, 0.05F, 0.1F, 0.58F}};
  const HeadValues values = values_of("sparsity", 2, rows, 2);
  CHECK(values.measures[0] == Approx((1.0 / 3 + 0) / 2));            // 0.003 < 0.008
  CHECK(values.measures[1] == Approx((2.0 / 3 + 2.0 / 4) / 2));      // 1/3 and 1/4
  CHECK(values.lines[0].back() == Approx((2.0 / 3 + 3.0 / 4) / 2));  // all but the maximum are below it
  // Below 2^−2 of the maximum: 0.197 and 0.003 of 0.8; 0.05 and 0.1 of 0.58.
  CHECK(values.lines[0][18] == Approx((2.0 / 3 + 2.0 / 4) / 2));
  CHECK(std::is_sorted(values.lines[0].begin(), values.lines[0].end()));
}

TEST_CASE("The persistence ratio is that of Scissorhands, beside a random set of the same size") {
  const Rows rows = {{1},
                     {0.2F, 0.8F},                               // 1
                     {0.6F, 0.2F, 0.2F},                         // 0
                     {0.1F, 0.1F, 0.6F, 0.2F},                   // 2
                     {0.5F, 0.1F, 0.1F, 0.12F, 0.18F},           // 0
                     {0.05F, 0.05F, 0.05F, 0.05F, 0.4F, 0.4F}};  // 4 and 5, which are no older than the split
  const HeadValues values = values_of("persistence", 2, rows);
  CHECK(values.measures[0] == Approx(1.0 / 2));  // of {0, 2} pivotal after, {0} was in {0, 1}
  CHECK(values.measures[1] == Approx(2.0 / 3));
  CHECK(values.measures[2] == Approx(1.0 / 2 - 2.0 / 3));
}

TEST_CASE("When every token was pivotal, persistence is 1 and so is its baseline") {
  const Rows rows = {{1}, on(2, {0}), on(3, {1, 2}), on(4, {2}), on(5, {0}), on(6, {1})};
  const HeadValues values = values_of("persistence", 2, rows);
  CHECK(values.measures[0] == 1);
  CHECK(values.measures[1] == 1);
}

TEST_CASE("Without an earlier token that is pivotal later there is no persistence ratio") {
  const Rows rows = {{1}, on(2, {0}), on(3, {2}), on(4, {3})};
  CHECK(std::isnan(values_of("persistence", 2, rows).measures[0]));
}

TEST_CASE("Where a window hides the prompt there are no heavy hitters, and fewer where it shows few of its tokens") {
  Rows rows = {on(1, {0})};
  for (std::size_t i = 1; i < 20; ++i) rows.push_back(on(i + 1, {0, 1}));  // of 20 prompt tokens two are heavy
  for (std::size_t i = 20; i < 28; ++i) {
    std::vector<float> weights(i + 1, 0.0F);
    weights[i] = 1;
    if (i < 21) weights[1] = 0.5F;  // all that the first eighth sees of the prompt
    rows.push_back(std::move(weights));
  }
  const HeadValues values = values_of("heavy-hitters", 20, rows);
  CHECK(values.lines[0][0] == 1);
  for (std::size_t i = 1; i < 8; ++i) CHECK(std::isnan(values.lines[0][i]));
  CHECK(values.measures[0] == 1);
  CHECK(std::isnan(values.measures[1]));
}

TEST_CASE("Heavy hitters of the prompt are compared with those of each eighth of the generation") {
  Rows rows;
  for (std::size_t i = 0; i < 10; ++i) rows.push_back(on(i + 1, {0}));  // of 10 prompt tokens one is heavy: 0
  for (std::size_t i = 10; i < 14; ++i) rows.push_back(on(i + 1, {0}));
  for (std::size_t i = 14; i < 18; ++i) rows.push_back(on(i + 1, {3, i}));  // token i was decoded: it does not count
  const HeadValues values = values_of("heavy-hitters", 10, rows);
  CHECK(values.lines[0] == std::vector<double>{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(values.lines[1] == std::vector<double>{1, 1, 1, 1, 0, 1, 1, 1});
  CHECK(values.measures[0] == Approx(0.5));
  CHECK(values.measures[1] == 0);
  CHECK(values.measures[2] == Approx(0.1));
}

TEST_CASE("The entropy of an even attention to n tokens is ln n, that of a single one 0") {
  const HeadValues even = values_of("entropy", 1, {std::vector<float>(8, 0.125F)}, 7);
  CHECK(even.measures[0] == Approx(1));
  CHECK(even.measures[1] == Approx(8));
  CHECK(even.measures[2] == Approx(std::log(8)));
  const HeadValues single = values_of("entropy", 1, {{0, 1, 0, 0}}, 3);
  CHECK(single.measures[0] == Approx(0.25));
  CHECK(single.measures[2] == 0);
  // ½ ln 2 + 2 · ¼ ln 4; weights that do not quite sum to 1 are divided by their sum.
  CHECK(values_of("entropy", 1, {{0.51F, 0.255F, 0.255F}}, 2).measures[2] == Approx(1.5 * std::log(2)));
}

TEST_CASE("The exponent of an exact power law is found, with nothing left to explain") {
  std::vector<float> weights;
  for (std::size_t token = 0; token < 64; ++token) {
    const auto rank = static_cast<double>((token * 37) % 64 + 1);  // in any order
    weights.push_back(static_cast<float>(std::pow(rank, -1.5)));
  }
  const HeadValues values = values_of("power-law", 1, {weights}, 63);
  CHECK(values.measures[0] == Approx(1.5).epsilon(1e-5));
  CHECK(values.measures[1] == Approx(1).epsilon(1e-6));
  CHECK(values.measures[2] == 32);
  CHECK(values.lines[0].size() == values.lines[1].size());
  CHECK(std::abs(values.lines[0][4] - values.lines[1][4]) < 1e-6);
}

TEST_CASE("A line through scores that do not follow a power law has a lower R²") {
  std::vector<float> weights;
  for (std::size_t token = 0; token < 64; ++token) weights.push_back(token < 16 ? 1.0F : 0.001F);
  const HeadValues values = values_of("power-law", 1, {weights}, 63);
  CHECK(values.measures[1] < 0.8);
  CHECK(values.measures[1] > 0);
}

TEST_CASE("Reuse distances are steps from one touch of a token to its next") {
  // Token 0 is touched in rows 1, 2, 4 and 7: distances 1, 2, 3; token 1 in rows 3 and 5: distance 2.
  const Rows rows = {{1}, on(2, {0}), on(3, {0}), on(4, {1}), on(5, {0}), on(6, {1}), on(7, {6}), on(8, {0})};
  const HeadValues values = values_of("reuse", 4, rows);
  CHECK(values.measures[2] == 2);  // of 1, 2, 2, 3
  CHECK(values.measures[3] == Approx(2.7));  // 0.7 of the way from the third to the fourth
  CHECK(values.lines[0][0] == 1);             // of at least 1
  CHECK(values.lines[0][1] == Approx(0.75));  // 2
  CHECK(values.lines[0][2] == 0);             // 4
  // While decoding (rows 4 to 7) tokens 0 and 1 of the prompt are touched, last at steps 4 and 2.
  CHECK(values.measures[0] == Approx(2.0 / 4));
  CHECK(values.measures[1] == Approx(1.0 / 2));  // after step 2: only token 0
  CHECK(values.lines[1].front() == 1);
  CHECK(values.lines[1].back() == 0);
}

TEST_CASE("Survival and reuse start at 1 and never rise") {
  Rows rows(60);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) rows[i].push_back(static_cast<float>(1 + (i * 31 + j * j * 17) % 23));
  }
  const HeadValues values = values_of("reuse", 20, rows);
  for (std::vector<double> line : values.lines) {
    std::erase_if(line, [](double y) { return std::isnan(y); });
    CHECK(line.size() > 5);
    CHECK(line.front() == 1);
    CHECK(falls(line));
  }
}

TEST_CASE("Recency: every token is a sink, one of the last 32, or between") {
  std::vector<float> row(100, 0.002F);
  row[1] = 0.2F;
  row[99] = 0.3F;
  row[60] = 0.1F;
  const double sum = 97 * 0.002 + 0.6;
  const HeadValues values = values_of("recency", 50, {row}, 99);
  CHECK(values.measures[0] == Approx((0.2 + 3 * 0.002) / sum));
  CHECK(values.measures[1] == Approx((0.3 + 31 * 0.002) / sum));
  CHECK(values.measures[2] == Approx(0.3 / sum));
  CHECK(values.measures[3] == Approx((0.1 + 63 * 0.002) / sum));
  CHECK(values.measures[0] + values.measures[1] + values.measures[3] == Approx(1));
  CHECK(values.lines[0][2] == Approx((0.3 + 3 * 0.002) / sum));  // the last 4 tokens
  CHECK(values.lines[1][2] == Approx((0.5 + 6 * 0.002) / sum));  // and the first 4
  CHECK(values.lines[0][7] == Approx(1));                        // 128 tokens are all
  CHECK(values.lines[1][7] == Approx(1));
  CHECK(std::isnan(values.lines[0][8]));
}

TEST_CASE("The own token is not counted twice when first and last tokens meet") {
  const HeadValues values = values_of("recency", 1, {{0.5F, 0.3F, 0.2F}}, 2);
  CHECK(values.measures[3] == 0);
  CHECK(values.lines[1][0] == Approx(1));  // the last one and the first four
  CHECK(values.lines[0][0] == Approx(0.2));
}

TEST_CASE("Two opposite values reach the bound of the output error") {
  const std::vector<float> v = {3, 4, 0, 0, 0, 0, -3, -4};  // tokens 0 … 3, two wide
  const AnalysisInfo& info = find_analysis("bound");
  const auto head = info.start({2, 4, 2});  // the window holds 1 + 1 tokens
  const std::vector<float> weights = {0.4F, 0, 0, 0.6F};
  const std::vector<float> output = {3 * 0.4F - 3 * 0.6F, 4 * 0.4F - 4 * 0.6F};
  HeadRow row;
  row.query = TokenPos(3);
  row.decoded = true;
  row.weights = weights;
  row.values = {reinterpret_cast<const std::byte*>(v.data()), DType::kF32, 2, 2, 4};
  row.output = output;
  head->row(row);
  const HeadValues values = head->finish();
  CHECK(values.measures[0] == Approx(4.0));  // ‖o − v₃‖ = 0.8 · 5 of ‖o‖ = 0.2 · 5
  CHECK(values.measures[1] == Approx(4.0));  // 2 · 0.4 · 5 of the same
  CHECK(values.measures[2] == Approx(0.4));
  CHECK(values.measures[3] == Approx(1.0).epsilon(1e-4));
}
