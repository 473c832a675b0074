#include <utility>

#include "kernels/tokenizer/parts.hpp"

namespace kvroof {
namespace {

// Ids put before and after those of the text.
class Frame : public PostProcessor {
 public:
  Frame(std::vector<std::int64_t> before, std::vector<std::int64_t> after)
      : before_(std::move(before)), after_(std::move(after)) {}

  void apply(std::vector<std::int64_t>& ids) const override {
    ids.insert(ids.begin(), before_.begin(), before_.end());
    ids.insert(ids.end(), after_.begin(), after_.end());
  }

 private:
  std::vector<std::int64_t> before_;
  std::vector<std::int64_t> after_;
};

std::int64_t known_id(const JsonView& spec, const TokensById& tokens) {
  const std::uint32_t id = spec.id();
  if (!tokens.contains(id)) throw spec.damaged(fmt::format("there is no token with the id {}", id));
  return id;
}

// ["token", id], the form of RobertaProcessing.
std::int64_t token_and_id(const JsonView& spec, const TokensById& tokens) {
  const std::vector<JsonView> pair = spec.items();
  if (pair.size() != 2) throw spec.damaged("expected a token and its id");
  const std::int64_t id = known_id(pair[1], tokens);
  const std::string_view token = tokens.at(static_cast<std::uint32_t>(id));
  if (token != pair[0].text()) {
    throw spec.damaged(
        fmt::format("the id {} is that of {}, not of {}", id, in_quotes(token), in_quotes(pair[0].text())));
  }
  return id;
}

// One token before the text and one behind it.
std::unique_ptr<const PostProcessor> make_enclosing(const JsonView& spec, const TokensById& tokens) {
  return std::make_unique<const Frame>(std::vector{token_and_id(spec.at("cls"), tokens)},
                                       std::vector{token_and_id(spec.at("sep"), tokens)});
}

}  // namespace

// Only the template for one text is used; the one for pairs of texts is of no concern to a decoder-only model.
std::unique_ptr<const PostProcessor> make_template_post_processor(const JsonView& spec, const TokensById& tokens) {
  spec.allow_only({"type", "single", "pair", "special_tokens"});
  std::vector<std::int64_t> before;
  std::vector<std::int64_t> after;
  bool text_seen = false;
  spec.at("single").for_each_item([&](const JsonView& item) {
    item.allow_only({"SpecialToken", "Sequence"});
    if (item.has("Sequence")) {
      if (text_seen) throw item.unsupported("a template that repeats the text is not supported");
      if (item.at("Sequence").at("id").text() != "A") throw item.damaged("a template for one text names only \"A\"");
      text_seen = true;
      return;
    }
    const std::string& name = item.at("SpecialToken").at("id").text();
    const JsonView token = spec.at("special_tokens").at(name);
    if (token.is_null()) throw item.damaged(fmt::format("{} is not among the special_tokens", in_quotes(name)));
    token.at("ids").for_each_item(
        [&](const JsonView& id) { (text_seen ? after : before).push_back(known_id(id, tokens)); });
  });
  if (!text_seen) throw spec.damaged("the template leaves out the text");
  return std::make_unique<const Frame>(std::move(before), std::move(after));
}

std::unique_ptr<const PostProcessor> make_roberta_post_processor(const JsonView& spec, const TokensById& tokens) {
  spec.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});  // the last two only move offsets
  return make_enclosing(spec, tokens);
}

std::unique_ptr<const PostProcessor> make_bert_post_processor(const JsonView& spec, const TokensById& tokens) {
  spec.allow_only({"type", "sep", "cls"});
  return make_enclosing(spec, tokens);
}

}  // namespace kvroof
