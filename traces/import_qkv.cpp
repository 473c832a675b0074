#include "traces/import_qkv.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kvroof_version.hpp"
#include "sim/core/alibi.hpp"
#include "sim/core/counted.hpp"
#include "traces/finite_elements.hpp"
#include "traces/safetensors.hpp"
#include "traces/writer.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;  // rows of all layers that are held at a time
constexpr std::uint64_t kMaxLayers = 1024;

// One of q, k, v: [layers, heads, tokens, width] in the file.
struct Source {
  const TensorInfo* tensor = nullptr;
  std::uint64_t layers = 1, heads = 0, tokens = 0, width = 0;
  [[nodiscard]] std::uint64_t row_bytes() const { return heads * width * size_of(tensor->type); }  // of one layer
};

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw Error(fmt::format("{}: {}", file.string(), why))
      .note(
          "expected a safetensors file with q [layers, heads, n, d], k and v [layers, kv_heads, n, d], all f32, f16 or "
          "bf16; the layer dimension may be absent")
      .note("numpy arrays become one with `safetensors.numpy.save_file({'q': q, 'k': k, 'v': v}, 'F.safetensors')`");
}

Source find_source(const SafetensorsFile& file, std::string_view name) {
  Source source;
  source.tensor = file.header().find(name);
  if (source.tensor == nullptr) refuse(file.path(), fmt::format("there is no tensor '{}'", name));
  const TensorInfo& t = *source.tensor;
  if (t.type != DType::kF32 && t.type != DType::kF16 && t.type != DType::kBF16) {
    refuse(file.path(), fmt::format("tensor '{}' has type {}", name, safetensors_name_of(t.type)));
  }
  const std::size_t rank = t.shape.size();
  if (rank != 3 && rank != 4) {
    refuse(file.path(), fmt::format("tensor '{}' has shape [{}]: {} dimensions", name, fmt::join(t.shape, ", "), rank));
  }
  if (t.bytes == 0)
    refuse(file.path(), fmt::format("tensor '{}' has shape [{}] and is empty", name, fmt::join(t.shape, ", ")));
  if (rank == 4) source.layers = t.shape[0];
  source.heads = t.shape[rank - 3];
  source.tokens = t.shape[rank - 2];
  source.width = t.shape[rank - 1];
  return source;
}

struct Sources {
  Source q, k, v;
};

Sources find_sources(const SafetensorsFile& file) {
  const Sources s{find_source(file, "q"), find_source(file, "k"), find_source(file, "v")};
  const auto shapes = [&] {
    return fmt::format("q [{}], k [{}], v [{}]", fmt::join(s.q.tensor->shape, ", "), fmt::join(s.k.tensor->shape, ", "),
                       fmt::join(s.v.tensor->shape, ", "));
  };
  if (s.q.tensor->type != s.k.tensor->type || s.q.tensor->type != s.v.tensor->type) {
    refuse(file.path(),
           fmt::format("q is {}, k is {}, v is {}: the types differ", safetensors_name_of(s.q.tensor->type),
                       safetensors_name_of(s.k.tensor->type), safetensors_name_of(s.v.tensor->type)));
  }
  if (s.q.layers != s.k.layers || s.q.layers != s.v.layers)
    refuse(file.path(), shapes() + ": the numbers of layers differ");
  if (s.q.layers > kMaxLayers) refuse(file.path(), fmt::format("{}: at most {} layers", shapes(), kMaxLayers));
  if (s.q.tokens != s.k.tokens || s.q.tokens != s.v.tokens)
    refuse(file.path(), shapes() + ": the numbers of tokens differ");
  if (s.k.heads != s.v.heads) refuse(file.path(), shapes() + ": k and v have different numbers of heads");
  if (s.q.heads % s.k.heads != 0) refuse(file.path(), shapes() + ": the heads of q are not a multiple of those of k");
  if (s.q.width != s.k.width) refuse(file.path(), shapes() + ": q and k have different widths");
  return s;
}

