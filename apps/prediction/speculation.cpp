#include "apps/prediction/speculation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/values.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/workload_weights.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostDrafted = 64;
// Published checkpoints of one family pad their vocabularies to slightly different sizes.
constexpr double kPaddedVocabulary = 0.01;

ModelShape drafting_model(const std::string& name) {
  try {
    return find_model_shape(name, data_folder() / "catalog");
  } catch (const Error& e) {
    throw Error(fmt::format("--draft {}: expected mtp, eagle, eagle3, ngram or a model: {}", name, e.what()), e.code());
  }
}

Draft draft_of(const std::string& name, const ModelShape& target) {
  if (name == "ngram") return free_draft(name);
  if (name == "mtp") return mtp_draft(target);
  if (name == "eagle") return eagle_draft(target);
  if (name == "eagle3") return eagle3_draft(target);
  const ModelShape model = drafting_model(name);
  const double ratio = static_cast<double>(model.vocab) / target.vocab;
  if (std::abs(ratio - 1) > kPaddedVocabulary) {
    throw usage_error(fmt::format("--draft {}: it has a vocabulary of {} tokens and {} one of {}; what is drafted must "
                                  "be the target's tokens",
                                  name, model.vocab, target.name, target.vocab));
  }
  Draft draft = model_draft(model, name);
  if (const auto stored = stored_format(name, model)) draft.weights = *stored;
  return draft;
}

// "4:0.8".
std::optional<Speculation> speculation_of(const std::string& item, const std::optional<Draft>& draft) {
  const std::size_t colon = item.find(':');
  const std::uint32_t tokens = count_value("speculate", item.substr(0, colon), 0, kMostDrafted);
  const auto acceptance = [&] {
    return share_value("speculate " + item.substr(0, colon) + ":ACCEPT", item.substr(colon + 1), 0, 1);
  };
  if (tokens == 0 && colon != std::string::npos) acceptance();  // of no use, but no number is a mistake
  if (tokens == 0) return std::nullopt;
  if (colon == std::string::npos) {
    throw usage_error(fmt::format("--speculate {0}: how often a drafted token is accepted is missing; expected "
                                  "{0}:ACCEPT, as in {0}:0.8", item))
        .note("engines print it of a running server: vLLM as spec_decode acceptance rates by position");
  }
  if (!draft) {
    throw usage_error("--speculate needs --draft: a model, mtp, eagle, eagle3, or ngram where drafts are looked up");
  }
  return Speculation{tokens, acceptance(), *draft};
}

double times_as_fast(const CostModel& with, const CostModel& without, const ResidencySummary& mean,
                     std::uint64_t batch) {
  const std::uint64_t passing = with.in_a_pass(batch);
  return without.step(mean, passing).value * with.tokens_a_step() / with.step(mean, passing).value;
}

// "1 to 2 and 8 to 96".
std::string ranges_text(const DraftGain& gain) {
  std::string text;
  for (std::size_t i = 0; i < gain.pays.size(); ++i) {
    const auto [from, to] = gain.pays[i];
    if (i > 0) text += i + 1 < gain.pays.size() ? ", " : " and ";
    text += from == to ? std::to_string(from) : fmt::format("{} to {}", from, to);
  }
  return text;
}

// "they pay at every batch that fits".
std::string pays_text(const DraftGain& gain) {
  if (gain.pays.empty()) return gain.most > 1 ? "they pay at no batch that fits" : "they do not pay";
  const auto [from, to] = gain.pays.front();
  if (gain.pays.size() > 1) return "they pay at batches of " + ranges_text(gain);
  const bool to_end = to >= gain.most;
  if (from == 1) return to_end ? "they pay at every batch that fits" : fmt::format("they pay up to a batch of {}", to);
  return fmt::format("they pay from a batch of {}{}", from, to_end ? " on" : fmt::format(" to one of {}", to));
}

}  // namespace

void describe_speculation(po::options_description_easy_init add) {
  add("speculate", po::value<std::string>(),
      "speculative decoding as N:ACCEPT, a list: tokens drafted a step, and the chance that one is accepted, those "
      "before it having been; 0: none");
  add("draft", po::value<std::string>(),
      "what drafts them: a model of the catalog or a file, mtp, eagle or eagle3 (a layer on the target), ngram (free)");
}

std::vector<std::optional<Speculation>> speculations_of(const Arguments& arguments, const ModelShape& target) {
  std::optional<Draft> draft;
  if (arguments.has("draft")) draft = draft_of(arguments.get<std::string>("draft"), target);
  if (!arguments.has("speculate")) {
    if (draft) throw usage_error("--draft needs --speculate N:ACCEPT: how many tokens are drafted a step");
    return {std::nullopt};
  }
  std::vector<std::optional<Speculation>> all;
  for (const std::string& item : split_list("speculate", arguments.get<std::string>("speculate"))) {
    all.push_back(speculation_of(item, draft));
  }
  if (draft && std::ranges::none_of(all, [](const auto& s) { return s.has_value(); })) {
    throw usage_error(fmt::format("--speculate {} and --draft {}: nothing is drafted; leave --draft away",
                                  arguments.get<std::string>("speculate"), draft->name));
  }
  return all;
}

