#include "sim/policy/budget.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

std::uint32_t tokens(std::string_view text, std::uint32_t prompt, std::uint32_t current) {
  return parse_budget(text).or_throw(text).tokens(prompt, current);
}

std::string why_not(std::string_view text) {
  const auto parsed = parse_budget(text);
  return parsed.ok() ? "accepted" : parsed.error();
}

}  // namespace

TEST_CASE("a budget with a decimal point or % is a fraction of the prompt, whatever the current length") {
  CHECK(tokens("0.5", 101, 101) == 50);
  CHECK(tokens("0.5", 101, 1000) == 50);
  CHECK(tokens("50%", 101, 1000) == 50);
  CHECK(tokens("1.0", 101, 1000) == 101);
  CHECK(tokens("100%", 101, 1000) == 101);
  CHECK(tokens("0.001", 101, 1000) == 1);
}

TEST_CASE("a budget without a decimal point is a count of tokens") {
  CHECK(tokens("512", 101, 1000) == 512);
  CHECK(tokens("1", 101, 1000) == 1);
}

TEST_CASE("a count of tokens may be in units of 1024, as 4k") {
  CHECK(tokens("1k", 101, 1000) == 1024);
  CHECK(tokens("4K", 101, 1000) == 4096);
  CHECK(parse_budget("1k").or_throw("").describe() == "1024 tokens");
  CHECK(why_not("0k").find("keeps nothing") != std::string::npos);
  CHECK(why_not("9999999k").find("more tokens") != std::string::npos);
  for (const char* wrong : {"k", "0.5k", "50k%", "50%k", "1k@current", "1kk", "1 k"}) {
    INFO(wrong);
    CHECK(why_not(wrong).find("is no budget") != std::string::npos);
  }
}

TEST_CASE("a budget @current follows the current length") {
  CHECK(tokens("0.5@current", 100, 100) == 50);
  CHECK(tokens("0.5@current", 100, 161) == 80);
  CHECK(tokens("50%@current", 100, 161) == 80);
}

TEST_CASE("a fraction means the decimal that was written, not its binary neighbour") {
  CHECK(tokens("0.29", 100, 100) == 29);
  CHECK(tokens("0.57", 100, 100) == 57);
  CHECK(tokens("0.1", 1000, 1000) == 100);
}

TEST_CASE("compression keeps int(n · (1 − r)) in double precision: 9 of 100 at 0.9") {
  CHECK(parse_compression("0.9").or_throw("r").tokens(100, 100) == 9);
  CHECK(parse_compression("0.3").or_throw("r").tokens(264, 300) == 184);
  CHECK(parse_compression("0.5").or_throw("r").tokens(1, 1) == 1);
  CHECK(parse_compression("0").or_throw("r").tokens(100, 100) == 100);
  for (const char* wrong : {"1", "1.0", "-0.1", "nan", "", "0.5.5", "5e-1", "inf"}) {
    INFO(wrong);
    CHECK_FALSE(parse_compression(wrong).ok());
  }
}

TEST_CASE("a budget of 0, below 0, above 1, or that is no number is refused with a reason") {
  CHECK(why_not("0") == "`0`: a budget of 0 tokens keeps nothing; the least is 1");
  CHECK(why_not("0.0") == "`0.0`: a budget of 0 keeps nothing");
  CHECK(why_not("0%") == "`0%`: a budget of 0 keeps nothing");
  CHECK(why_not("-5") == "`-5`: a budget is positive");
  CHECK(why_not("-0.5") == "`-0.5`: a budget is positive");
  CHECK(why_not("1.5").find("at most 1") != std::string::npos);
  CHECK(why_not("101%").find("at most 1") != std::string::npos);
  CHECK(why_not("512@current").find("fraction") != std::string::npos);
  CHECK(why_not("99999999999").find("more tokens") != std::string::npos);
  for (const char* wrong :
       {"nan", "inf", "+5", "0x10", "1e3", "", ".", "%", "@current", "half", "0.5@now", "0.5 ", "1.2.3"}) {
    INFO(wrong);
    CHECK(why_not(wrong).find("is no budget") != std::string::npos);
  }
  CHECK(why_not(std::string(1'000'000, '9')).size() < 300);
}

TEST_CASE("the output can say what a budget is relative to") {
  CHECK(parse_budget("0.5").or_throw("").describe() == "50 % of the prompt");
  CHECK(parse_budget("7%").or_throw("").describe() == "7 % of the prompt");
  CHECK(parse_budget("512").or_throw("").describe() == "512 tokens");
  CHECK(parse_budget("1").or_throw("").describe() == "1 token");
  CHECK(parse_budget("0.5@current").or_throw("").describe() == "50 % of the current length");
  CHECK(parse_compression("0.3").or_throw("").describe() == "the prompt less 30 %");
  CHECK(Budget().describe() == "unlimited");
}

TEST_CASE("a compression of 0.8 brings the cache of Llama-3.1-8B at 128k from 15.6 to 3.1 GiB, as kvpress measured") {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  constexpr double kTokenBytes = 2.0 * 32 * 8 * 128 * 2;  // k and v, layers, KV heads, width, bf16
  const Budget compressed = parse_compression("0.8").or_throw("0.8");
  CHECK(128000 * kTokenBytes / kGib == Approx(15.6).margin(0.05));
  CHECK(compressed.tokens(128000, 128000) * kTokenBytes / kGib == Approx(3.1).margin(0.05));
}

TEST_CASE("a budget of more than thirty digits is refused, and the message shows no more than forty") {
  const std::string long_one = "0." + std::string(1000, '3'), thirty = "0." + std::string(28, '3');
  CHECK(tokens(thirty, 200, 200) == 66);
  CHECK(why_not(long_one).find("is no budget") != std::string::npos);
  CHECK(why_not(long_one).find(long_one.substr(0, 41)) == std::string::npos);
  CHECK_FALSE(parse_compression(long_one).ok());
}
