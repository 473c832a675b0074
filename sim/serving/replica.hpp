// One scheduler, of a server or of a group of its devices: continuous batching as engines do it, a step at a time.
//
// Requests wait in the order of their arrival. A step makes one token more of each running sequence, or as many as stay
// of those that it drafts. Prompts are
// computed beside these, in parts if they must, as far as the tokens of a step allow; under engines that let prompts go
// first, in steps of their own that others wait for. A sequence's cache takes what the policy holds of it at its age.
// Where the engine admits by the prompt and caches outgrow the memory, the newest sequence loses its place, waits at
// the head of the queue, and is computed anew.
//
// Under an engine whose stages work at once a server has a batch for each stage; they share its memory and queue. A
// sequence stays in the batch where it got its place, and a batch takes no more than its part of all that run or have
// room, so that they stay about even. Nobody loses a place while its batch is under way.
//
// With a prefix cache, what it has of a prompt is looked for when the prompt gets its place, held from then on, and not
// computed; the last token always is. Blocks count once, however many sequences hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "sim/cost/engine_profile.hpp"
#include "sim/serving/drafts.hpp"
#include "sim/serving/prefix_cache.hpp"
#include "sim/serving/requests.hpp"
#include "sim/serving/serving_costs.hpp"

namespace kvroof {

// What an engine's scheduler allows.
struct SchedulerLimits {
  std::uint64_t sequences = 1;   // that run at once
  std::uint32_t batches = 1;     // that these are split into, which are under way at once: as many as stages
  std::uint32_t step_tokens = 1; // of prompts and answers in one step
  bool prompts_first = false;    // prompts have steps of their own, before answers go on
  bool admits_by_prompt = false; // else a place is free when the whole answer's cache fits
  bool one_ahead = false;        // the next step is settled when one begins: who comes meanwhile waits for it as well
  double arrival_seconds = 0;    // from arrival to the queue
  Drafts drafts = {};            // a step of a sequence passes so many tokens more, and may make as many more
};
SchedulerLimits scheduler_limits(const EngineProfile& engine);

// The way of a cache from the server of its prompt to that of its answer; seconds.
struct Transfer {
  std::uint32_t from = 0;  // the server of the prompt
  double bytes = 0;        // over the link of one device
  double begun = -1, ended = -1;
};

// What became of a request; seconds.
struct ServedRequest {
  Request request;
  std::uint32_t replica = 0;
  std::uint32_t group = 0;  // of that server's devices
  std::uint32_t came = ~0U;  // how many requests arrived before it
  double placed = -1;       // when its prompt was first begun
  double first_token = -1, finished = -1;
  std::uint32_t preemptions = 0;
  bool moves = false;  // its cache stays after its last token, until another server has it
  Transfer transfer = {};  // where prompts have servers of their own (disaggregated.hpp)
  std::uint32_t cached = 0;  // tokens of the prompt that were not computed, when it was first begun
};

class Replica {
 public:
  // Called with the end of a step: how long a sequence waited for what the step made, if it is not its first token.
  using TokenGap = std::function<void(double seconds)>;

  // `requests` outlives the replica and does not move. Without `prefixes` prompts share nothing.
  Replica(const ServingCosts& costs, const SchedulerLimits& limits, const std::optional<PrefixCacheSetup>& prefixes,
          std::vector<ServedRequest>& requests, TokenGap on_gap);

  // A request joins the queue. Requests come in the order of their arrival, none before the latest event.
  void arrive(std::size_t request);
  // Of requests whose prompts other servers compute: whether one may have a place now, for which nobody waits who had
  // one before; its place, from then on; and that its cache is there, so that it goes on with a coming step.
  [[nodiscard]] bool has_place(std::size_t request) const;
  void expect(std::size_t request);
  void join(std::size_t request, double now);
  // Another server has the cache of a request that moves.
  void release(std::size_t request, double now);

  // When a batch that is not under way may take a request. Nothing: there is none, or no room until something ends.
  [[nodiscard]] std::optional<double> next_taken() const;
  // Whether the batch has sequences.
  [[nodiscard]] bool runs(std::uint32_t batch) const;
  // What a step of the batch that begins now computes, with those who came until then.
  struct SettledStep {
    bool runs = false;  // else there is nothing to do
    std::uint64_t answers = 0, prompt_tokens = 0;
  };
  [[nodiscard]] SettledStep settle_step(std::uint32_t batch, double now, double seen_until);
  // Of the step that was settled last; `all` is what all `groups` of the server compute in it.
  [[nodiscard]] double settled_seconds(const SettledStep& all, std::size_t groups) const;
  // The step takes so many seconds, also where nothing was settled and others' sequences are waited for.
  void count_step(double seconds);
  // The requests that are finished with the step of the batch.
  std::vector<std::size_t> end_step(std::uint32_t batch, double now);

  [[nodiscard]] std::size_t waiting() const { return queue_.size(); }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t expected() const { return expected_; }
  // Tokens of the prompt that its prefix cache has now.
  [[nodiscard]] std::uint32_t found(const Request& request) const;

