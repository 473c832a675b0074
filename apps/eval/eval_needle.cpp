#include "apps/eval/eval_needle.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/plot.hpp"
#include "apps/eval/eval_summary.hpp"
#include "sim/core/philox.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMostCaseTokens = std::uint64_t{1} << 27;  // of all cases: 1 GiB of ids
constexpr std::string_view kPlaceholder = "{key}";

// Five digits, the first of them no zero; of its own for each context, depth and number.
std::string draw_key(std::uint64_t seed, std::uint32_t context, std::size_t depth, std::uint32_t number) {
  const Philox4 drawn = philox4x32_10({{context, static_cast<std::uint32_t>(depth), number, 0}}, seed);
  return std::to_string(10000 + drawn.x[0] % 90000);
}

std::string with_key(std::string text, const std::string& key) {
  for (std::size_t at = 0; (at = text.find(kPlaceholder, at)) != std::string::npos; at += key.size()) {
    text.replace(at, kPlaceholder.size(), key);
  }
  return text;
}

// Makes the cases of one text.
class Hider {
 public:
  Hider(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer)
      : request_(request), needle_(*request.needle), config_(config), tokenizer_(tokenizer) {
    text_ = tokenizer.encode(eval_text(request), false);
    specials_ = leading_specials(tokenizer);
    question_ = tokenizer.encode("\n" + needle_.question, false);
    if (question_.empty()) throw usage_error(fmt::format("--question '{}': it has no token", needle_.question));
  }

  NeedleExamples::Case hide(const std::string& key, std::uint32_t context, double depth, std::uint32_t number) const {
    const TokenIds needle = tokenizer_.encode("\n" + with_key(needle_.needle, key) + "\n", false);
    const TokenIds asked = question_and(key);
    const std::size_t other = specials_.size() + needle.size();
    check_room(context, other, asked.size());
    const std::size_t hay = context - other;
    NeedleExamples::Case made;
    made.key = key;
    made.text_begin = needle_.keys == 1 ? 0 : (text_.size() - hay) * number / (needle_.keys - 1);
    made.before = static_cast<std::uint32_t>(std::lround(depth * static_cast<double>(hay)));
    made.ids = specials_;
    const auto from = text_.begin() + static_cast<std::ptrdiff_t>(made.text_begin);
    made.ids.insert(made.ids.end(), from, from + made.before);
    made.ids.insert(made.ids.end(), needle.begin(), needle.end());
    made.ids.insert(made.ids.end(), from + made.before, from + static_cast<std::ptrdiff_t>(hay));
    made.ids.insert(made.ids.end(), asked.begin(), asked.end());
    made.key_begin = context + static_cast<std::uint32_t>(question_.size());
    made.prompt = request_.question_in_prompt ? made.key_begin : context;
    return made;
  }

  // Contexts that were asked for, or those of the usual ones that fit.
  [[nodiscard]] std::vector<std::uint32_t> contexts() const {
    if (!request_.contexts.empty()) return request_.contexts;
    std::vector<std::uint32_t> fitting;
    for (const std::uint32_t context : {512U, 1024U, 2048U}) {
      if (context + question_.size() + kAnswerTokens <= config_.shape.max_positions && context <= text_.size()) {
        fitting.push_back(context);
      }
    }
    if (fitting.empty()) fitting.push_back(512);  // and let hide() say what is too small
    return fitting;
  }

 private:
  static constexpr std::size_t kAnswerTokens = 8;  // at most of a blank and five digits

  // Encoded as a whole: the key begins where the question alone ends, as a choice does.
  [[nodiscard]] TokenIds question_and(const std::string& key) const {
    TokenIds whole = tokenizer_.encode("\n" + needle_.question + request_.delimiter + key, false);
    if (whole.size() <= question_.size()) {
      throw usage_error(fmt::format("--question '{}': the key adds no token to it", needle_.question));
    }
    return whole;
  }

  void check_room(std::uint32_t context, std::size_t other, std::size_t asked) const {
    const std::size_t all = context + asked;
    if (all > config_.shape.max_positions) {
      throw usage_error(
          fmt::format("--context {}: with question and answer {} tokens, but the context of the model is {}", context,
                      all, config_.shape.max_positions));
    }
    if (context < other) {
      throw usage_error(fmt::format("--context {}: the needle alone has {} tokens", context, other));
    }
    if (context - other > text_.size()) {
      throw usage_error(fmt::format("--text {}: a context of {} takes {} tokens of it, but it has {}",
                                    request_.file.string(), context, context - other, text_.size()))
          .note("give a longer text or a shorter --context; a text that repeats itself would be another task");
    }
  }

