// What answers about a workload must say beside their numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "apps/prediction/layouts.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/prediction/workload.hpp"
#include "sim/core/suggest.hpp"
#include "sim/device/products.hpp"

namespace kvroof {
namespace {

using Notes = std::vector<std::string>;
using Devices = std::span<const Device* const>;

bool any_point(const WorkloadRequest& request, bool (*holds)(const PolicySpec&)) {
  return std::ranges::any_of(request.points, holds);
}
bool evicts(const WorkloadRequest& request) {
  return any_point(request, [](const PolicySpec& point) { return !point.is_full(); });
}

// Types of the cache that the engine is not known to have.
Notes assumed_cache(const WorkloadRequest& request, Devices) {
  if (!request.engine || request.engine->cache_types.empty()) return {};
  const auto& known = request.engine->cache_types;
  for (const PolicySpec& point : request.points) {
    if (!point.kv || point.kv->bits() >= 16) continue;
    const std::string name(name_of(*point.kv));
    if (std::ranges::find(known, name) != known.end()) continue;
    return {fmt::format("--kv {}: {} is known to have a cache in {}; that it had this one is assumed", name,
                        request.engine->name, join(known))};
  }
  return {};
}

// Types of weights that a board does not multiply (`lacking`), or is not known to.
std::string assumed_weights(const WorkloadRequest& request, Devices devices, bool lacking) {
  if (!request.engine || request.is_own_engine()) return {};
  constexpr std::size_t kNamed = 3;
  for (const Deployment& deployment : request.deployments) {
    if (!deployment.weights.peak) continue;
    std::vector<std::string> without;
    for (const Device* device : devices) {
      const bool named = std::ranges::find(without, device->name) != without.end();
      const bool listed = !device->fact(*deployment.weights.peak) &&
                          lacks_products(*device, *deployment.weights.peak) == lacking;
      if (!named && listed) without.push_back(device->name);
    }
    if (without.empty()) continue;
    const std::size_t more = without.size() - std::min(kNamed, without.size());
    without.resize(without.size() - more);
    return fmt::format("weights in {} on {}{}: {}; they are taken to be unpacked to 16 bits, and that {} does so there "
                       "is assumed",
                       deployment.weights.name, join(without), more > 0 ? fmt::format(" and {} more", more) : "",
                       lacking ? "this hardware multiplies no such numbers"
                               : "no rate of such numbers is known for this hardware",
                       request.engine->name);
  }
  return {};
}

// What of the cache a policy can act on where rows stand for several tokens.
std::string compressed_note(const ModelShape& model, std::uint64_t tokens) {
  std::uint64_t window = 0, compressed = 0;
  for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
    window += std::min<std::uint64_t>(tokens, model.window(layer));
    if (const std::uint32_t rate = model.compressed.rate(layer); rate > 0) compressed += tokens / rate;
  }
  return fmt::format("{} holds {} rows of a sequence of {} tokens where others hold {}: policies act on the {} that "
                     "stand for several tokens each, of which budgets are, and {} of windows stay; the cache is small "
                     "before anything is evicted",
                     model.name, window + compressed, tokens, model.layers * tokens, compressed, window);
}

Notes assumed_weights_notes(const WorkloadRequest& request, Devices devices) {
  Notes notes;
  for (const bool lacking : {true, false}) {
    if (std::string note = assumed_weights(request, devices, lacking); !note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

Notes nominal_note(const WorkloadRequest& request, Devices) {
  if (request.trace) return {};
  return {"what the policy holds comes from synthetic attention, which fills budgets as a model's does; --trace takes "
          "it from a recorded run"};
}

// What of the model and of the devices is not in the numbers.
Notes left_out_notes(const WorkloadRequest& request, Devices) {
  Notes notes;
  if (!request.unknown_windows.empty()) notes.push_back(request.unknown_windows);
  if (!request.foreign.empty()) {
    notes.push_back(fmt::format("left out, for {} does not run there: {}", request.engine->name,
                                join(request.foreign)));
  }
  if (!request.left_out.empty()) {
    notes.push_back(fmt::format("left out, for the model cannot be spread so: {}", fmt::join(request.left_out, "; ")));
  }
  return notes;
}

// What the checkpoint says of its types, and what is made of it.
Notes stored_notes(const WorkloadRequest& request, Devices) {
  Notes notes;
  if (!request.stored_format.empty()) {
    notes.push_back(request.keeps_stored
                        ? fmt::format("weights are taken in {}, as this checkpoint is stored; --dtype bf16 is without "
                                      "that", request.stored_format)
                        : fmt::format("this checkpoint is stored in {0}; kvroof's own engine runs it in 16 bits, and "
                                      "--engine vllm or another, or --dtype {0}, keeps them", request.stored_format));
  }
  if (request.halved) {
    notes.push_back(fmt::format("this checkpoint is stored in 32 bits, of which {} makes 16 unless it is told "
                                "otherwise; --dtype f32 keeps them", request.engine->name));
  }
  if (!request.stored_cache.empty() && request.default_cache) {
    notes.push_back(request.keeps_cache
                        ? fmt::format("the cache is taken in {}, as this checkpoint states; --kv bf16 is without that",
                                      request.stored_cache)
                        : fmt::format("this checkpoint states a cache in {0}, which {1} is not known to take from it; "
                                      "--kv {0} takes it", request.stored_cache,
                                      request.engine ? request.engine->name : "kvroof's own engine"));
  }
  return notes;
}

Notes compressed_notes(const WorkloadRequest& request, Devices) {
  if (!evicts(request) || !request.model.compressed) return {};
  return {compressed_note(request.model, std::uint64_t{request.prompt} + request.output)};
}

Notes quality_note(const WorkloadRequest& request, Devices) {
  const auto is_small = [](const PolicySpec& point) { return point.kv && point.kv->bits() < 16; };
  if (!evicts(request) && !any_point(request, is_small)) return {};
  return {"what a smaller cache costs in quality is not in these numbers: `kvroof replay` and `kvroof eval` measure it "
          "on a model that you have"};
}

// Of budgets in tokens that may have been meant as shares.
Notes small_budgets(const WorkloadRequest& request, Devices) {
  Notes notes;
  for (const PolicySpec& point : request.points) {
    const double share = 100 * point.budget.value / request.prompt;
    if (!policy_info(point.name).takes_budget || point.budget.kind != Budget::Kind::kTokens || share >= 5) continue;
    notes.push_back(fmt::format("{}: a whole number is tokens, {:.2g} % of the prompt; a share is written 0.5 or 50%",
                                point.text(), share));
  }
  return notes;
}

Notes assumed_eviction(const WorkloadRequest& request, Devices) {
  if (!evicts(request) || request.is_own_engine() || request.engine->on_cpu) return {};
  return {fmt::format("--engine {} says how work is launched; that it can evict is assumed, and what the policy itself "
                      "launches, reads and holds is added", request.engine->name)};
}

Notes repeated_prompts(const WorkloadRequest& request, Devices) {
  for (const PolicySpec& point : request.points) {
    if (policy_info(point.name).traits(point).repeats == 0) continue;
    return {fmt::format("under {} the model repeats a prompt once it has computed it: first tokens and what prompts "
                        "take of a server have these passes, and memory has room for one whole prompt until then",
                        point.name)};
  }
  return {};
}

Notes long_sequences(const WorkloadRequest& request, Devices) {
  std::string note = positions_note(request.model, request.longest[0], request.longest[1]);
  return note.empty() ? Notes() : Notes{std::move(note)};
}

Notes without_budget(const WorkloadRequest& request, Devices) {
  Notes notes;
  for (const PolicySpec& point : request.points) {
    const PolicyInfo& info = policy_info(point.name);
    if (info.takes_budget || info.traits(point).capacities != Capacities::kByHead) continue;
    notes.push_back(fmt::format(
        "{} has no budget: what it holds is taken as the recorded share of all tokens, so record at the lengths that "
        "are asked about",
        point.name));
  }
  return notes;
}

Notes drafting_notes(const WorkloadRequest& request, Devices) { return speculation_notes(request.deployments); }

// In the order in which they are printed; a new note is a function and a name here.
constexpr std::array kNotes = {layout_notes,     nominal_note,          left_out_notes,   stored_notes,
                               assumed_cache,    assumed_weights_notes, compressed_notes, quality_note,
                               small_budgets,    assumed_eviction,      repeated_prompts, long_sequences,
                               without_budget,   drafting_notes};

}  // namespace

std::vector<std::string> mean_request_notes(const WorkloadRequest& request) {
  Notes notes;
  if (request.output <= 1) {
    notes.emplace_back("an answer of one token is made by its prompt: times per token and tokens/s are of the step "
                       "that would make a second one, and under load of whole requests");
  }
  if (request.step_tokens && request.prompt > *request.step_tokens) {
    notes.push_back(fmt::format("a prompt is priced as one pass; in steps of {} tokens it takes longer, in mixtures "
                                "of experts more than twice as long, for each step reads weights and starts kernels "
                                "again: `kvroof simulate` prices the steps", *request.step_tokens));
  }
  return notes;
}

std::string positions_note(const ModelShape& model, std::uint32_t prompt, std::uint32_t output) {
  if (model.max_positions == 0 || std::uint64_t{prompt} + output <= model.max_positions) return {};
  return fmt::format("{} + {} tokens are more than the {} positions that {} was made for; time and memory do not "
                     "depend on that, answers do",
                     prompt, output, model.max_positions, model.name);
}

std::vector<std::string> workload_notes(const WorkloadRequest& request, std::span<const Device* const> devices) {
  std::vector<std::string> notes;
  for (const auto& made : kNotes) std::ranges::move(made(request, devices), std::back_inserter(notes));
  return notes;
}

}  // namespace kvroof
