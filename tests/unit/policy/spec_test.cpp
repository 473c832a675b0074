#include "sim/policy/spec.hpp"

#include "sim/policy/policy.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// The message and notes of the error that parsing gives.
std::string why_not(std::string_view text, const std::vector<Budget>& budgets = {}) {
  try {
    (void)cross_budgets(parse_policies(text), budgets);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    std::string all = error.what();
    for (const std::string& note : error.notes()) all += " | " + note;
    return all;
  }
  return "accepted";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

Budget budget(std::string_view text) { return parse_budget(text).or_throw(text); }

}  // namespace

TEST_CASE("a specification is a name and parameters, several are separated by commas") {
  const auto specs = parse_policies("full,h2o:budget=0.5,keyformer:recent=0.3:budget=512:noise=query:tau=1..2");
  REQUIRE(specs.size() == 3);
  CHECK(specs[0].text() == "full");
  CHECK(specs[1].text() == "h2o:budget=0.5");
  CHECK(specs[2].text() == "keyformer:budget=512:recent=0.3:noise=query:tau=1..2");
  CHECK(specs[2].budget.kind == Budget::Kind::kTokens);
  CHECK(parse_policies("streaming:compression=0.5:sinks=4")[0].text() == "streaming:compression=0.5:sinks=4");
}

TEST_CASE("blanks around an item of a list of policies are none of it, and blanks inside stay a mistake") {
  const auto specs = parse_policies(" h2o:budget=0.5 ,\twindow, full ");
  REQUIRE(specs.size() == 3);
  CHECK(specs[0].text() == "h2o:budget=0.5");
  CHECK(specs[1].text() == "window");
  CHECK(specs[2].text() == "full");
  CHECK(contains(why_not("full, ,window"), "a policy is missing"));
  CHECK(contains(why_not("h2o: budget=0.5"), "has no parameter ` budget`"));
}

TEST_CASE("specifications decide alike whose budgets and values are the same numbers, written or left to a default") {
  const auto alike = [](std::string_view a, std::string_view b) {
    const auto x = parse_policies(a), y = parse_policies(b);
    CHECK(same_decisions(x.front(), y.front()) == same_decisions(y.front(), x.front()));
    return same_decisions(x.front(), y.front());
  };
  for (const char* other : {"h2o:budget=50%", "h2o:budget=0.50", "h2o:budget=.5", "h2o:budget=0.5:recent=0.5",
                            "h2o:recent=50%:budget=0.5", "h2o:budget=0.5:group=sum:page=1"}) {
    INFO(other);
    CHECK(alike("h2o:budget=0.5", other));
  }
  CHECK(alike("h2o:budget=4k", "h2o:budget=4096"));
  CHECK(alike("h2o:budget=0.123", "h2o:budget=12.3%"));
  CHECK(alike("scissorhands-4bit:budget=8", "scissorhands:budget=8:history=400"));
  for (const char* other : {"h2o:budget=0.5@current", "h2o:compression=0.5", "h2o:budget=0.51", "h2o",
                            "tova:budget=0.5", "h2o:budget=0.5:recent=0.4", "h2o:budget=0.5:group=mean"}) {
    INFO(other);
    CHECK_FALSE(alike("h2o:budget=0.5", other));
  }
  CHECK_FALSE(alike("h2o:budget=8:recent=1", "h2o:budget=8:recent=1.0"));  // a token, and all of them
  CHECK_FALSE(alike("snapkv:budget=9:rule=kvpress", "snapkv:budget=9:rule=kvpress:window=32"));  // there it is 64
  CHECK_FALSE(alike("quest:budget=9:rule=repository", "quest:budget=9:rule=repository:current=yes"));
}

TEST_CASE("rule=kvpress has the window of kvpress, 64 rows, where none is given") {
  const auto rows = [](const std::string& text) {
    return policy_info(parse_policies(text).front().name).traits(parse_policies(text).front()).last_rows;
  };
  for (const std::string policy : {"snapkv", "pyramidkv", "adakv"}) {
    INFO(policy);
    CHECK(rows(policy + ":budget=100") == 32);
    CHECK(rows(policy + ":budget=100:rule=repository") == 32);
    CHECK(rows(policy + ":budget=100:rule=kvpress") == 64);
    CHECK(rows(policy + ":budget=100:rule=kvpress:window=16") == 16);
  }
}

