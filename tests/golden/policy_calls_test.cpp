// Policies that evict every so many steps, call after call, against reference cases.
#include "tests/golden/policy_cases.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// Tensors of a case. Where it has no q, the policy reads none, and k stands for it.
struct Cached {
  explicit Cached(const Case& c)
      : k(c.floats("k")), v(c.floats("v")), q(c.find("q") != nullptr ? c.floats("q") : k),
        query_heads(c.size(c.find("q") != nullptr ? "q" : "k", 0)), kv_heads(c.size("k", 0)), tokens(c.size("k", 1)),
        width(c.size("k", 2)) {}

  std::vector<float> k, v, q;
  std::uint32_t query_heads, kv_heads, tokens, width;
};

// Each call of the reference is after the prompt, or after `interval` steps more.
void compare_calls(const Case& c, const PolicySpec& spec, std::uint32_t interval) {
  const Cached x(c);
  const auto lengths = c.file.read_integers(*c.find("lengths"));
  const Shape shape = {.query_heads = x.query_heads,
                       .kv_heads = x.kv_heads,
                       .prompt = static_cast<std::uint32_t>(lengths.front()),
                       .decode = static_cast<std::uint32_t>(lengths.back() - lengths.front()),
                       .width = x.width};
  Driver driver(spec, shape, logits_of({x.query_heads, x.kv_heads, x.tokens, x.width, x.q, x.k}),
                DriverRows(x.q, x.k, x.v, x.query_heads, x.kv_heads, x.tokens, shape.prompt));
  driver.prompt();
  for (std::uint32_t call = 0; call < lengths.size(); ++call) {
    for (std::uint32_t i = 0; call > 0 && i < interval; ++i) {
      driver.row(shape.prompt + (call - 1) * interval + i);
    }
    check_all_heads(c, driver, "kept_steps", call, shape.kv_heads);
  }
}

}  // namespace

TEST_CASE("r-kv keeps the reference's sets call after call, in the reference's order of storage") {
  for (const Case& c : cases_named("rkv_")) {
    const auto& p = c.json["parameters"];
    const auto interval = p["interval"].get<std::uint32_t>();
    compare_calls(c,
                  spec_of(fmt::format("r-kv:budget={}:window={}:kernel={}:lambda={}:when={}", p["budget"].get<int>(),
                                      p["window"].get<int>(), p["kernel"].get<int>(), p["mix_lambda"].get<double>(),
                                      interval)),
                  interval);
  }
}

TEST_CASE("knorm and keydiff with when=N keep what kvpress' DecodingPress keeps, call after call") {
  for (const Case& c : cases_named("decoding_")) {
    const auto& p = c.json["parameters"];
    const auto interval = p["compression_interval"].get<std::uint32_t>();
    compare_calls(c,
                  spec_of(fmt::format("{}:budget={}:when={}", p["base"].get<std::string>(),
                                      p["target_size"].get<int>(), interval)),
                  interval);
  }
}