  const EvalRequest& request_;
  const NeedleRequest& needle_;
  const ModelConfig& config_;
  const Tokenizer& tokenizer_;
  TokenIds text_, specials_, question_;
};

void check_size(const NeedleExamples& examples) {
  std::uint64_t tokens = 0;
  for (const std::uint32_t context : examples.contexts) tokens += std::uint64_t{context} * examples.depths.size();
  if (tokens * examples.keys <= kMostCaseTokens) return;
  throw usage_error(fmt::format("--keys {}: contexts of {} tokens in all, expected at most {}; give fewer keys, depths "
                                "or contexts",
                                examples.keys, tokens * examples.keys, kMostCaseTokens));
}

// Shares of the keys in so many cells, each of as many keys; cell_of(case) is the cell's index.
template <class CellOf>
std::vector<double> found_shares(const NeedleExamples& examples, const EvalPoint& point, std::size_t cells,
                                 const CellOf& cell_of) {
  std::vector<double> found(cells);
  for (std::size_t i = 0; i < examples.cases.size(); ++i) {
    found[cell_of(examples.cases[i])] += point.needles[i].found ? 1 : 0;
  }
  for (double& share : found) share /= static_cast<double>(examples.cases.size()) / static_cast<double>(cells);
  return found;
}

}  // namespace

NeedleExamples needle_examples(const EvalRequest& request, std::uint64_t seed, const ModelConfig& config,
                               const Tokenizer& tokenizer) {
  const Hider hider(request, config, tokenizer);
  const NeedleRequest& needle = *request.needle;
  NeedleExamples examples{hider.contexts(), needle.depths, needle.keys, request.question_in_prompt, {}};
  check_size(examples);
  for (std::size_t c = 0; c < examples.contexts.size(); ++c) {
    for (std::size_t d = 0; d < examples.depths.size(); ++d) {
      for (std::uint32_t k = 0; k < examples.keys; ++k) {
        const std::string key = draw_key(seed, examples.contexts[c], d, k);
        examples.cases.push_back(hider.hide(key, examples.contexts[c], examples.depths[d], k));
        examples.cases.back().context = c;
        examples.cases.back().depth = d;
      }
    }
  }
  return examples;
}

std::vector<double> found_keys(const EvalPoint& point) {
  std::vector<double> found;
  for (const NeedleScore& needle : point.needles) found.push_back(needle.found ? 1 : 0);
  return found;
}

double nats_per_key_token(const EvalPoint& point) {
  double nats = 0, tokens = 0;
  for (const NeedleScore& needle : point.needles) {
    nats -= needle.log_likelihood;
    tokens += needle.tokens;
  }
  return nats / tokens;
}

std::vector<double> found_by_depth(const NeedleExamples& examples, const EvalPoint& point) {
  return found_shares(examples, point, examples.depths.size(), [](const auto& hidden) { return hidden.depth; });
}

std::vector<double> found_by_context_and_depth(const NeedleExamples& examples, const EvalPoint& point) {
  const std::size_t depths = examples.depths.size();
  return found_shares(examples, point, examples.contexts.size() * depths,
                      [&](const auto& hidden) { return hidden.context * depths + hidden.depth; });
}

std::string needle_svg(const NeedleExamples& examples, std::span<const EvalPoint> points) {
  HeatMap map;
  map.row_label = "depth of the needle (%)";
  map.column_label = "tokens of the context";
  map.rows = static_cast<std::uint32_t>(examples.depths.size());
  map.columns = static_cast<std::uint32_t>(examples.contexts.size());
  for (const double depth : examples.depths) map.row_names.push_back(fmt::format("{:.3g}", depth * 100));
  for (const std::uint32_t context : examples.contexts) map.column_names.push_back(std::to_string(context));
  map.value_label = "found (%)";
  map.percent = true;
  map.whole_scale = true;
  std::vector<HeatMap> maps;
  for (const EvalPoint& point : points) {
    map.title = point.spec.text();
    map.values = found_shares(examples, point, std::size_t{map.rows} * map.columns, [&](const auto& hidden) {
      return hidden.depth * map.columns + hidden.context;
    });
    maps.push_back(map);
  }
  return heat_maps_svg("Keys that are found, by depth and context", maps);
}

}  // namespace kvroof
