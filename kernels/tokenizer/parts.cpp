#include "kernels/tokenizer/parts.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

template <class Part>
using Steps = std::vector<std::unique_ptr<const Part>>;

// The parts of a "Sequence", in order.
template <class Part, class... Context>
Steps<Part> make_steps(const JsonView& spec, std::string_view key,
                       std::unique_ptr<const Part> (*make)(const JsonView&, const Context&...),
                       const Context&... context) {
  constexpr std::size_t kDeepest = 16;
  spec.allow_only({"type", key});
  if (spec.depth() > kDeepest) throw spec.damaged("Sequence parts are nested too deeply");
  Steps<Part> steps;
  spec.at(key).for_each_item([&](const JsonView& item) {
    auto step = make(item, context...);
    if (!step) throw item.damaged("expected an object");
    steps.push_back(std::move(step));
  });
  return steps;
}

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const JsonView& spec) : steps_(make_steps(spec, "normalizers", make_normalizer)) {}
  void apply(NormalizedText& stretch) const override {
    for (const auto& step : steps_) step->apply(stretch);
  }

 private:
  Steps<Normalizer> steps_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const JsonView& spec) : steps_(make_steps(spec, "pretokenizers", make_pre_tokenizer)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& step : steps_) step->apply(pieces);
  }

 private:
  Steps<PreTokenizer> steps_;
};

class PostProcessorSequence : public PostProcessor {
 public:
  PostProcessorSequence(const JsonView& spec, const TokensById& tokens)
      : steps_(make_steps(spec, "processors", make_post_processor, tokens)) {}
  void apply(std::vector<std::int64_t>& ids) const override {
    for (const auto& step : steps_) step->apply(ids);
  }

 private:
  Steps<PostProcessor> steps_;
};

class DecoderSequence : public Decoder {
 public:
  explicit DecoderSequence(const JsonView& spec) : parts_(make_steps(spec, "decoders", make_decoder)) {}
  TokenSink& start(TokenSink& end, std::vector<std::unique_ptr<TokenSink>>& steps) const override {
    TokenSink* first = &end;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) first = &(*part)->start(*first, steps);
    return *first;
  }

 private:
  Steps<Decoder> parts_;
};

template <class Part, class Concrete, class... Context>
std::unique_ptr<const Part> make(const JsonView& spec, const Context&... context) {
  return std::make_unique<const Concrete>(spec, context...);
}

template <class Part, class... Context>
struct PartType {
  std::string_view type;
  std::unique_ptr<const Part> (*make)(const JsonView& spec, const Context&... context);
};

// What tokenizer.json files may name; one line a type.
constexpr PartType<Normalizer> kNormalizers[] = {
    {"ByteLevel", make_byte_level_normalizer},
    {"Lowercase", make_lowercase},
    {"NFC", make_nfc},
    {"NFD", make_nfd},
    {"NFKC", make_nfkc},
    {"NFKD", make_nfkd},
    {"Prepend", make_prepend},
    {"Replace", make_replace_normalizer},
    {"Sequence", make<Normalizer, NormalizerSequence>},
    {"Strip", make_strip_normalizer},
    {"StripAccents", make_strip_accents},
};
constexpr PartType<PreTokenizer> kPreTokenizers[] = {
    {"BertPreTokenizer", make_bert_pre_tokenizer},
    {"ByteLevel", make_byte_level_pre_tokenizer},
    {"CharDelimiterSplit", make_character_split},
    {"Digits", make_digits},
    {"FixedLength", make_fixed_length},
    {"Metaspace", make_metaspace_pre_tokenizer},
    {"Punctuation", make_punctuation},
    {"Sequence", make<PreTokenizer, PreTokenizerSequence>},
    {"Split", make_split},
    {"Whitespace", make_whitespace},
    {"WhitespaceSplit", make_whitespace_split},
};
constexpr PartType<TokenModel> kModels[] = {
    {"BPE", make_bpe_model},
    {"Unigram", make_unigram_model},
};
constexpr PartType<PostProcessor, TokensById> kPostProcessors[] = {
    {"BertProcessing", make_bert_post_processor},         {"ByteLevel", make_byte_level_post_processor},
    {"RobertaProcessing", make_roberta_post_processor},   {"Sequence", make<PostProcessor, PostProcessorSequence>},
    {"TemplateProcessing", make_template_post_processor},
};
constexpr PartType<Decoder> kDecoders[] = {
    {"ByteFallback", make_byte_fallback_decoder},
    {"ByteLevel", make_byte_level_decoder},
    {"Fuse", make_fuse_decoder},
    {"Metaspace", make_metaspace_decoder},
    {"Replace", make_replace_decoder},
    {"Sequence", make<Decoder, DecoderSequence>},
    {"Strip", make_strip_decoder},
};

template <class Table, class... Context>
auto select(const Table& table, const JsonView& spec, const std::string& type, const Context&... context) {
  const auto row = std::find_if(std::begin(table), std::end(table), [&](const auto& r) { return r.type == type; });
  if (row != std::end(table)) return row->make(spec, context...);
  std::vector<std::string> known;
  for (const auto& r : table) known.emplace_back(r.type);
  throw spec.unsupported(fmt::format("the type {} is not supported{} (supported: {})", in_quotes(type),
                                     did_you_mean(type, known), join(known)));
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const JsonView& spec) {
  return spec.is_null() ? nullptr : select(kNormalizers, spec, spec.at("type").text());
}

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const JsonView& spec) {
  return spec.is_null() ? nullptr : select(kPreTokenizers, spec, spec.at("type").text());
}

std::unique_ptr<const TokenModel> make_token_model(const JsonView& spec) {
  if (spec.is_null()) throw spec.damaged("there is no model");
  // The first published files name no type; only BPE models have merges.
  const bool untyped_bpe = !spec.has("type") && spec.has("merges");
  return select(kModels, spec, untyped_bpe ? "BPE" : spec.at("type").text());
}

std::unique_ptr<const PostProcessor> make_post_processor(const JsonView& spec, const TokensById& tokens) {
  return spec.is_null() ? nullptr : select(kPostProcessors, spec, spec.at("type").text(), tokens);
}

std::unique_ptr<const Decoder> make_decoder(const JsonView& spec) {
  return spec.is_null() ? nullptr : select(kDecoders, spec, spec.at("type").text());
}

}  // namespace kvroof
