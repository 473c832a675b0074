#include "kernels/cuda/measure/attention_work.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/step_plan.hpp"

namespace kvroof::cuda {
namespace {

// What an engine's layers write over one after another, and so have in the cache: all calls have the same.
struct LayerScratch {
  DeviceBuffer logits, splits;
};

// Caches of one call of attention, and the plan over them.
class Call {
 public:
  Call(Stream& stream, const AttentionWork& c, const DeviceBuffer& arena, std::size_t first, const float* q, float* out,
       unsigned multiprocessors, LayerScratch& scratch)
      : c_(c), plan_(c.kv_heads, c.heads / c.kv_heads) {
    const std::size_t rows = c.tokens() * c.kv_heads;
    const std::size_t values = first + rows * c.row_bytes(), scales = first + 2 * rows * c.row_bytes();
    // A score, and of one draw a token the noise of each query head.
    const std::size_t columns = !c.scores ? 0 : *c.scores == ScoreKind::kNoisySum ? 1 + c.heads / c.kv_heads : 1;
    if (columns > 0) state_ = noise(stream, Noise::kF32, 1, (4 * columns * rows + 15) / 16 * 16);
    next_ = DeviceBuffer(4 * c.lengths.size() * c.kv_heads);
    std::size_t row = 0, head = 0;
    for (const std::uint32_t length : c.lengths) {
      std::vector<CacheSlots> heads;
      for (std::uint32_t h = 0; h < c.kv_heads; ++h, ++head, row += length) {
        heads.push_back({arena.at(first + row * c.row_bytes()), arena.at(values + row * c.row_bytes()),
                         arena.at<float>(scales + 4 * row), arena.at<float>(scales + 4 * (rows + row)),
                         arena.at<std::uint32_t>(scales + 4 * (2 * rows + row)), nullptr,
                         state_.at<std::uint32_t>(4 * columns * row), length, next_.at<std::uint32_t>(4 * head)});
      }
      plan_.add(heads, length, std::vector(heads.size(), length));
    }
    const unsigned width = padded_width(c.dim);
    const unsigned resident = resident_attention_blocks(c.type, width, c.scores.has_value());
    plan_.cut(multiprocessors * resident, width, 2 * c.row_bytes());
    if (c.rows) {
      scratch.logits.reserve(plan_.logit_floats() * sizeof(float));
      plan_.place_logits(scratch.logits.at<float>());
    }
    a_ = plan_.arguments(stream, tables_, scratch.splits, width);
    a_.key_row_bytes = a_.value_row_bytes = c.row_bytes();
    a_.q = q;
    a_.heads = c.heads;
    a_.head_dim = a_.value_dim = c.dim;
    a_.scale = 0.05F;
    a_.out = out;
    if (c.scores) prepare_scores(stream);
  }
  // Of one call in the arena: rows, scales and positions.
  static std::size_t arena_bytes(const AttentionWork& c) {
    const std::size_t rows = c.tokens() * c.kv_heads;
    return (rows * (2 * c.row_bytes() + 12) + 255) / 256 * 256;
  }
  // Scales as those of a cache: of random bits some are no numbers, with which a softmax takes other ways.
  static void fill_scales(Stream& stream, const AttentionWork& c, const DeviceBuffer& arena, std::size_t first) {
    const std::size_t rows = c.tokens() * c.kv_heads;
    run_noise(stream, Noise::kF32, 0.01F, 1, arena.at(first + 2 * rows * c.row_bytes()), (8 * rows + 15) / 16 * 16);
  }
  void launch(Stream& stream) {
    if (c_.scores && !c_.apart) return run_scored_attention(stream, c_.type, ScoredAttentionArguments{a_, scores_});
    run_decode_attention(stream, c_.type, a_);
    if (!c_.scores) return;
    if (*c_.scores == ScoreKind::kNoisySum) run_noisy_sums(stream, scores_);
    run_update_scores(stream, scores_);
  }

 private:
  void prepare_scores(Stream& stream) {
    scores_ = score_arguments(plan_, a_, score_parts_);
    scores_.kind = *c_.scores;
    if (scores_.kind == ScoreKind::kNoisySum) scores_.noise = ScoreNoise::kPerToken;
    std::vector<StepRow> rows;
    for (const std::uint32_t length : c_.lengths) {
      rows.push_back({.length = length, .slot = length - 1, .recent = length / 8, .evicts = 1});
    }
    score_rows_ = uploaded(stream, rows);
    // Random bits are no positions that a victim could have.
    std::vector<std::uint32_t> positions(*std::max_element(c_.lengths.begin(), c_.lengths.end()));
    std::iota(positions.begin(), positions.end(), 0U);
    for (const AttentionUnit& unit : plan_.units()) {
      copy_to_device(stream, reinterpret_cast<std::byte*>(unit.slots.positions),
                     std::as_bytes(std::span(positions).first(unit.length)));
    }
    check_device(synchronize(stream), "copying positions");
    finished_ = uploaded(stream, std::vector<unsigned>(plan_.units().size()));
    evicted_ = DeviceBuffer(4 * c_.lengths.size() * c_.kv_heads);
    scores_.rows = score_rows_.at<StepRow>();
    scores_.finished = finished_.at<unsigned>();
    scores_.evicted = evicted_.at<std::uint32_t>();
  }

  const AttentionWork& c_;
  AttentionPlan plan_;
  DeviceBuffer tables_, state_, next_, score_parts_, score_rows_, finished_, evicted_;
  AttentionArguments a_;
  ScoreArguments scores_;
};

// What is timed must be what a model would ask for.
void check_numbers(Stream& stream, const DeviceBuffer& out, std::size_t count) {
  std::vector<float> numbers(count);
  copy_to_host(stream, std::as_writable_bytes(std::span(numbers)), out.at());
  const bool finite = std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
  if (!finite) throw Error("the attention that was timed made something that is no number");
}

}  // namespace

std::optional<Measured> time_attention(const AttentionWork& work, const DeviceFacts& device, const CardFacts& card,
                                       double seconds) {
  OpenStream open;
  Stream& stream = open.get();
  const std::size_t call_bytes = Call::arena_bytes(work), calls = pieces_of(call_bytes, card);
  if (!card.emulated && calls * call_bytes > device.free_bytes / 2) return std::nullopt;
  const bool integers = work.type == Stored::kInt8 || work.type == Stored::kInt4;
  // Random bits are numbers as integers; as positions any serves.
  const DeviceBuffer arena = noise(stream, integers ? Noise::kBytes : Noise::kBF16, 1, calls * call_bytes);
  for (std::size_t i = 0; integers && i < calls; ++i) Call::fill_scales(stream, work, arena, i * call_bytes);
  const std::size_t floats = work.lengths.size() * work.heads * work.dim;
  const DeviceBuffer q = noise(stream, Noise::kF32, 1, 4 * floats), out(4 * floats);
  LayerScratch scratch;  // calls are alike: it does not grow after the first
  std::vector<std::unique_ptr<Call>> sets;
  for (std::size_t i = 0; i < calls; ++i) {
    sets.push_back(std::make_unique<Call>(stream, work, arena, i * call_bytes, q.at<float>(), out.at<float>(),
                                          device.multiprocessors, scratch));
  }
  TimedWork timed(stream, std::max<unsigned>(static_cast<unsigned>(calls), repetitions_for(call_bytes, card)),
                  [&](unsigned i) { sets[i % calls]->launch(stream); }, static_cast<double>(work.bytes()));
  const Measured m = measure(timed, seconds);
  check_numbers(stream, out, floats);
  return m;
}

}  // namespace kvroof::cuda
