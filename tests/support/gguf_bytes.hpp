// Makes GGUF files byte by byte, right or wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kvroof::test {

class GgufBytes {
 public:
  explicit GgufBytes(std::uint32_t version = 3) : version_(version) {}

  template <class T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(const std::string& t) { return raw(std::uint64_t{t.size()}) + t; }

  GgufBytes& value(const std::string& key, std::uint32_t type, const std::string& bytes) {
    values_ += text(key) + raw(type) + bytes;
    ++value_count;
    return *this;
  }
  GgufBytes& size(const std::string& key, std::uint32_t v) { return value(key, 4, raw(v)); }
  GgufBytes& number(const std::string& key, float v) { return value(key, 6, raw(v)); }
  GgufBytes& word(const std::string& key, const std::string& v) { return value(key, 8, text(v)); }
  GgufBytes& list(const std::string& key, std::uint32_t type, std::uint64_t count, const std::string& bytes) {
    return value(key, 9, raw(type) + raw(count) + bytes);
  }
  // `bytes` of data are laid down behind the last tensor, aligned to 32.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                    std::uint64_t bytes) {
    tensors_ += text(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t d : dims) tensors_ += raw(d);
    tensors_ += raw(type) + raw(offset);
    ++tensor_count;
    offset += (bytes + 31) / 32 * 32;
    return *this;
  }

  // Without the data.
  [[nodiscard]] std::string header() const {
    return "GGUF" + raw(version_) + raw(tensor_count) + raw(value_count) + values_ + tensors_;
  }
  [[nodiscard]] std::uint64_t file_size() const { return (header().size() + 31) / 32 * 32 + offset; }

  std::uint64_t tensor_count = 0, value_count = 0;
  std::uint64_t offset = 0;  // of the next tensor

 private:
  std::uint32_t version_;
  std::string values_, tensors_;
};

struct GgufSizes {
  std::uint32_t layers = 2, hidden = 64, heads = 4, kv_heads = 2, ffn = 96, vocab = 50, context = 128;
};

// A model of the LLaMA architecture, by that name or another, with an untied head: matrices of `type`, which stores
// `bytes` for `block` elements, norms in f32.
inline GgufBytes llama_gguf(const GgufSizes& s, std::uint32_t type, std::uint64_t block, std::uint64_t bytes,
                            const std::string& arch = "llama") {
  GgufBytes file;
  file.word("general.architecture", arch).word("general.name", "tiny");
  file.size(arch + ".block_count", s.layers)
      .size(arch + ".embedding_length", s.hidden)
      .size(arch + ".context_length", s.context);
  file.size(arch + ".feed_forward_length", s.ffn).size(arch + ".attention.head_count", s.heads);
  file.size(arch + ".attention.head_count_kv", s.kv_heads).number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
  const std::uint64_t kv = s.heads > 0 ? std::uint64_t{s.hidden} / s.heads * s.kv_heads : s.hidden;
  const auto matrix = [&](const std::string& name, std::uint64_t in, std::uint64_t out) {
    file.tensor(name, {in, out}, type, in * out / block * bytes);
  };
  const auto norm = [&](const std::string& name) { file.tensor(name, {s.hidden}, 0, std::uint64_t{s.hidden} * 4); };
  matrix("token_embd.weight", s.hidden, s.vocab);
  for (std::uint32_t l = 0; l < s.layers; ++l) {
    const std::string prefix = "blk." + std::to_string(l) + ".";
    norm(prefix + "attn_norm.weight");
    matrix(prefix + "attn_q.weight", s.hidden, s.hidden);
    matrix(prefix + "attn_k.weight", s.hidden, kv);
    matrix(prefix + "attn_v.weight", s.hidden, kv);
    matrix(prefix + "attn_output.weight", s.hidden, s.hidden);
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", s.hidden, s.ffn);
    matrix(prefix + "ffn_up.weight", s.hidden, s.ffn);
    matrix(prefix + "ffn_down.weight", s.ffn, s.hidden);
  }
  norm("output_norm.weight");
  matrix("output.weight", s.hidden, s.vocab);
  return file;
}

}  // namespace kvroof::test