// With the width and the frequencies that the file has.
RotaryInfo rotary_of(const SafetensorsFile& file, const Sources& s, const ImportQkvOptions& options) {
  RotaryInfo rotary = options.rotary;
  if (rotary.style == "none") return rotary;
  if (rotary.dims == 0) rotary.dims = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.q.width, UINT32_MAX));
  if (rotary.dims > s.q.width || rotary.dims % 2 != 0) {
    throw usage_error(fmt::format("--rotary: {} elements of a head cannot be turned in pairs; {} has heads of {}",
                                  rotary.dims, file.path().string(), s.q.width));
  }
  const TensorInfo* table = file.header().find("inverse_frequencies");
  if (table == nullptr) return rotary;
  if (table->type != DType::kF32 || table->shape.size() != 1 || table->shape[0] != rotary.dims / 2) {
    throw Error(fmt::format("{}: tensor 'inverse_frequencies' is {} [{}], expected F32 [{}], one for each pair",
                            file.path().string(), safetensors_name_of(table->type), fmt::join(table->shape, ", "),
                            rotary.dims / 2));
  }
  rotary.inverse_frequencies.resize(rotary.dims / 2);
  file.read(*table, 0, std::as_writable_bytes(std::span(rotary.inverse_frequencies)));
  for (const float frequency : rotary.inverse_frequencies) {
    if (std::isfinite(frequency) && frequency >= 0) continue;
    throw Error(fmt::format("{}: tensor 'inverse_frequencies' holds {}", file.path().string(), frequency));
  }
  return rotary;
}

// [layers · heads], or nothing where the file has none.
std::vector<float> sinks_of(const SafetensorsFile& file, const Sources& s) {
  const TensorInfo* table = file.header().find("sinks");
  if (table == nullptr) return {};
  const bool has_layers = table->shape.size() == 2 && table->shape == std::vector<std::uint64_t>{s.q.layers, s.q.heads};
  const bool of_one = s.q.layers == 1 && table->shape == std::vector<std::uint64_t>{s.q.heads};
  if (table->type != DType::kF32 || !(has_layers || of_one)) {
    throw Error(fmt::format("{}: tensor 'sinks' is {} [{}], expected F32 [{}, {}], one for each layer and query head",
                            file.path().string(), safetensors_name_of(table->type), fmt::join(table->shape, ", "),
                            s.q.layers, s.q.heads));
  }
  std::vector<float> sinks(s.q.layers * s.q.heads);
  file.read(*table, 0, std::as_writable_bytes(std::span(sinks)));
  for (const float sink : sinks) {
    if (!std::isfinite(sink)) throw Error(fmt::format("{}: tensor 'sinks' holds {}", file.path().string(), sink));
  }
  return sinks;
}

TraceManifest make_manifest(const Sources& s, const ImportQkvOptions& options, RotaryInfo rotary,
                            std::span<const float> sinks) {
  if (constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 24; s.q.tokens > kMostTokens) {
    throw Error(fmt::format("tensors of {} tokens: expected at most {}, as many as a sequence of a trace has",
                            s.q.tokens, kMostTokens));
  }
  if (options.windows.size() > s.q.layers) {
    throw usage_error(fmt::format("--window: the file has {}, found {} entries: expected one for each layer, or fewer, "
                                  "which are repeated over the layers",
                                  counted(s.q.layers, "layer"), options.windows.size()));
  }
  TraceLayer layer;
  layer.query_heads = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.q.heads, UINT32_MAX));
  layer.kv_heads = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.k.heads, UINT32_MAX));
  layer.k_width = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.k.width, UINT32_MAX));
  layer.v_width = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.v.width, UINT32_MAX));
  layer.scale = static_cast<float>(options.scale.value_or(1.0 / std::sqrt(static_cast<double>(s.k.width))));
  if (options.alibi && s.q.heads <= kMaxLayers) layer.alibi_slopes = alibi_slopes(layer.query_heads);
  layer.rotary = std::move(rotary);
  layer.softcap = options.softcap;
  TraceManifest m;
  m.tool_version = kVersion;
  m.source = "import";
  m.weight_type = s.q.tensor->type;
  m.kv_type = s.q.tensor->type;
  m.layers.assign(s.q.layers, layer);
  for (std::size_t l = 0; !options.windows.empty() && l < m.layers.size(); ++l) {
    m.layers[l].window = options.windows[l % options.windows.size()];
  }
  for (std::size_t l = 0; !sinks.empty() && l < m.layers.size(); ++l) {
    const std::span<const float> of_layer = sinks.subspan(l * s.q.heads, s.q.heads);
    m.layers[l].attention_sinks.assign(of_layer.begin(), of_layer.end());
  }
  const auto new_tokens = static_cast<std::uint32_t>(s.q.tokens - options.prompt);
  m.sequences = {{0, options.prompt, new_tokens, 0, "imported"}};
  return m;
}

