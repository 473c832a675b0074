// Regular expressions that no scanner is written for, by Oniguruma: the reference library uses it, so that syntax and
// meaning agree (nested classes and intersections of classes, \h, case folding), which PCRE2 reads differently.
#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "kernels/tokenizer/pattern.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

struct Property {
  const char* name;
  Category first, last;
};

// Oniguruma releases differ in their version of Unicode; these properties are made to follow our own tables, which are
// those of the reference library. Oniguruma takes at most 20.
constexpr Property kProperties[] = {
    {"L", Category::kLu, Category::kLo},           {"M", Category::kMn, Category::kMe},
    {"N", Category::kNd, Category::kNo},           {"P", Category::kPc, Category::kPo},
    {"S", Category::kSm, Category::kSo},           {"Lu", Category::kLu, Category::kLu},
    {"Ll", Category::kLl, Category::kLl},          {"Lt", Category::kLt, Category::kLt},
    {"Lm", Category::kLm, Category::kLm},          {"Lo", Category::kLo, Category::kLo},
    {"Mn", Category::kMn, Category::kMn},          {"Nd", Category::kNd, Category::kNd},
    {"Nl", Category::kNl, Category::kNl},          {"No", Category::kNo, Category::kNo},
    {"So", Category::kSo, Category::kSo},          {"Letter", Category::kLu, Category::kLo},
    {"Mark", Category::kMn, Category::kMe},        {"Number", Category::kNd, Category::kNo},
    {"Punctuation", Category::kPc, Category::kPo}, {"Symbol", Category::kSm, Category::kSo},
};

// Oniguruma's form of a set: the number of ranges, then the first and last code point of each.
std::vector<OnigCodePoint> ranges_of(const Property& property) {
  std::vector<OnigCodePoint> ranges{0};
  const auto runs = unicode_category_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto category = static_cast<Category>(runs[i] & 31U);
    if (category < property.first || category > property.last) continue;
    const OnigCodePoint first = runs[i] >> 5;
    const OnigCodePoint last = (i + 1 < runs.size() ? runs[i + 1] >> 5 : 0x110000U) - 1;
    if (ranges.size() > 1 && ranges.back() + 1 == first) {
      ranges.back() = last;
    } else {
      ranges.insert(ranges.end(), {first, last});
      ++ranges.front();
    }
  }
  return ranges;
}

// Oniguruma keeps properties by reference for the life of the program.
void initialise_once() {
  static const auto sets = [] {
    constexpr unsigned kDeepestNesting = 200;
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    onig_set_parse_depth_limit(kDeepestNesting);
    std::array<std::vector<OnigCodePoint>, std::size(kProperties)> made;
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = ranges_of(kProperties[i]);
    return made;
  }();
  static std::once_flag defined;
  std::call_once(defined, [] {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const int status =
          onig_unicode_define_user_property(kProperties[i].name, const_cast<OnigCodePoint*>(sets[i].data()));
      check(status == ONIG_NORMAL, "Oniguruma takes our properties");
    }
  });
}

std::string reason_of(int status, OnigErrorInfo* info = nullptr) {
  std::array<UChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int length =
      info ? onig_error_code_to_str(text.data(), status, info) : onig_error_code_to_str(text.data(), status);
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(std::max(length, 0))};
}

// Releases of Oniguruma differ in whether symbols are punctuation; in the reference library they are.
std::string with_symbols_as_punctuation(std::string expression) {
  constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {{"[:punct:]", R"(\p{P}\p{S})"},
                                                                         {"[:^punct:]", R"([^\p{P}\p{S}])"}};
  for (const auto& [name, meaning] : kMeanings) {
    for (std::size_t at = 0; (at = expression.find(name, at)) != std::string::npos; at += meaning.size()) {
      expression.replace(at, name.size(), meaning);
    }
  }
  return expression;
}

const UChar* bytes_of(std::string_view text) { return reinterpret_cast<const UChar*>(text.data()); }

// Memory that searches of one thread share.
struct Scratch {
  std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region{onig_region_new(),
                                                            [](OnigRegion* r) { onig_region_free(r, 1); }};
  std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> limits{onig_new_match_param(), &onig_free_match_param};
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  check(scratch.region && scratch.limits, "memory for a search");
  return scratch;
}

