// The kernels as host code calls them: each function launches what fits its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cuda/score_arguments.hpp"

namespace kvroof::cuda {

// The folder where alone libraries are looked for; null: wherever they may lie. The emulator's launches are no GPU's:
// it takes libraries from the folder that KVROOF_EMULATED_LIBRARIES of the environment names ("": from none).
const char* library_folder();

// How functions that give a problem say that memory was refused.
inline constexpr std::string_view kNoMemory = "out of memory";

// Bytes that prompts leave to the first decode step: drivers bring a kernel's code to the device when it is first
// launched, and a graph has memory there.
std::size_t launch_reserve();

// Where launches go. After a refusal nothing more is launched, and `problem` says why.
struct Stream {
  void* handle = nullptr;  // cudaStream_t
  const char* problem = nullptr;
  unsigned multiprocessors = 0;  // of its device; 0: not known
  bool one_by_one = false;  // none begins before the one before it has ended
  // To tell what goes wrong on a device apart: KVROOF_NO_OVERLAP and KVROOF_NO_GRAPHS in the environment.
  bool overlaps = false;  // the device and the code for it have programmatic dependent launch
  bool graphs = true;     // a decode step may be one
  void* captured = nullptr;  // what the emulator captures
};

void run_embed(Stream& stream, Stored weights, const EmbedArguments& a);
void run_fill(Stream& stream, Stored type, const FillArguments& a);
void run_norm(Stream& stream, Stored weights, const NormArguments& a);
void run_linear(Stream& stream, Stored weights, LinearArguments a);
// Before and after products that a library makes (library_linear.hpp); x_row and out_row are given.
void run_round_vectors(Stream& stream, Stored weights, const ProductArguments& a);
void run_finish_products(Stream& stream, Stored weights, const ProductArguments& a);
// Of a mixture of experts: what each token takes; tiles of tile_pairs() pairs of one expert; the sum over a token's
// pairs.
void run_choose_experts(Stream& stream, const RouteArguments& a);
void run_group_pairs(Stream& stream, const GroupArguments& a);
void run_add_pairs(Stream& stream, const AddPairsArguments& a);
void run_cos_sin(Stream& stream, const RotaryArguments& a);
void run_prepare(Stream& stream, Stored weights, Stored cache, const PrepareArguments& a);
// run_linear and run_prepare of up to kMostAppended tokens by one launch.
void run_linear_append(Stream& stream, Stored weights, AppendArguments a);
void run_moves(Stream& stream, const MoveArguments& a);
// Blocks of its schedule (blocks_of).
void run_decode_attention(Stream& stream, Stored cache, const AttentionArguments& a);
// The same, and the scores: what run_noisy_sums and run_update_scores do after it.
void run_scored_attention(Stream& stream, Stored cache, const ScoredAttentionArguments& a);
// Of the blocks of that kernel for rows of such a width (padded_width; of latent ones kLatentValue), those that a
// multiprocessor holds at once; `scores`: of the kernel that keeps scores as well.
unsigned resident_attention_blocks(Stored cache, unsigned width, bool scores = false);
// Policy scores, in this order after the attention of the same units: the sums of Keyformer's noisy softmax, then the
// scores and the victims. Blocks of their schedule (kLastRow: for each kRowSlots slots of a sequence); groups of up to
// kMostScoreGroup.
void run_noisy_sums(Stream& stream, const ScoreArguments& a);
void run_update_scores(Stream& stream, const ScoreArguments& a);
// The same for the rows of consecutive queries of a prompt, in order, or under kLastRow for its last one. The host
// chooses how many go.
void run_observe_prompt(Stream& stream, const ScoreArguments& a);
void run_choose_lowest(Stream& stream, const ChooseArguments& a);
// What greedy decoding takes of rows of logits.
void run_choose_token(Stream& stream, const TokenChoiceArguments& a);
// One draw for each token of a prompt, before any row wants it.
void run_draw_prompt_noise(Stream& stream, const PromptScoreArguments& s);
// The scores after all rows of a prompt at once: the log-sums of a noisy softmax, where that is the kind, then the sums
// of all columns. Of int8 and int4 rows up to kMostQuantisedPrompt elements.
void run_prompt_noisy_sums(Stream& stream, Stored cache, const PromptScoreArguments& s);
void run_prompt_column_sums(Stream& stream, Stored cache, const PromptScoreArguments& s);
// Of int8 and int4 rows up to kMostQuantisedPrompt elements, and latent ones.
void run_prompt_attention(Stream& stream, Stored cache, const PromptArguments& a);
// Blocks of its schedule; of a prompt, for each token, storage head and kLatentHeads query heads.
void run_latent_attention(Stream& stream, Stored cache, const LatentArguments& a);
unsigned resident_latent_blocks(Stored cache);
unsigned resident_scored_blocks(Stored cache, unsigned width);

constexpr unsigned kMostGroup = 8;     // query heads that meet a row together
constexpr unsigned kLatentHeads = 16;  // query heads that meet a latent row together
constexpr unsigned kMostScoreGroup = 128;
// Elements of int8 and int4 rows that prompts meet at once: queries in two factors each fill the registers.
constexpr unsigned kMostQuantisedPrompt = 128;
// The width of the attention kernel for heads of this size: 64, 128 or 256; of latent rows at most 576, of which 512
// are v.
constexpr unsigned kLatentWidth = 576;
constexpr unsigned kLatentValue = 512;
constexpr unsigned padded_width(unsigned dim) {
  return dim > 256 ? kLatentWidth : dim > 128 ? 256 : dim > 64 ? 128 : 64;
}

// Memory of the device. Null, or what the device answered.
const char* allocate(std::size_t bytes, void** out);
void release(void* memory);
const char* copy_in(Stream& stream, void* to, const void* from, std::size_t bytes);
// Returns after the bytes have arrived, and all that was launched before.
const char* copy_out(Stream& stream, void* to, const void* from, std::size_t bytes);
const char* synchronize(Stream& stream);
const char* open_stream(Stream& stream);
void close_stream(Stream& stream);

// Launches between these two are captured instead of made, and `graph` then holds them (a CUDA graph). Nothing may be
// copied meanwhile.
const char* begin_capture(Stream& stream);
const char* end_capture(Stream& stream, void** graph);
// Makes them all, with the arguments that they were captured with.
const char* launch_graph(Stream& stream, void* graph);
void release_graph(void* graph);

// What is not known is 0.
struct DeviceFacts {
  int driver = 0, runtime = 0;  // CUDA versions, 13.0 as 13000
  int devices = -1;             // -1: not known
  char name[256] = {};
  unsigned multiprocessors = 0;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  int major = 0, minor = 0;
  bool has_code = false;  // this program, for the device
};
// Null, or why there is no device that this program has code for; the facts are filled in as far as they are known.
const char* find_device(DeviceFacts& facts);

}  // namespace kvroof::cuda