std::string drafts_text(const Speculation& s) {
  return fmt::format("{} token{} of {}", s.tokens, s.tokens == 1 ? "" : "s", s.draft.name);
}

std::string with_drafts_text(const Deployment& deployment) {
  if (!deployment.speculation) return "";
  return fmt::format(", {} at {:g}", drafts_text(*deployment.speculation), deployment.speculation->acceptance);
}

bool drafts_anything(const std::vector<Deployment>& deployments) {
  return std::ranges::any_of(deployments, [](const Deployment& d) { return d.speculation.has_value(); });
}

std::string drafts_or_none(const Deployment& deployment) {
  return deployment.speculation ? with_drafts_text(deployment).substr(2) : "none";
}

Deployment without_drafts(Deployment deployment) {
  deployment.speculation.reset();
  return deployment;
}

DraftGain draft_gain(const CostModel& with, const CostModel& without, const ResidencySummary& mean, std::uint64_t batch,
                     std::uint64_t most) {
  const std::uint64_t passing = with.in_a_pass(batch);
  DraftGain gain{*with.deployment().speculation, {}, with.drafting(mean, passing), {}, without.step(mean, passing)};
  gain.step = with.step(mean, passing);
  gain.token = scaled(gain.step, 1 / with.tokens_a_step());
  gain.times = gain.token_without.value / gain.token.value;
  const ResidencySummary full = full_attention_summary(with.shape(), mean.prompt, mean.steps);
  gain.times_under_full = times_as_fast(with, without, full, batch);
  gain.most = std::max(batch, most);
  const auto next = [&](std::uint64_t b) { return std::max(b + 1, std::min(gain.most, b + b / 100)); };
  bool paid = false;
  for (std::uint64_t b = 1; b <= gain.most; b = next(b)) {
    const bool pays = times_as_fast(with, without, mean, b) > 1;
    if (pays && !paid) gain.pays.emplace_back(b, b);
    if (pays) gain.pays.back().second = b;
    paid = pays;
  }
  return gain;
}

std::string gain_text(const DraftGain& gain, bool evicts, bool under_load) {
  const Speculation& s = gain.speculation;
  std::string text = fmt::format(
      "{} drafted a step, each accepted with {:g} %, make {} tokens a step: {}{} ms a token in place of {}, {:.2f} "
      "times as fast",
      drafts_text(s), 100 * s.acceptance, number_text(s.tokens_a_step()),
      under_load ? "of decode steps alone " : "", number_text(gain.token.value * 1e3),
      number_text(gain.token_without.value * 1e3), gain.times);
  if (evicts) text += fmt::format(" ({:.2f} times under full attention)", gain.times_under_full);
  return text + "; " + pays_text(gain);
}

nlohmann::ordered_json gain_json(const std::optional<DraftGain>& drafts) {
  const DraftGain gain = drafts.value_or(DraftGain{});
  nlohmann::ordered_json pays = nlohmann::ordered_json::array();
  for (const auto& [from, to] : gain.pays) pays.push_back({{"from_batch", from}, {"to_batch", to}});
  return if_any(drafts.has_value(), {{"draft", gain.speculation.draft.name},
                                     {"drafted_tokens", gain.speculation.tokens},
                                     {"acceptance", gain.speculation.acceptance},
                                     {"tokens_a_step", gain.speculation.tokens_a_step()},
                                     {"step_ms", interval_json(gain.step, 1e3)},
                                     {"drafting_ms", interval_json(gain.drafting, 1e3)},
                                     {"tpot_without_ms", interval_json(gain.token_without, 1e3)},
                                     {"times_as_fast", gain.times},
                                     {"times_as_fast_under_full", gain.times_under_full},
                                     {"pays", pays},
                                     {"pays_at_batches", ranges_text(gain)}});
}

std::vector<std::string> speculation_notes(const std::vector<Deployment>& deployments) {
  const auto drafts = std::ranges::find_if(deployments, [](const Deployment& d) { return d.speculation.has_value(); });
  if (drafts == deployments.end()) return {};
  std::vector<std::string> notes = {
      "speculation: the chance that a drafted token is accepted is taken as given and the same for all; whether a "
      "policy that evicts changes it is not known; measured rows, of which intervals are, draft nothing"};
  const Draft& draft = drafts->speculation->draft;
  if (!draft.shape) {
    notes.emplace_back("drafts take no time: a server's host looks them up, or what makes them is left out");
  } else if (draft.of_target) {
    const std::string_view whose = draft.name == "mtp" ? "; whether this checkpoint comes with one, "
                                                         "num_nextn_predict_layers or the like in its config.json says"
                                                       : "; it comes with no checkpoint, and is trained for it";
    notes.push_back(fmt::format("--draft {}: a layer of {:.3g} B parameters on the target, with a whole cache of its "
                                "own{}", draft.name, 1e-9 * static_cast<double>(draft.parameters()), whose));
  } else {
    notes.push_back(fmt::format("--draft {}: on the same devices, in {}, with a whole cache of its own", draft.name,
                                draft.weights->name));
  }
  return notes;
}

}  // namespace kvroof