// Rows [first, first + count) of one layer as [count, heads, width].
void read_rows(const SafetensorsFile& file, const Source& source, std::uint64_t layer, std::uint64_t first,
               std::uint64_t count, std::vector<std::byte>& scratch, std::vector<std::byte>& rows) {
  const std::uint64_t width = source.width * size_of(source.tensor->type);
  rows.resize(count * source.heads * width);
  scratch.resize(count * width);
  for (std::uint64_t h = 0; h < source.heads; ++h) {
    file.read(*source.tensor, ((layer * source.heads + h) * source.tokens + first) * width, scratch);
    if (const auto at = first_not_finite(source.tensor->type, scratch)) {
      throw Error(fmt::format("{}: tensor '{}' holds NaN or infinity (layer {}, head {}, token {})",
                              file.path().string(), source.tensor->name, layer, h, first + *at / source.width));
    }
    for (std::uint64_t r = 0; r < count; ++r) {
      std::memcpy(rows.data() + (r * source.heads + h) * width, scratch.data() + r * width, width);
    }
  }
}

// The prompt as prefill steps of at most a block each, then one decode step for each further token.
class Importer {
 public:
  Importer(const SafetensorsFile& file, const Sources& sources, TraceWriter& writer)
      : file_(file), sources_(sources), writer_(writer), layers_(sources.q.layers) {}

  void run(std::uint64_t prompt) {
    const std::uint64_t token_bytes =
        sources_.q.layers * (sources_.q.row_bytes() + sources_.k.row_bytes() + sources_.v.row_bytes());
    const std::uint64_t most = std::max<std::uint64_t>(1, kBlockBytes / token_bytes);
    const std::uint64_t tokens = sources_.q.tokens;
    for (std::uint64_t at = 0; at < tokens;) {
      const std::uint64_t count = std::min(most, (at < prompt ? prompt : tokens) - at);
      read_block(at, count);
      if (at < prompt) {
        add(at, 0, count, "prefill");
      } else {
        for (std::uint64_t r = 0; r < count; ++r) add(at + r, r, 1, "decode");
      }
      at += count;
    }
  }

 private:
  struct Block {
    std::vector<std::byte> q, k, v;
  };

  void read_block(std::uint64_t first, std::uint64_t count) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      read_rows(file_, sources_.q, l, first, count, scratch_, layers_[l].q);
      read_rows(file_, sources_.k, l, first, count, scratch_, layers_[l].k);
      read_rows(file_, sources_.v, l, first, count, scratch_, layers_[l].v);
    }
  }

  // One step: `count` rows from row `offset` of the block on.
  void add(std::uint64_t first, std::uint64_t offset, std::uint64_t count, const char* phase) {
    const auto part = [&](const std::vector<std::byte>& rows, const Source& source) {
      return std::span(rows).subspan(offset * source.row_bytes(), count * source.row_bytes());
    };
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      writer_.add_rows(0, LayerId(static_cast<std::uint32_t>(l)), static_cast<std::uint32_t>(first),
                       static_cast<std::uint32_t>(count), part(layers_[l].q, sources_.q),
                       part(layers_[l].k, sources_.k), part(layers_[l].v, sources_.v));
    }
    writer_.end_step({step_++, phase, 1, 0, 0, {}});
  }

  const SafetensorsFile& file_;
  const Sources& sources_;
  TraceWriter& writer_;
  std::vector<Block> layers_;
  std::vector<std::byte> scratch_;
  std::uint32_t step_ = 0;
};

}  // namespace

void import_qkv(const fs::path& path, const ImportQkvOptions& options, const fs::path& out) {
  const Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) refuse(path, opened.error());
  const SafetensorsFile& file = opened.value();
  const Sources sources = find_sources(file);
  if (options.prompt < 1 || options.prompt > sources.q.tokens) {
    throw usage_error(fmt::format("--prompt is {}, expected 1 to {}: {} holds {} tokens", options.prompt,
                                  sources.q.tokens, path.string(), sources.q.tokens));
  }
  // Attention computes in float: what rounds to 0 or infinity there is no scale.
  const auto scale = static_cast<float>(options.scale.value_or(1.0));
  if (!std::isfinite(scale) || scale <= 0) {
    throw usage_error(fmt::format("--scale is {}, expected a number above 0", *options.scale));
  }
  write_whole_trace(out, make_manifest(sources, options, rotary_of(file, sources, options), sinks_of(file, sources)),
                    [&](TraceWriter& writer) { Importer(file, sources, writer).run(options.prompt); });
}

}  // namespace kvroof