// One pass over one text. Oniguruma counts the steps back that a search takes only against a limit, so the limit begins
// low and grows when it is met: what a pass has spent is then known well enough to end one that would never finish.
class Search {
 public:
  Search(OnigRegex regex, std::string_view text)
      : regex_(regex), text_(text), scratch_(thread_scratch()), budget_(kFixedBudget + kBudgetPerByte * text.size()) {
    onig_initialize_match_param(scratch_.limits.get());
    const std::size_t entries = std::min<std::size_t>(kStackPerByte * text.size() + 4096, 1U << 30);
    onig_set_match_stack_limit_size_of_match_param(scratch_.limits.get(), static_cast<unsigned>(entries));
  }

  // The first match at or after `from`; its begin lies behind the text when there is none.
  Match next(std::size_t from) {
    for (std::uint64_t limit = kFirstLimit;; limit *= 8) {
      const int status = try_next(from, limit);
      if (status >= 0) {
        return {static_cast<std::size_t>(scratch_.region->beg[0]), static_cast<std::size_t>(scratch_.region->end[0])};
      }
      if (status == ONIG_MISMATCH) return {text_.size() + 1, text_.size() + 1};
      if (status != ONIGERR_RETRY_LIMIT_IN_MATCH_OVER && status != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) {
        throw Error(fmt::format("a regular expression of the tokenizer failed on a text of {} bytes: {}", text_.size(),
                                reason_of(status)));
      }
      spent_ += limit;
      if (spent_ > budget_) {
        throw Error(
            fmt::format("a regular expression of the tokenizer takes more than {} steps on a text of {} bytes; "
                        "give it shorter texts",
                        budget_, text_.size()));
      }
    }
  }

 private:
  static constexpr std::uint64_t kFirstLimit = 1000;
  static constexpr std::uint64_t kFixedBudget = 100'000;
  static constexpr std::uint64_t kBudgetPerByte = 5000;  // half a minute for a megabyte
  static constexpr std::size_t kStackPerByte = 4;        // entries

  int try_next(std::size_t from, std::uint64_t limit) {
    onig_set_retry_limit_in_match_of_match_param(scratch_.limits.get(), limit);
    onig_set_retry_limit_in_search_of_match_param(scratch_.limits.get(), limit);
    const UChar* begin = bytes_of(text_);
    const UChar* end = begin + text_.size();
    return onig_search_with_param(regex_, begin, end, begin + from, end, scratch_.region.get(), ONIG_OPTION_NONE,
                                  scratch_.limits.get());
  }

  OnigRegex regex_;
  std::string_view text_;
  Scratch& scratch_;
  std::uint64_t budget_;
  std::uint64_t spent_ = 0;
};

class Regex : public TextPattern {
 public:
  explicit Regex(std::string expression) : regex_(nullptr, &onig_free) {
    constexpr std::size_t kLongest = std::size_t{1} << 16;
    if (expression.size() > kLongest) {
      throw Error(fmt::format("a regular expression of {} bytes is too long, at most {}", expression.size(), kLongest));
    }
    initialise_once();
    expression = with_symbols_as_punctuation(std::move(expression));
    OnigRegex made = nullptr;
    OnigErrorInfo info{};
    const int status = onig_new(&made, bytes_of(expression), bytes_of(expression) + expression.size(), ONIG_OPTION_NONE,
                                ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
    if (status != ONIG_NORMAL) {
      throw Error(fmt::format("the regular expression {} is not valid: {}", in_quotes(expression),
                              in_quotes(reason_of(status, &info))));
    }
    regex_.reset(made);
  }

  void find_all(std::string_view text, std::vector<Match>& matches) const override {
    if (text.empty()) return;
    Search search(regex_.get(), text);
    std::size_t from = 0;
    std::size_t last_end = text.size() + 1;
    while (from <= text.size()) {
      const Match match = search.next(from);
      if (match.begin > text.size()) return;
      if (match.begin == match.end && match.end == last_end) {
        // An empty match right after another does not count: on with the next character.
        from += from < text.size() ? read_utf8(text, from).length : 1;
        continue;
      }
      matches.push_back(match);
      from = last_end = match.end;
    }
  }

 private:
  std::unique_ptr<std::remove_pointer_t<OnigRegex>, void (*)(OnigRegex)> regex_;
};

}  // namespace

std::unique_ptr<const TextPattern> make_regex(const std::string& expression) {
  return std::make_unique<const Regex>(expression);
}

}  // namespace kvroof
