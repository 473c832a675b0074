#include "kernels/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "kernels/tokenizer/added_tokens.hpp"
#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {

struct Tokenizer::Parts {
  std::unique_ptr<const TokenModel> model;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_finder;         // added tokens that are looked for in the text as given
  AddedTokenFinder normalized_finder;  // and in the normalised text
  std::unique_ptr<const Normalizer> normalizer;          // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer;     // may be null
  std::unique_ptr<const PostProcessor> post_processor;   // may be null
  std::unique_ptr<const Decoder> decoder;
  TokensById tokens;
  TokenIds added_ids;
  std::unordered_set<std::uint32_t> special_ids;
  std::uint32_t vocab_size = 0;

  explicit Parts(const JsonView& file);
  void collect_tokens(const JsonView& added_spec);
  void encode_stretch(std::string_view text, PieceEncoder& encoder, std::vector<std::int64_t>& ids) const;
};

Tokenizer::Parts::Parts(const JsonView& file) {
  file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                   "post_processor", "decoder", "model"});
  for (const char* key : {"truncation", "padding"}) {
    if (!file.at(key).is_null()) throw file.at(key).unsupported("is not supported, and changes ids; set it to null");
  }
  normalizer = make_normalizer(file.at("normalizer"));
  pre_tokenizer = make_pre_tokenizer(file.at("pre_tokenizer"));
  decoder = make_decoder(file.at("decoder"));
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
    if (token.special) special_ids.insert(token.id);
    if (token.normalized) {
      const std::string content = normalizer ? normalizer->normalize(token.content) : token.content;
      if (!content.empty()) normalized_finder.add(content, token);
    } else {
      raw_finder.add(token.content, token);
    }
  }
  for (const auto& [id, token] : tokens) vocab_size = std::max(vocab_size, id + 1);
}

void Tokenizer::Parts::encode_stretch(std::string_view text, PieceEncoder& encoder,
                                      std::vector<std::int64_t>& ids) const {
  Pieces pieces{std::string(text), {text.size()}};
  if (pre_tokenizer) pre_tokenizer->apply(pieces);
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
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw Error(fmt::format("{}: no such file, or it cannot be read", path.string()));
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw Error(fmt::format("{}: reading failed", path.string()));
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
  const auto encoder = parts_->model->start();
  for (const auto& raw : parts_->raw_finder.split(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    const std::string normalized =
        parts_->normalizer ? parts_->normalizer->normalize(raw.text) : std::string(raw.text);
    for (const auto& stretch : parts_->normalized_finder.split(normalized)) {
      if (stretch.id) {
        ids.push_back(*stretch.id);
      } else {
        parts_->encode_stretch(stretch.text, *encoder, ids);
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

struct StreamingDecoder::State {
  const Tokenizer::Parts* parts;
  bool skip_special;
  std::unique_ptr<TokenDecoder> decoder;
};

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.parts_.get(), skip_special, tokenizer.parts_->decoder->start()}) {}
StreamingDecoder::StreamingDecoder(StreamingDecoder&&) noexcept = default;
StreamingDecoder& StreamingDecoder::operator=(StreamingDecoder&&) noexcept = default;
StreamingDecoder::~StreamingDecoder() = default;

std::string StreamingDecoder::push(std::int64_t id) {
  std::string text;
  const Tokenizer::Parts& parts = *state_->parts;
  if (id < 0 || id >= parts.vocab_size) return text;
  const auto narrow = static_cast<std::uint32_t>(id);
  const auto token = parts.tokens.find(narrow);
  const bool skipped = state_->skip_special && parts.special_ids.contains(narrow);
  if (token != parts.tokens.end() && !skipped) state_->decoder->push(token->second, text);
  return text;
}

std::string StreamingDecoder::finish() {
  std::string text;
  state_->decoder->finish(text);
  return text;
}

}  // namespace kvroof
