#include "sim/replay/row_cache.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <vector>

#include "sim/core/philox.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

float number(std::uint32_t i) { return 9 * uniform_open(philox4x32_10({{i, 0, 0, 0}}, 5).x[0]); }

// Which tokens each head of each point keeps after each step, and what the rows were.
class Sets final : public ReplayObserver {
 public:
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& set) override {
    sets.emplace_back(set.positions.begin(), set.positions.end());
  }
  std::vector<std::vector<TokenPos>> sets;
};

struct Trace {
  Trace(const std::string& name, std::uint32_t seed, std::uint32_t window = 0) : path(folder.path() / name) {
    Qkv shape;
    shape.layers = 2;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.tokens = 300;
    TraceOptions options;
    options.prompt = 200;
    if (window > 0) options.edit_layer = [window](TraceLayer& l) { l.window = window; };
    write_trace(path, random_qkv(shape, seed), options);
  }
  [[nodiscard]] std::vector<std::vector<TokenPos>> sets(RowCache* cache, unsigned threads = 2) const {
    const TraceReader trace = TraceReader::open(path);
    ThreadPool pool(threads);
    Sets seen;
    ReplayOptions options;
    options.observer = &seen;
    options.row_cache = cache;
    replay(trace, parse_policies("h2o:budget=60,h2o:budget=0.5,tova:budget=60,keyformer:budget=60"), options, pool);
    return seen.sets;
  }
  std::vector<std::vector<TokenPos>> cached(const std::string& name, unsigned threads = 2) const {
    RowCache cache(TraceReader::open(path), folder.path() / name);
    return sets(&cache, threads);
  }
  TemporaryFolder folder;
  std::filesystem::path path;
};

std::string problem_of(const Trace& trace, const std::string& rows) {
  try {
    trace.cached(rows);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a code of a weight is five bits of exponent and three of mantissa, and the next lower one of each weight") {
  std::vector<std::uint8_t> codes(257);
  for (std::size_t code = 0; code < 256; ++code) codes[code] = static_cast<std::uint8_t>(code);
  std::vector<float> logits(codes.size());
  decode_row(codes, {.token = 256, .weight = 1}, 0, logits);
  for (int code = 1; code < 256; ++code) {
    const double weight = std::ldexp(1 + code % 8 / 8.0, code / 8 - 31);
    CHECK(static_cast<double>(logits[static_cast<std::size_t>(code)]) == Approx(std::log(weight)).margin(1e-7));
    CHECK(floor_code(static_cast<float>(weight)) == code);
    CHECK(floor_code(std::nextafter(static_cast<float>(weight), 0.0F)) == (code > 1 ? code - 1 : 0));
  }
  CHECK(static_cast<double>(logits[0]) == Approx(std::log(std::ldexp(1 + 1 / 8.0, -32))));
  CHECK(floor_code(0) == 0);
  CHECK(floor_code(1000) == 255);
}

TEST_CASE("a coded weight errs by an eighth at most, a row's sum not at all, what rows pay a token by two roundings") {
  constexpr std::uint32_t kTokens = 100, kRows = 3000, kHidden = 3;
  RowEncoder encoder;
  encoder.start_layer(2, kTokens);
  std::vector<double> paid(kTokens), coded(kTokens), largest(kTokens);
  for (std::uint32_t r = 0; r < kRows; ++r) {
    std::vector<float> logits(kTokens), decoded(kTokens);
    for (std::uint32_t i = 0; i < kTokens; ++i) logits[i] = number(r * kTokens + i);
    std::vector<std::uint8_t> codes(kTokens, 99);
    const RowPeak peak = encoder.encode(1, logits, kHidden, codes);
    decode_row(codes, peak, kHidden, decoded);
    double sum = 0, exact = 0, highest = -1e30;
    for (std::uint32_t i = kHidden; i < kTokens; ++i) highest = std::max(highest, static_cast<double>(logits[i]));
    const double scale = std::exp2(-std::round(highest / std::log(2.0)));
    for (std::uint32_t i = kHidden; i < kTokens; ++i) {
      sum += std::exp(static_cast<double>(decoded[i])) * scale;
      exact += std::exp(static_cast<double>(logits[i])) * scale;
    }
    CHECK(sum == Approx(exact).epsilon(1e-5));
    CHECK(static_cast<double>(peak.sum) == Approx(exact).epsilon(1e-5));
    for (std::uint32_t i = 0; i < kTokens; ++i) {
      if (i < kHidden) {
        CHECK(std::isinf(decoded[i]));
        continue;
      }
      const double weight = std::exp(static_cast<double>(logits[i])) * scale;
      const double error = std::exp(static_cast<double>(decoded[i])) * scale - weight;
      if (i != peak.token) CHECK(std::abs(error) <= 0.1251 * weight);
      paid[i] += weight / exact;
      coded[i] += (weight + error) / exact;
      largest[i] = std::max(largest[i], weight / exact);
    }
  }
  // A rounding is an eighth of the largest share at most; three thousand without a memory would add up to more than one
  // share. The second is what a token took up of others as the peak of a row.
  for (std::uint32_t i = kHidden; i < kTokens; ++i) CHECK(std::abs(coded[i] - paid[i]) <= 0.25 * largest[i]);
}

TEST_CASE("a replay from cached rows is the same when they are made and when they are read, for any threads") {
  const Trace trace("x.kvt", 1);
  const auto made = trace.cached("rows");
  CHECK(trace.cached("rows") == made);
  CHECK(trace.cached("others", 1) == made);
  for (const char* file : {"s0.l0.safetensors", "s0.l1.safetensors"}) {
    CHECK(slurp(trace.folder.path() / "rows" / file) == slurp(trace.folder.path() / "others" / file));
  }
}

TEST_CASE("cached rows keep the tokens that exact rows keep, but for a few in a hundred, with and without a window") {
  for (const std::uint32_t window : {0U, 90U}) {
    const Trace trace("x.kvt", 2, window);
    const auto exact = trace.sets(nullptr), cached = trace.cached("rows");
    REQUIRE(exact.size() == cached.size());
    std::uint64_t tokens = 0, same = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      tokens += exact[i].size();
      for (const TokenPos t : cached[i]) same += std::ranges::binary_search(exact[i], t) ? 1 : 0;
    }
    CHECK(static_cast<double>(same) >= 0.98 * static_cast<double>(tokens));
    CHECK(same < tokens);  // the rows are not the exact ones
  }
}