TEST_CASE("parameters that another inner policy leaves no meaning to are refused beside it") {
  CHECK(contains(why_not("adakv:budget=9:inner=knorm:rule=repository"), "expected rule=kvpress or none"));
  CHECK(contains(why_not("adakv:budget=9:inner=keydiff:heads=file"), "give one of them"));
  CHECK(contains(why_not("adakv:budget=9:inner=expected-attention:group=max"), "group=max is of inner=snapkv"));
  CHECK(contains(why_not("adakv:budget=9:inner=expected-attention:vnorm=maybe"), "expected yes or no"));
  CHECK(contains(why_not("adakv:budget=9:inner=snap"), "did you mean snapkv?"));
}

TEST_CASE("unknown policies, parameters and values are answered with the nearest name") {
  CHECK(contains(why_not("keyfomer:budget=0.5"),
                 "unknown policy `keyfomer`; did you mean keyformer? | policies: "));
  CHECK(contains(why_not("zebra"), "unknown policy `zebra` | policies: "));
  CHECK(contains(why_not("h2o:budget=0.5:recant=3"),
                 "policy h2o has no parameter `recant`; did you mean recent? | it takes"));
  CHECK(contains(why_not("h2o:budgt=0.5"), "did you mean budget?"));
  CHECK(contains(why_not("keyformer:budget=9:noise=tokens"),
                 "noise=`tokens`: expected token or query or none; did you mean token?"));
  CHECK(contains(why_not("scissorhands:budget=9:reading=C"), "reading=`C`: expected A or B"));
  CHECK(contains(why_not("h2o:budget=9:when=prefil"),
                 "when=`prefil`: expected every_step, prefill or a number of steps; did you mean prefill?"));
  CHECK(contains(why_not("keyformer:budget=9:tau=warm"), "tau=`warm`: expected a temperature"));
  CHECK(contains(why_not("keyformer:budget=9:tau=0..1"), "expected a temperature above 0"));
}

TEST_CASE("counts that no context holds are refused, as are rows of which too much would be remembered") {
  for (const char* count : {"2147483648", "4294967295", "4294967296"}) {
    CHECK(contains(why_not(fmt::format("entropy-gated-chunkkv:budget=9:window={}", count)),
                   "expected a whole number from 1 to 2147483647"));
  }
  CHECK(why_not("snapkv:budget=9:window=2147483647") == "accepted");
  CHECK(contains(why_not("r-kv:budget=9:window=65537"), "window=65537: at most 65536 rows are remembered"));
  CHECK(contains(why_not("scissorhands:budget=9:history=65537"), "history=65537: at most 65536 rows are remembered"));
}

TEST_CASE("malformed specifications are refused in one sentence") {
  CHECK(contains(why_not(""), "a policy is missing"));
  CHECK(contains(why_not("full,"), "a policy is missing"));
  CHECK(contains(why_not("h2o:budget"), "`budget` has no value; write budget=…"));
  CHECK(contains(why_not("h2o:budget=0.5:budget=0.6"), "budget is given twice"));
  CHECK(contains(why_not("h2o:budget=0.5:compression=0.5"), "say the same thing twice"));
  CHECK(contains(why_not("h2o:budget=0.5:recent=1:recent=2"), "recent is given twice"));
  CHECK(contains(why_not("h2o:budget=0"), "policy h2o: budget: `0`: a budget of 0 tokens keeps nothing"));
  CHECK(contains(why_not("h2o:budget=1.5"), "a fraction is at most 1"));
  CHECK(contains(why_not("h2o:budget=nan"), "is no budget"));
  CHECK(contains(why_not("h2o:budget=0.5:recent=-1"), "recent=`-1`: expected a number of tokens"));
  CHECK(contains(why_not("h2o:budget=0.5:recent=1.5"), "recent=`1.5`: expected a number of tokens"));
  CHECK(contains(why_not("full:budget=0.5"), "policy full has no parameter `budget` | it takes no parameters"));
  CHECK(contains(why_not("scissorhands:budget=9:history=0"), "history=`0`: expected a whole number, at least 1"));
  CHECK(contains(why_not("scissorhands:budget=9:history=70000"), "at most 65536 rows"));
  CHECK(contains(why_not("streaming:budget=9:sinks=99999999999"), "expected a whole number"));
  CHECK(contains(why_not("tova:budget=9:rule=kvpress:when=8"), "evicts once after the prompt; leave out when"));
  CHECK(why_not(std::string(1'000'000, 'x')).size() < 600);
}

