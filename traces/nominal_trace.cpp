#include "traces/nominal_trace.hpp"

#include <array>
#include <vector>

#include "sim/core/philox.hpp"
#include "traces/writer.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kWidth = 16;
// Elements of q and k that carry structure: how much a token is looked at, and its place. The others are noise.
constexpr std::size_t kImportance = 0;
constexpr std::size_t kPlace = 1;

using Row = std::array<float, kWidth>;

// Nearly normal: the sum of four uniform numbers, of mean 0 and variance 1; exact on every machine.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint32_t token, std::uint32_t stream) : seed_(seed), token_(token), stream_(stream) {}
  float next() {
    const Philox4 x = philox4x32_10(Philox4{{token_, stream_, count_++, 0}}, seed_);
    float sum = -2;
    for (const std::uint32_t bits : x.x) sum += uniform_open(bits);
    return 1.7320508F * sum;
  }

 private:
  std::uint64_t seed_;
  std::uint32_t token_, stream_;
  std::uint32_t count_ = 0;
};

Row noise(Draws& draws) {
  Row row;
  for (float& x : row) x = draws.next();
  return row;
}

Row key(std::uint64_t seed, std::uint32_t token) {
  Draws draws(seed, token, 0);
  Row k = noise(draws);
  const float drawn = draws.next();
  k[kImportance] = token == 0 ? 5.0F : drawn > 2 ? 3 * drawn : drawn;
  // A logit grows by one in a thousand tokens: newer tokens weigh more.
  k[kPlace] = 0.004F * static_cast<float>(token);
  return k;
}

Row query(std::uint64_t seed, std::uint32_t token, std::uint32_t head) {
  Draws draws(seed, token, 1 + head);
  Row q = noise(draws);
  q[kImportance] = 3 + 0.5F * draws.next();
  q[kPlace] = 1;
  return q;
}

TraceManifest manifest_of(const NominalTrace& trace) {
  TraceManifest m;
  m.source = "import";
  m.seed = trace.seed;
  TraceLayer layer;
  layer.query_heads = trace.query_heads;
  layer.kv_heads = 1;
  layer.k_width = layer.v_width = kWidth;
  layer.scale = 0.25F;  // 1 / √width
  m.layers.assign(trace.layers, layer);
  TraceSequence sequence;
  sequence.prompt = trace.prompt;
  sequence.requested_new_tokens = trace.output;
  sequence.stop_reason = "imported";
  m.sequences = {sequence};
  return m;
}

}  // namespace

void write_nominal_trace(const std::filesystem::path& path, const NominalTrace& trace) {
  const std::uint32_t tokens = trace.prompt + trace.output;
  std::vector<Row> q, k;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    k.push_back(key(trace.seed, t));
    for (std::uint32_t h = 0; h < trace.query_heads; ++h) q.push_back(query(trace.seed, t, h));
  }
  TraceWriter writer(path, manifest_of(trace));
  const auto keys = std::as_bytes(std::span(k));
  for (std::uint32_t l = 0; l < trace.layers; ++l) {
    writer.add_rows(0, LayerId(l), 0, tokens, std::as_bytes(std::span(q)), keys, keys);
  }
  StepRecord step;
  step.phase = "prefill";
  step.sequences = 1;
  writer.end_step(step);
  writer.seal();
}

}  // namespace kvroof
