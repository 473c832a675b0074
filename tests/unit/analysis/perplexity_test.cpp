// Windows of a text, sums of log-probabilities and choices, against values worked out by hand.
#include "analysis/perplexity.hpp"

#include <cmath>

#include "analysis/multiple_choice.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

using Window = std::array<std::uint64_t, 3>;

std::vector<Window> windows(std::uint64_t tokens, std::uint32_t context, std::uint32_t prompt, std::uint32_t stride) {
  std::vector<Window> found;
  for (const TextWindow& w : text_windows(tokens, context, prompt, stride))
    found.push_back({w.begin, w.prompt_end, w.end});
  return found;
}

}  // namespace

TEST_CASE("With a stride of the tokens after the prompt, every later token of a text counts once") {
  CHECK(windows(10, 4, 2, 2) == std::vector<Window>{{0, 2, 4}, {2, 4, 6}, {4, 6, 8}, {6, 8, 10}});
  // The last window is shorter where the text ends.
  CHECK(windows(11, 6, 2, 4) == std::vector<Window>{{0, 2, 6}, {4, 6, 10}, {8, 10, 11}});
  // No window without a token to count: the text ends with the second window's prompt.
  CHECK(windows(6, 6, 2, 4) == std::vector<Window>{{0, 2, 6}});
}

TEST_CASE("With a stride of fewer tokens than those after the prompt, no token counts twice and the last ones count") {
  const auto counted = [](std::uint64_t tokens, std::uint32_t stride) {
    std::vector<Window> found;
    for (const TextWindow& w : text_windows(tokens, 8, 2, stride)) found.push_back({w.prompt_end, w.counted, w.end});
    return found;
  };
  CHECK(counted(14, 3) == std::vector<Window>{{2, 2, 8}, {5, 8, 11}, {8, 11, 14}});
  CHECK(counted(12, 3) == std::vector<Window>{{2, 2, 8}, {5, 8, 11}, {8, 11, 12}});  // the last one is shorter
  CHECK(counted(9, 1) == std::vector<Window>{{2, 2, 8}, {3, 8, 9}});
  CHECK(counted(14, 6) == std::vector<Window>{{2, 2, 8}, {8, 8, 14}});  // as many: each counts all after its prompt
}

TEST_CASE("Windows a context apart do not overlap") {
  CHECK(windows(10, 4, 2, 4) == std::vector<Window>{{0, 2, 4}, {4, 6, 8}});
  CHECK(windows(11, 4, 2, 4) == std::vector<Window>{{0, 2, 4}, {4, 6, 8}, {8, 10, 11}});
}

TEST_CASE("A text of no more tokens than the prompt has no window, a shorter one than the context has one") {
  CHECK(windows(2, 4, 2, 2).empty());
  CHECK(windows(0, 4, 2, 2).empty());
  CHECK(windows(3, 4, 2, 2) == std::vector<Window>{{0, 2, 3}});
}

TEST_CASE("Perplexity is the inverse geometric mean of the tokens' probabilities") {
  TextScore score;
  // 1/2, 1/8 and 1/4: the geometric mean is 1/4. 1 + 3 + 2 bits over 12 bytes.
  const std::vector<float> first = {std::log(0.5F), std::log(0.125F)}, second = {std::log(0.25F)};
  score.add(first, 8);
  score.add(second, 4);
  CHECK(score.tokens == 3);
  CHECK(score.perplexity() == Approx(4).epsilon(1e-6));
  CHECK(score.nats_per_token() == Approx(2 * std::log(2.0)).epsilon(1e-6));
  CHECK(score.bits_per_byte() == Approx(0.5).epsilon(1e-6));
}

TEST_CASE("The difference of two runs is the mean over tokens with the standard error of paired values") {
  const std::vector<float> base = {-1, -2, -3, -4}, worse = {-2, -2, -5, -5};
  const PairedDifference d = nats_difference(worse, base);
  CHECK(d.mean == Approx(1));  // differences 1, 0, 2, 1: variance (0 + 1 + 1 + 0) / 3
  CHECK(d.standard_error.value() == Approx(std::sqrt(2.0 / 3 / 4)));
  const std::vector<double> ours = {0, 1}, theirs = {1, 1};  // values less the base line's: −1 and 0
  CHECK(paired_difference(ours, theirs).mean == Approx(-0.5));
  const PairedDifference none = nats_difference(base, base);
  CHECK(none.mean == 0);
  CHECK(none.standard_error == 0);
  const PairedDifference one = paired_difference(std::vector<double>{0}, std::vector<double>{1});
  CHECK(one.mean == -1);
  CHECK_FALSE(one.standard_error);  // one pair says nothing of how pairs differ
}

TEST_CASE("differences of one group are one sample: the error is that of the groups' sums") {
  const std::vector<double> ours = {1, 0, 1, 1}, theirs(4);
  const std::vector<std::size_t> pairs = {7, 7, 3, 3}, alone = {1, 2, 3, 4}, one(4);
  const PairedDifference d = paired_difference(ours, theirs, pairs);
  CHECK(d.mean == Approx(0.75));
  // From the mean the pairs are off by −0.5 and 0.5: √(2 · 0.5) / 4.
  CHECK(*d.standard_error == Approx(0.25));
  CHECK(*paired_difference(ours, theirs, alone).standard_error ==
        Approx(*paired_difference(ours, theirs).standard_error));
  CHECK_FALSE(paired_difference(ours, theirs, one).standard_error);
}

TEST_CASE("A long unlikely choice can be the likeliest for its length") {
  // −6 over 3 bytes against −10 over 10 bytes: −2 against −1 a byte.
  const std::vector<ChoiceScore> choices = {{-6, 3}, {-10, 10}, {-12, 6}};
  CHECK(likeliest(choices) == 0);
  CHECK(likeliest_for_length(choices) == 1);
  const std::vector<ChoiceScore> ties = {{-6, 3}, {-4, 2}, {-4, 2}};
  CHECK(likeliest(ties) == 1);
  CHECK(likeliest_for_length(ties) == 0);
}
