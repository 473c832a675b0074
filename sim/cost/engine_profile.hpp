// How an engine launches work, spreads it over devices and fills memory: a file a engine, beside the devices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

struct EngineProfile {
  std::string name;
  std::string about;                      // half a sentence; comments of the file say where its numbers are from
  std::vector<std::string> published_as;  // what tables of measurements call it; a version may follow
  bool on_cpu = false;                    // the profile of a CPU back end, which says nothing of a GPU
  std::vector<std::string> runs_on;       // vendors of the devices that it has kernels for; empty: of many, or any

  // Kernels of a layer.
  std::uint32_t linears_per_layer = 4;    // launches of matrix products in a layer: qkv, o, gate and up, down
  std::uint32_t kernels_per_layer = 10;   // all launches of a layer but the policy's
  std::uint32_t small_kernels = 0;        // of those, operators that others fuse: each takes a kernel's start by itself
  std::uint32_t policy_kernels = 2;       // launches of a scoring policy in a layer: update scores; choose and free
  double activation_bytes = 4;            // of an element of the activations
  // Of the rate of weights, what kernels between products reach with activations, whether the cache holds these or not;
  // 0: that rate, with what the cache does not hold.
  double activation_share = 0;
  double policy_share = 1;                // of the rate of attention's reads, what kernels that keep scores reach

  // Products with weights.
  bool halves_float32 = false;            // weights stored in 32 bits are run in 16, where no type is asked for
  bool bf16_of_float32 = false;           // these 16 are bf16, else f16
  bool unties_head = false;               // holds a head of its own where the model's is the embedding
  bool quantises_activations = true;      // where the weights have products of their own type on the device
  bool quantises_fp4_apart = false;       // inputs of products in 4 bits are quantised by kernels of their own
  double unpacked_starts = 1;             // starts of a product of unpacked weights, beside one of 16-bit weights
  double unpacking = 1;                   // operations of unpacking, beside those of kernels that compilers generate
  double column_share = 0;                // longer that unpacked weights take for each row beyond the first, up to 8
  double unpacked_share = 1;              // of the arithmetic of 16-bit products, what those of unpacked weights reach
  // Bytes that one multiprocessor's kernel has under way a clock; 0: enough for the device's bandwidth.
  double bytes_per_clock = 0;
  double plain_bytes_per_clock = 0;       // the same of 16-bit weights; 0: as of others

  // Routed experts.
  std::uint32_t routed_kernels = 2;       // launches of routed experts beside the router and what a plain MLP has
  std::uint32_t native_routed_kernels = 3;  // at most so many where experts of 4 bits are multiplied as they are stored
  double listed_expert_us = 0;            // a layer takes longer for each expert in 8 bits that a device holds
  double experts_us = 0;                  // a layer with routed experts takes longer by so much
  double unpacked_experts_us = 0;         // a layer takes longer whose experts alone are packed, where it unpacks them
  bool quantises_experts_apart = false;   // inputs of experts in 8 bits are quantised by kernels of their own
  bool shared_with_routed = false;        // shared experts are one more in the call of the routed ones
  double beside_experts_bits = 0;         // of what a format of experts alone leaves at 16 bits; 0: 16

  // Attention.
  bool fused_attention = true;            // the probability matrix never exists in memory
  double probability_copies = 0;          // live copies of one layer's prompt probabilities of the whole batch, without
                                          // fused attention; the prompt's activations are fitted inside
  bool reads_by_query_head = false;       // decode attention passes rows that heads share once for each of them
  double cache_passes = 0;                // over the rows that a step reads, beside attention's: a cache built anew
  bool expands_latent = false;            // prompts multiply k and v of each head, made from the latent, not the latent
  // Where an index chooses tokens: what attention to them reaches of what it does where rows follow each other, of
  // decode steps and of prompts; whether prompts no longer than what a query may read are attended to whole.
  double chosen_share = 0.5, chosen_prompt_share = 0.75;
  bool short_prompts_whole = false;
  double index_us = 0;                    // a layer that chooses takes longer by so much
  double choose_rows_us = 0;              // the same of compressed rows, in steps where not all of them are read

  // What the host launches and does.
  bool graphs = true;                     // launches are replayed from a graph: the host never waits between them
  // Sequences that graphs are captured for, ascending. Empty: a graph of every batch's own size.
  std::vector<std::uint32_t> graph_sizes;
  bool graphs_of_tokens = false;          // those are tokens: several a sequence in steps that verify drafts
  bool graphs_over_stages = true;         // graphs are replayed too where devices hold layers one after another
  double launch_us = 0;                   // host time of one launch, without graphs
  double eager_launch_us = 0;             // the same where a user turned graphs off; 0: as without graphs
  double prompt_launch_us = 0;            // host time of one launch of a prompt, which decode's graphs do not hold
  double gap_us = 0;                      // the device idles so long between two kernels of a layer
  double launch_gap_us = 0;               // and so much longer where they are launched one by one, not from a graph
  double step_us = 0;                     // host and sampling time of one step
  double request_us = 0;                  // host time of one sequence in a step
  double hidden_request_us = 0;           // host time of one sequence in a step that goes on while the device computes
  double logits_ns = 0;                   // handing logits to the host, a sequence and entry of the vocabulary
  double top_p_ns = 0;                    // drawing a token by top-p or top-k, likewise

