#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

std::vector<double> product(std::span<const float> x, const Weight& w, const Weight* bias) {
  const std::size_t tokens = x.size() / w.cols;
  std::vector<double> out(tokens * w.rows);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t r = 0; r < w.rows; ++r) {
      double sum = bias == nullptr ? 0 : at(bias->view(), 0, r);
      for (std::size_t c = 0; c < w.cols; ++c) sum += static_cast<double>(x[t * w.cols + c]) * at(w.view(), r, c);
      out[t * w.rows + r] = sum;
    }
  }
  return out;
}

}  // namespace

TEST_CASE(
    "linear equals the product in double precision for every type, odd size, number of tokens and instruction set") {
  struct Size {
    std::size_t rows, cols;
  };
  for (const DType type : kTypes) {
    for (const auto [rows, cols] : {Size{1, 1}, Size{3, 5}, Size{8, 32}, Size{9, 33}, Size{37, 127}, Size{130, 200}}) {
      const Weight w = random_weight(type, rows, cols, 1);
      const Weight bias = random_weight(type, 1, rows, 2);
      for (const std::size_t tokens : {1, 2, 3, 4, 5, 7, 31, 32, 33}) {
        const std::vector<float> x = numbers(tokens * cols, 3);
        for (const Weight* b : {static_cast<const Weight*>(nullptr), &bias}) {
          const std::vector<double> expected = product(x, w, b);
          on_every_target([&] {
            INFO(name_of(type) << " " << rows << " x " << cols << ", tokens " << tokens << ", bias " << (b != nullptr));
            std::vector<float> out = poisoned(tokens * rows);
            make_fast_ops(1)->linear(x, w, b, out);
            CHECK(deviation(out, expected) <= 1e-6 * std::sqrt(static_cast<double>(cols)));
          });
        }
      }
    }
  }
}

TEST_CASE("linear of a large matrix, cut into many tasks, equals the product in double precision") {
  for (const DType type : kTypes) {
    const Weight w = random_weight(type, 1003, 517, 4);
    for (const std::size_t tokens : {1, 6, 40}) {
      const std::vector<float> x = numbers(tokens * w.cols, 5);
      std::vector<float> out = poisoned(tokens * w.rows);
      make_fast_ops(2)->linear(x, w, nullptr, out);
      CHECK(deviation(out, product(x, w, nullptr)) <= 1e-5);
    }
  }
}

TEST_CASE("linear reads no element behind the last row, and none of a neighbouring row") {
  // Columns behind the width hold NaN: 0 · NaN would show.
  const std::size_t cols = 45;
  for (const DType type : kTypes) {
    Weight w = random_weight(type, 16, cols, 6);
    const std::vector<float> nan = poisoned(cols);
    convert_from_float(type, nan, w.data.data() + 9 * cols * size_of(type));
    const std::vector<float> x = numbers(cols, 7);
    on_every_target([&] {
      std::vector<float> out = poisoned(16);
      make_fast_ops(1)->linear(x, w, nullptr, out);
      for (std::size_t r = 0; r < 16; ++r) CHECK(std::isnan(out[r]) == (r == 9));
    });
  }
}

TEST_CASE("linear has the same bits for 1, 2 and 16 threads") {
  for (const DType type : kTypes) {
    const Weight w = random_weight(type, 777, 1030, 8);
    for (const std::size_t tokens : {1, 3, 8, 64}) {
      const std::vector<float> x = numbers(tokens * w.cols, 9);
      std::vector<float> one = poisoned(tokens * w.rows);
      make_fast_ops(1)->linear(x, w, nullptr, one);
      for (const unsigned threads : {2U, 16U}) {
        std::vector<float> many = poisoned(tokens * w.rows);
        make_fast_ops(threads)->linear(x, w, nullptr, many);
        CHECK(same_bits(one, many));
      }
    }
  }
}

TEST_CASE("a token decoded in a small batch gets the bits that it gets alone") {
  for (const DType type : kTypes) {
    const Weight w = random_weight(type, 300, 400, 10);
    const std::vector<float> x = numbers(7 * w.cols, 11);
    std::vector<float> batch = poisoned(7 * w.rows);
    make_fast_ops(2)->linear(x, w, nullptr, batch);
    for (std::size_t t = 0; t < 7; ++t) {
      std::vector<float> alone = poisoned(w.rows);
      make_fast_ops(2)->linear(std::span(x).subspan(t * w.cols, w.cols), w, nullptr, alone);
      CHECK(same_bits(alone, std::span(batch).subspan(t * w.rows, w.rows)));
    }
  }
}

TEST_CASE("linear counts the weights once whatever the number of tokens, and each activation in and out") {
  const Weight w = random_weight(DType::kBF16, 30, 20, 12);
  const Weight bias = random_weight(DType::kBF16, 1, 30, 13);
  for (const std::size_t tokens : {1, 5, 50}) {
    const auto ops = make_fast_ops(2);
    const std::vector<float> x = numbers(tokens * 20, 14);
    std::vector<float> out(tokens * 30);
    ops->linear(x, w, &bias, out);
    CHECK(ops->counters()[Cause::kWeights] == (30 * 20 + 30) * 2);
    CHECK(ops->counters()[Cause::kActivations] == tokens * (20 + 30) * 4);
    CHECK(ops->counters().total() == (30 * 20 + 30) * 2 + tokens * (20 + 30) * 4);
  }
}
