#include "kernels/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kernels/tokenizer/added_tokens.hpp"
#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/unicode.hpp"
#include "sim/core/files.hpp"

namespace kvroof {

struct Tokenizer::Parts {
  std::unique_ptr<const TokenModel> model;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_finder;                          // added tokens that are looked for in the text as given
  AddedTokenFinder normalized_finder;                   // and in the normalised text
  std::unique_ptr<const Normalizer> normalizer;         // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer;    // may be null
  std::unique_ptr<const PostProcessor> post_processor;  // may be null
  std::unique_ptr<const Decoder> decoder;
  TokensById tokens;                                          // as the file writes them
  std::unordered_map<std::uint32_t, std::string> normalized;  // added tokens whose normalised content differs
  TokensById decoded;                                         // what decoders get: these in their normalised form
  TokenIds added_ids;
  std::unordered_set<std::uint32_t> special_ids;
  std::uint32_t vocab_size = 0;

  explicit Parts(const JsonView& file);
  void collect_tokens(const JsonView& added_spec);
  void add_to_finders(const AddedToken& token);
  void collect_special_ids();
  void encode_stretch(std::string_view text, bool at_text_start, PieceEncoder& encoder,
                      std::vector<std::int64_t>& ids) const;
};

Tokenizer::Parts::Parts(const JsonView& file) {
  file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"});
  if (const JsonView version = file.at("version"); !version.is_null() && version.text() != "1.0") {
    throw version.unsupported(fmt::format("only \"1.0\" is supported, found {}", in_quotes(version.text())));
  }
  for (const char* key : {"truncation", "padding"}) {
    if (!file.at(key).is_null()) throw file.at(key).unsupported("is not supported, and changes ids; set it to null");
  }
  normalizer = make_normalizer(file.at("normalizer"));
  pre_tokenizer = make_pre_tokenizer(file.at("pre_tokenizer"));
  decoder = make_decoder(file.at("decoder"));
  if (!decoder) decoder = make_spaced_decoder();
  model = make_token_model(file.at("model"));
  added = read_added_tokens(file.at("added_tokens"));
  collect_tokens(file.at("added_tokens"));
  post_processor = make_post_processor(file.at("post_processor"), tokens);
}

void Tokenizer::Parts::collect_tokens(const JsonView& added_spec) {
  for (const auto& [token, id] : model->vocabulary()) tokens.emplace(id, token);
  for (const AddedToken& token : added) {
    const auto known = model->vocabulary().find(token.content);
    if (known != model->vocabulary().end() && known->second != token.id) {
      throw added_spec.damaged(fmt::format("the token {} has the id {}, but {} in the vocabulary",
                                           in_quotes(token.content), token.id, known->second));
    }
    const auto [holder, fresh] = tokens.emplace(token.id, token.content);
    if (!fresh && holder->second != token.content) {
      throw added_spec.damaged(fmt::format("the id {} of {} is also that of {}", token.id, in_quotes(token.content),
                                           in_quotes(holder->second)));
    }
    added_ids[token.content] = token.id;
    add_to_finders(token);
  }
  for (const auto& [id, token] : tokens) vocab_size = std::max(vocab_size, id + 1);
  collect_special_ids();
}

void Tokenizer::Parts::add_to_finders(const AddedToken& token) {
  if (!token.normalized) return raw_finder.add(token.content, token);
  if (!normalizer) return normalized_finder.add(token.content, token);
  NormalizedText content{token.content};
  normalizer->apply(content);
  if (content.text != token.content) normalized.insert_or_assign(token.id, content.text);
  if (!content.text.empty()) normalized_finder.add(content.text, token);
}

// What decodes to the content of a special token is special: the reference library compares texts, not ids.
void Tokenizer::Parts::collect_special_ids() {
  decoded = tokens;
  for (const auto& [id, text] : normalized) decoded[id] = text;
  std::unordered_set<std::string_view> contents;
  for (const AddedToken& token : added) {
    if (token.special) contents.insert(token.content);
  }
  for (const auto& [id, text] : decoded) {
    if (contents.contains(text)) special_ids.insert(id);
  }
}

void Tokenizer::Parts::encode_stretch(std::string_view text, bool at_text_start, PieceEncoder& encoder,
                                      std::vector<std::int64_t>& ids) const {
  if (!pre_tokenizer) return encoder.encode(text, ids);
  Pieces pieces{std::string(text), {text.size()}, at_text_start};
  pre_tokenizer->apply(pieces);
  std::size_t begin = 0;
  for (const std::size_t end : pieces.ends) {
    encoder.encode(std::string_view(pieces.text).substr(begin, end - begin), ids);
    begin = end;
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_json(std::string_view text) {
  try {
    return Tokenizer(std::make_unique<const Parts>(JsonView::parse(text)));
  } catch (const Error& e) {
    return Failure{e.what()};
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  const std::string text = read_input(path, kMostBytes).or_throw(path.string());
  try {
    return Tokenizer(std::make_unique<const Parts>(JsonView::parse(text)));
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", path.string(), e.what()), e.code());
  }
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_valid_utf8(text, true, repaired);
    text = repaired;
  }
  std::vector<std::int64_t> ids;
  const auto encoder = parts_->model->start(text.size());
  for (const auto& raw : parts_->raw_finder.split(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    NormalizedText normalized{std::string(raw.text)};
    if (parts_->normalizer) parts_->normalizer->apply(normalized);
    const bool at_start = normalized.at_start && raw.text.data() == text.data();
    for (const auto& stretch : parts_->normalized_finder.split(normalized.text)) {
      if (stretch.id) {
        ids.push_back(*stretch.id);
      } else {
        parts_->encode_stretch(stretch.text, at_start && stretch.text.data() == normalized.text.data(), *encoder, ids);
      }
    }
  }
  if (add_special && parts_->post_processor) parts_->post_processor->apply(ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  StreamingDecoder decoder(*this, skip_special);
  std::string text;
  for (const std::int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::uint32_t Tokenizer::vocab_size() const { return parts_->vocab_size; }

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const {
  const std::string key(token);
  for (const TokenIds* ids : {&parts_->added_ids, &parts_->model->vocabulary()}) {
    if (const auto found = ids->find(key); found != ids->end()) return found->second;
  }
  return std::nullopt;
}

std::optional<std::string_view> Tokenizer::token_of(std::int64_t id) const {
  if (id < 0 || id >= parts_->vocab_size) return std::nullopt;
  const auto found = parts_->tokens.find(static_cast<std::uint32_t>(id));
  return found == parts_->tokens.end() ? std::nullopt : std::optional(found->second);
}

namespace {

// The end of a decoder: the text.
class TextSink : public TokenSink {
 public:
  void part(std::string_view text) override { text_ += text; }
  void end_token() override {}
  void end_sequence() override {}
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

}  // namespace

struct StreamingDecoder::State {
  State(const Tokenizer::Parts& p, bool skip) : parts(&p), skip_special(skip), first(&p.decoder->start(end, steps)) {}

  const Tokenizer::Parts* parts;
  bool skip_special;
  TextSink end;
  std::vector<std::unique_ptr<TokenSink>> steps;
  TokenSink* first;
};

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(std::make_unique<State>(*tokenizer.parts_, skip_special)) {}
StreamingDecoder::StreamingDecoder(StreamingDecoder&&) noexcept = default;
StreamingDecoder& StreamingDecoder::operator=(StreamingDecoder&&) noexcept = default;
StreamingDecoder::~StreamingDecoder() = default;

std::string StreamingDecoder::push(std::int64_t id) {
  const Tokenizer::Parts& parts = *state_->parts;
  if (id < 0 || id >= parts.vocab_size) return {};
  const auto narrow = static_cast<std::uint32_t>(id);
  const auto token = parts.decoded.find(narrow);
  if (token == parts.decoded.end() || (state_->skip_special && parts.special_ids.contains(narrow))) return {};
  state_->first->part(token->second);
  state_->first->end_token();
  return state_->end.take();
}

std::string StreamingDecoder::finish() {
  state_->first->end_sequence();
  return state_->end.take();
}

}  // namespace kvroof