  // Over all steps until now; sums over seconds divide by busy_seconds to their means.
  struct Totals {
    std::uint64_t steps = 0;
    double busy_seconds = 0;
    double running_seconds = 0, cache_byte_seconds = 0;
    std::size_t most_running = 0;  // of a server (server_steps.hpp)
    double most_cache_bytes = 0;
    double idle_byte_seconds = 0, host_byte_seconds = 0;  // of blocks of a prefix cache that no sequence holds
    std::uint64_t answer_steps = 0;   // of sequences: steps that made tokens of an answer after its first,
    std::uint64_t answer_tokens = 0;  // and the tokens that they made
    std::uint64_t evicted_blocks = 0;
    std::uint64_t host_tokens_read = 0;
  };
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  struct Sequence {
    std::size_t request = 0;
    std::uint32_t generated = 0;  // tokens of the answer
    std::uint32_t computed = 0;   // tokens of `to_compute` that are in the cache
    std::uint32_t to_compute = 0; // the prompt, and what was generated before it lost its place
    std::uint32_t part = 0;       // tokens of its prompt in the step that runs
    std::uint32_t steps = 0;      // of its answer that are done
    double cache = 0;             // bytes that its cache takes when the next step is done
    double most_cache = 0;        // at its largest
    double last_token = 0;
    double joined = 0;            // when its cache came from another server
    PrefixBlock held = kNoPrefix;  // the last block of its prompt that it holds
    bool begun = false;            // its prompt, since it has its place
    bool waits = false;            // its answer, for the prompts of the step that runs
    std::uint32_t batch = 0;
    double corrected = 0;          // bytes that its cache has beside those that it is taken for
    [[nodiscard]] bool decodes() const { return computed == to_compute; }
  };

  [[nodiscard]] double cache_of(const Sequence& sequence) const;
  [[nodiscard]] double most_cache_of(const Request& request) const;
  // What must be free for a sequence to get a place.
  [[nodiscard]] double reserved(const Sequence& s) const { return limits_.admits_by_prompt ? s.cache : s.most_cache; }
  [[nodiscard]] Sequence sequence_with_prompt(std::size_t request) const;
  [[nodiscard]] double queued_at(const Sequence& sequence) const {
    return requests_[sequence.request].request.arrival + limits_.arrival_seconds;
  }
  void take_joined(std::uint32_t batch, double seen_until);
  void stay(const Sequence& sequence);
  void give_up(double held_bytes);
  // Bytes of all caches in memory, with the blocks that they hold.
  [[nodiscard]] double caches() const;

  // replica_prefixes.cpp: with a prefix cache; without one they do nothing, and all bytes are a sequence's own.
  // By how much its cache is taken for too small, for a prompt of another length: blocks have lengths of their own.
  [[nodiscard]] double correction(const Request& request) const;
  // Of so many bytes of its cache, those that are not in the blocks up to `held`.
  [[nodiscard]] double own(const Sequence& sequence, double bytes, PrefixBlock held) const {
    return prefixes_ ? unshared(sequence, bytes, held) : bytes;
  }
  [[nodiscard]] double unshared(const Sequence& sequence, double bytes, PrefixBlock held) const;
  // What is there of its prompt, as far as it may be held: in memory that nobody else needs there is room for it and
  // for what the sequence keeps as its own.
  [[nodiscard]] PrefixBlock there(const Sequence& sequence) const;
  // Holds what is there of its prompt, which then is computed.
  void find_prefix(Sequence& sequence);
  // Holds the blocks of its prompt that are computed, so that others find them.
  void hold_computed(Sequence& sequence, std::uint32_t computed);
  // Its prompt is computed: where the policy evicts from it, the whole of it stays for others.
  void keep_prompt(Sequence& sequence);
  // It is answered: what it held of its prompt, and its answer, stays for whoever goes on from there.
  void keep_answer(Sequence& sequence);
  void let_go(Sequence& sequence);
  // Blocks that no sequence holds go until those that run have their memory.
  void shrink_idle();
  // What the step that begins needs is held. Seconds in which blocks of it are read from the host.
  double settle_prefixes();
  void count_prefixes(double seconds);
  // Memory that is taken, where those who run get what they need.
  [[nodiscard]] double taken_bytes() const;
  [[nodiscard]] std::uint64_t part_of_a_batch(double seen_until) const;
  void admit(std::uint32_t batch, double seen_until);
  void make_room(std::uint32_t batch);
  [[nodiscard]] std::uint64_t size_of(std::uint32_t batch) const;
  // Tokens of a step beside those of answers.
  [[nodiscard]] std::uint64_t prompt_tokens(std::uint32_t batch) const;
  void settle_prompts(std::uint32_t batch);
  void settle(std::uint32_t batch, double now);
  [[nodiscard]] std::uint32_t tokens_of_step(Sequence& sequence);

  const ServingCosts& costs_;
  SchedulerLimits limits_;
  std::vector<ServedRequest>& requests_;
  std::optional<PrefixCache> prefixes_;
  TokenGap on_gap_;
  std::deque<Sequence> queue_;
  std::vector<Sequence> running_;  // in the order in which they got their places
  std::vector<Sequence> joining_;  // whose caches are there, until a step takes them
  std::vector<Sequence> leaving_;  // whose answers go on elsewhere, until another server has their caches
  // Of the step that was settled last.
  struct {
    std::vector<Decoding> sequences;
    std::vector<PromptPart> prompts;
    std::uint64_t prompt_tokens = 0;
    double prefix_seconds = 0;
  } settled_;
  std::size_t expected_ = 0;       // have places and do not run yet
  std::size_t held_ = 0;           // caches in memory whose sequences do not run: of expected and of leaving ones
  double held_bytes_ = 0;
  bool full_ = false;       // nobody has a place until a cache is gone or a step ends
  double released_ = 0;     // when a cache last was gone
  double cache_bytes_ = 0;  // at the latest step
  Totals totals_;
};

// Totals of several: sums, and the largest of each.
Replica::Totals& operator+=(Replica::Totals& all, const Replica::Totals& one);

}  // namespace kvroof