  // Prompts and requests.
  bool prompts_first = false;             // a server computes all prompts that wait before answers go on
  bool prompts_together = false;          // the prompts of a batch are computed as one
  double prompt_chunk = 1e9;              // tokens of a prompt that are computed at once
  double step_tokens = 0;                 // of prompts and answers that its scheduler puts into a step; 0: prompt_chunk
  bool admits_by_prompt = false;          // a request has its place once its prompt fits, until answers do not
  double largest_batch = 1e9;             // sequences that its scheduler takes at once
  double arrival_us = 0;                  // from a request's arrival at a server to its place in a batch
  double prompts_ahead = 3;               // of a closed loop, before one's own: clients finish and ask again in groups
  bool settles_ahead = false;             // step n + 1 is scheduled when step n begins (asynchronous scheduling): who
                                          // comes during step n runs first in step n + 2
  double waited_steps = 1.5;              // of answers, between a request's place in a batch and its first token

  // Memory.
  // Formats of weights that bring a cache of 8 bits, where nothing is said of it.
  std::vector<std::string> small_cache_with;
  bool takes_stored_cache = false;        // the cache has the type that the checkpoint's file states, likewise
  // Types of a cache that it can have beside that of the activations; empty: not known.
  std::vector<std::string> cache_types;
  bool fills_memory = false;              // takes its whole share of memory when it starts, whatever sequences hold
  bool paged_cache = false;               // memory of the cache comes in pages of kPageRows rows of one head
  bool state_pages = false;               // states and rows of a hybrid share pages of one size (MemoryModel)
  bool float32_states = false;            // states of layers without a cache, whatever type the checkpoint names
  bool float32_state_rows = false;        // likewise the rows of their convolutions, elsewhere in the weights' type
  bool keeps_hidden_rows = false;         // layers with a window hold the rows too that it no longer shows
  bool evicts_after_prompt = false;       // all layers of a prompt stay whole to its end; else each is compacted
  double beam_copies = 0;                 // of the whole cache, alive while beams are put into another order
  double reserve_gib = 0;                 // context and graph pools
  double reserve_fraction = 0;            // of usable memory: allocator slack

  // Several devices.
  bool measured_stages = false;           // rows of published tables show its stages that work at the same time
  bool measured_groups = false;           // likewise groups of devices that share experts
  bool stages_by_default = false;         // where nothing else is asked for: layers one after another
  bool overlaps_stages = false;           // stages of a server work on different sequences at the same time
  bool short_ends = false;                // where layers do not divide, other stages than first and last have more
  double product_us = 0;                  // more for each device of each product, where a host shares products out one
                                          // by one
  double shared_step_us = 0;              // host time of one step more where devices share layers: telling their
                                          // processes
  double sum_us = 8;                      // start of a sum over two devices
  double sum_doubling_us = 3;             // more for each doubling of their number
  bool norms_in_sums = false;             // the kernels that sum over devices norm what they sum
  double second_shot_us = 0;              // over links, a sum in two parts starts later than one where all read all; 0:
                                          // a ring

  // What it is on other boards, each in its own versions; empty in those themselves.
  std::vector<EngineProfile> elsewhere;
  std::vector<std::string> on;  // the architectures that one of those is for
  double from_gib = 0;          // and the memory from which on it is for them
  // The version before this one, or nothing: a chain.
  std::vector<EngineProfile> earlier;
  std::vector<std::string> before;  // the versions (version.hpp) that first were not as this one: one a way of counting

  // What this engine is in a version, "" being this one, on a board of that architecture and memory: of what it is
  // there, the newest of the chain that the version is not surely before.
  [[nodiscard]] const EngineProfile& of(std::string_view version, std::string_view architecture,
                                        double memory_gib = 0) const;

  // Devices of vendors that are not known are taken to be among them.
  [[nodiscard]] bool runs_on_vendor(std::string_view vendor) const;

  // Tokens that a step has room for; where nothing is stated, `most`.
  [[nodiscard]] double step_room(double most) const {
    return step_tokens > 0 ? step_tokens : std::min(prompt_chunk, most);
  }

  // Whether anything is replayed from a graph where so many stages follow one another.
  [[nodiscard]] bool has_graphs(std::uint32_t stages) const { return graphs && (stages == 1 || graphs_over_stages); }
  // Whether a decode step of so many sequences, of so many tokens each, is.
  [[nodiscard]] bool replays(std::uint64_t batch, std::uint64_t tokens, std::uint32_t stages) const {
    return has_graphs(stages) && (graph_sizes.empty() || batch * (graphs_of_tokens ? tokens : 1) <= graph_sizes.back());
  }
  // Tokens that such a step computes: those of the smallest graph that holds the batch, or its own.
  [[nodiscard]] std::uint64_t padded(std::uint64_t batch, std::uint64_t tokens, std::uint32_t stages) const;
};

// A file of that form; strict: unknown keys and numbers that no engine has are refused with their line.
Result<EngineProfile> engine_from_yaml(std::string_view text);

// A key of that form and what the profile has for it, as the file would say it.
struct EngineFact {
  std::string_view key;
  std::string value;

  bool operator==(const EngineFact&) const = default;
};
// All of them, in one order; without name, about and the lists of versions and architectures.
std::vector<EngineFact> engine_facts(const EngineProfile& profile);

// catalog/engines/<name>.yaml, of today or, as "vllm@0.2.5", of a version, on a board of an architecture ("": of most)
// and of so much memory. Throws Error (usage) with "did you mean" for an unknown name, and for what is no version.
EngineProfile find_engine_profile(const std::string& name, const std::filesystem::path& catalog,
                                  std::string_view architecture = "", double memory_gib = 0);
std::vector<std::string> catalog_engine_names(const std::filesystem::path& catalog);
// kvroof's own back end on a GPU or on a CPU.
EngineProfile default_engine_profile(DeviceKind kind, const std::filesystem::path& catalog);

}  // namespace kvroof