TEST_CASE("parts of a budget in tokens that exceed it are refused, with both numbers") {
  CHECK(contains(why_not("h2o:budget=10:recent=20"), "recent=20 exceeds the budget of 10 tokens"));
  CHECK(contains(why_not("scissorhands:budget=10:recent=2:drop=11"), "drop=11 exceeds the budget of 10 tokens"));
  CHECK(contains(why_not("streaming:budget=4"), "a budget of 4 tokens leaves no recent token beside 4 sinks"));
  CHECK(contains(why_not("h2o:recent=20", {budget("0.5"), budget("10")}), "recent=20 exceeds the budget of 10 tokens"));
  CHECK(contains(why_not("streaming", {budget("3")}), "leaves no recent token beside 4 sinks"));
  CHECK(why_not("h2o:budget=10:recent=10") == "accepted");
}

TEST_CASE("a sweep is each policy at each budget, full and policies with a budget of their own are one point") {
  const auto points = cross_budgets(parse_policies("full,window,h2o:recent=0.3"), {budget("0.2"), budget("512")});
  std::vector<std::string> names;
  for (const PolicySpec& point : points) names.push_back(point.text());
  CHECK(names == std::vector<std::string>{"full", "window:budget=0.2", "window:budget=512", "h2o:budget=0.2:recent=0.3",
                                          "h2o:budget=512:recent=0.3"});
  CHECK(cross_budgets(parse_policies("full,h2o:budget=0.5"), {}).size() == 2);
}

TEST_CASE("budgets of a sweep are for the policies that carry none, and those that carry one keep it") {
  const auto points = cross_budgets(parse_policies("h2o:compression=0.5,window,h2o:budget=9"), {budget("0.2")});
  REQUIRE(points.size() == 3);
  CHECK(points[0].text() == "h2o:compression=0.5");
  CHECK(points[1].text() == "window:budget=0.2");
  CHECK(points[2].text() == "h2o:budget=9");
}

TEST_CASE("a budget that no side gives, and one that no policy lacks, are errors") {
  CHECK(contains(why_not("h2o"), "policy h2o needs a budget | give --budget 0.5, or write h2o:budget=0.5"));
  const std::string why = why_not("h2o:budget=0.5", {budget("0.2")});
  CHECK(contains(why, "--budget has no policy to serve: h2o:budget=0.5 has a budget of its own"));
  CHECK(contains(why_not("full,h2o:budget=9", {budget("0.2")}), "h2o:budget=9 has a budget of its own"));
  CHECK(contains(why_not("full", {budget("0.2")}), "--budget has no policy to serve: full keeps every token"));
  CHECK(contains(why_not("duo,full", {budget("0.2")}), "--budget has no policy to serve: duo takes no budget"));
  CHECK(why_not("full,window", {budget("0.2")}) == "accepted");
}

TEST_CASE("recent with a decimal point is a share of the budget, without one a count of tokens, at most the budget") {
  const auto recent = [](std::string_view text) {
    return tokens_or_share(parse_policies(text)[0], "recent", {true, 0.5});
  };
  CHECK(recent("h2o").of(11) == 5);
  CHECK(recent("h2o:recent=0.3").of(10) == 3);
  CHECK(recent("h2o:recent=0.29").of(100) == 29);
  CHECK(recent("h2o:recent=30%").of(10) == 3);
  CHECK(recent("h2o:recent=1.0").of(10) == 10);
  CHECK(recent("h2o:recent=7").of(100) == 7);
  CHECK(recent("h2o:recent=7").of(5) == 5);
}