TEST_CASE("cached rows are logits that others can stand beside: those of tokens that were merged") {
  const Trace made("x.kvt", 3);
  const TraceReader trace = TraceReader::open(made.path);
  RowCache cache(trace, made.folder.path() / "rows");
  ThreadPool pool(2);
  const auto error_of = [&](RowCache* rows) {
    ReplayOptions options;
    options.row_cache = rows;
    return replay(trace, parse_policies("d2o:budget=60"), options, pool)[0].quality->output_error.value();
  };
  const double exact = error_of(nullptr);
  CHECK(error_of(&cache) == Approx(exact).epsilon(0.03));
}

TEST_CASE("rows of another trace, cut ones and changed ones are refused by name, and a missing layer is made") {
  const Trace trace("x.kvt", 1), other("y.kvt", 2);
  const auto made = trace.cached("rows");
  const std::filesystem::path rows = trace.folder.path() / "rows", file = rows / "s0.l1.safetensors";
  CHECK(problem_of(trace, "rows").empty());
  other.cached("rows");
  const std::string good = slurp(file);
  const auto write = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  write(slurp(other.folder.path() / "rows" / "s0.l1.safetensors"));
  CHECK_THAT(problem_of(trace, "rows"), ContainsSubstring("s0.l1.safetensors: these are not the attention rows of"));
  write(good.substr(0, good.size() / 2));
  CHECK_THAT(problem_of(trace, "rows"), ContainsSubstring("s0.l1.safetensors") && ContainsSubstring("delete the file"));
  std::string changed = good;
  changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
  write(changed);
  CHECK_THAT(problem_of(trace, "rows"), ContainsSubstring("its checksum is wrong"));
  std::filesystem::remove(file);
  CHECK(RowCache(TraceReader::open(trace.path), rows).missing_bytes() == 4 * (300 * 301 / 2 + 300 * 16));
  CHECK(trace.cached("rows") == made);
  CHECK(slurp(file) == good);
}
