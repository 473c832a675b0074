#include "apps/simulate/simulate_prefixes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/cli/values.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "sim/core/philox.hpp"
#include "sim/serving/conversations.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kBlock = ConversationBlocks::kTokens;
constexpr std::uint64_t kMostBlocks = 1U << 25;  // of all prompts, some 2 GiB of this machine's memory
constexpr double kMostGib = 1e9;

struct SharedPrefix {
  std::uint32_t tokens = 0, groups = 1;
};

// TOKENS or TOKENS:GROUPS.
SharedPrefix shared_prefix_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  SharedPrefix shared;
  shared.tokens = count_value("shared-prefix", text.substr(0, colon), 1, kMostPrompt, ", or TOKENS:GROUPS");
  if (colon != std::string::npos) {
    shared.groups = count_value("shared-prefix groups", text.substr(colon + 1), 1, 1U << 20);
  }
  return shared;
}

// Throws where a prompt of mean length has no room for what is shared, or where that has more blocks than are
// simulated.
void check_shared(const SharedPrefix& shared, const SimulateRequest& request) {
  if (const std::uint32_t mean = request.workload.prompt; mean <= shared.tokens) {
    throw usage_error(fmt::format("--shared-prefix {}: a prompt of {} tokens has no room for it and a token of its own",
                                  shared.tokens, mean));
  }
  const std::uint64_t groups = std::min<std::uint64_t>(shared.groups, request.requests.size());
  if (const std::uint64_t blocks = groups * (shared.tokens / kBlock); blocks > kMostBlocks) {
    throw usage_error(fmt::format("--shared-prefix {}:{}: {} blocks of {} tokens; expected at most {}", shared.tokens,
                                  shared.groups, blocks, kBlock, kMostBlocks))
        .note("fewer groups or tokens have fewer, and so have fewer requests (--count)");
  }
}

// Throws where conversations have more blocks than are simulated.
void check_conversations(const SimulateRequest& request) {
  if (!request.in_conversations()) return;
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < request.requests.size(); ++i) {
    const Request& r = request.requests[i];
    const bool goes_on = i + 1 < request.requests.size() && request.requests[i + 1].follows;
    if (!goes_on) blocks += ConversationBlocks::most(std::uint64_t{r.prompt} + r.output, r.turn);
  }
  if (blocks <= kMostBlocks) return;
  throw usage_error(fmt::format("--turns {}: conversations of {} blocks; expected at most {}", request.turns, blocks,
                                kMostBlocks))
      .note("fewer requests (--count), shorter ones and fewer turns have fewer");
}

// The groups of which prompts begin alike, and the whole blocks of each that came in some prompt.
class SharedBlocks {
 public:
  SharedBlocks(const SharedPrefix& shared, std::uint64_t seed) : shared_(shared), seed_(seed), groups_(shared.groups) {}

  // Of what the prompt of request i shares with its group, which is drawn.
  struct Begin {
    PrefixBlock last = kNoPrefix;
    std::uint32_t tokens = 0;
    std::uint32_t came = 0;  // of them, those that were in a prompt before
  };
  Begin begin(PrefixTreeBuilder& tree, std::uint32_t i, std::uint32_t prompt) {
    const Philox4 bits = philox4x32_10({{0, i, 0, 0x70726566U}}, seed_);
    const auto group = static_cast<std::uint32_t>(std::uint64_t{bits.x[0]} * shared_.groups >> 32U);
    std::vector<PrefixBlock>& blocks = groups_[group];
    const std::uint32_t whole = std::min(shared_.tokens, prompt - 1) / kBlock;
    const auto came = static_cast<std::uint32_t>(blocks.size());
    for (std::uint32_t block = came; block < whole; ++block) {
      blocks.push_back(tree.child(block > 0 ? blocks[block - 1] : kNoPrefix, group, (block + 1) * kBlock));
    }
    return {whole > 0 ? blocks[whole - 1] : kNoPrefix, whole * kBlock, std::min(whole, came) * kBlock};
  }

 private:
  SharedPrefix shared_;
  std::uint64_t seed_;
  std::vector<std::vector<PrefixBlock>> groups_;
};

// The first tokens of each prompt, or conversation, are those of a group; the others are its own: one block of a prompt
// that nothing follows. A prompt that is no longer than what its group shares has all but its last token in common.
void share_prefixes(const Arguments& arguments, SimulateRequest& request) {
  SharedPrefix shared;
  if (arguments.has("shared-prefix")) {
    shared = shared_prefix_of(arguments.get<std::string>("shared-prefix"));
    check_shared(shared, request);
  }
  check_conversations(request);
  PrefixTreeBuilder tree;
  SharedBlocks groups(shared, arguments.seed);
  std::optional<ConversationBlocks> conversation;
  for (std::uint32_t i = 0; i < request.requests.size(); ++i) {
    Request& r = request.requests[i];
    if (r.follows) {
      conversation->add(r);
      continue;
    }
    const SharedBlocks::Begin begin = groups.begin(tree, i, r.prompt);
    if (request.in_conversations()) {
      conversation.emplace(tree, begin.last, begin.tokens).add(r);
    } else {
      r.prefix = tree.child(begin.last, std::uint64_t{i} + shared.groups, r.prompt);
    }
    r.cached = begin.came;
    request.shorter_than_shared += r.prompt <= shared.tokens ? 1 : 0;
  }
  request.prefixes = tree.take();
}

double total_share(const std::vector<Request>& requests) {
  double cached = 0, all = 0;
  for (const Request& r : requests) cached += r.cached, all += r.prompt;
  return cached / all;
}

// What asks something of a cache that --prefix-cache says there is not, or that never evicts.
void check_cache(const std::string& size, const PrefixCacheRequest& cache) {
  const bool ordered = cache.eviction != &prefix_evictions().front();
  const char* option = cache.host_gib > 0 ? "host-cache"
                       : ordered          ? "prefix-eviction"
                       : cache.copies     ? "evicted-prefix copy"
                       : cache.routes     ? "router prefix"
                                          : nullptr;
  if (size == "none" && option != nullptr) {
    throw usage_error(fmt::format("--prefix-cache none and --{}: there is no cache that it could be said of", option))
        .note("leave one of the two away");
  }
  if (size == "infinite" && (cache.host_gib > 0 || ordered)) {
    throw usage_error(fmt::format("--prefix-cache infinite and --{}: what is never evicted {}", option,
                                  cache.host_gib > 0 ? "does not go to the host" : "goes in no order"))
        .note("leave one of the two away");
  }
}

// At which a device reads the host's memory, in GB/s.
const std::optional<Fact>& host_rate(const Device& device) {
  const std::optional<Fact>& own = device.fact(DeviceField::kHostGbPerS);
  return own ? own : device.fact(DeviceField::kPcieGbPerS);
}

// Throws where a device that has a prefix cache says nothing of its way to the host: those of servers that compute
// prompts.
void check_host_links(const SimulateRequest& request) {
  const auto check_link = [](const char* option, const Device& device) {
    if (host_rate(device)) return;
    throw usage_error(fmt::format("--host-cache: nothing says how fast {} reads the host's memory", device.name))
        .note(fmt::format("--{} {}:host_gb_per_s=32 says it", option, device.name));
  };
  const PrefillRequest& prefill = request.prefill;
  const auto& of = prefill.replicas;
  const bool some_do_both = std::find(of.begin(), of.end(), 0U) != of.end();
  const bool some_apart = prefill.best || std::any_of(of.begin(), of.end(), [](std::uint32_t n) { return n > 0; });
  if (prefill.device && some_apart) check_link("prefill-device", *prefill.device);
  if (prefill.device && !some_do_both) return;
  for (const Device& device : request.devices) check_link("device", device);
}

const PrefixEviction* eviction_of(const Arguments& arguments) {
  const auto& name = arguments.get<std::string>("prefix-eviction");
  const PrefixEviction* eviction = prefix_eviction(name, false).or_throw("--prefix-eviction", ExitCode::kUsage);
  if (!eviction->foresees) return eviction;
  throw usage_error(fmt::format("--prefix-eviction {}: a server does not know which requests come", name))
      .note("`kvroof prefixes` says what it would find");
}

void set_cache(const Arguments& arguments, SimulateRequest& request) {
  PrefixCacheRequest cache;
  const auto& size = arguments.get<std::string>("prefix-cache");
  cache.loses_nothing = size == "infinite";
  if (size != "free" && size != "none" && size != "infinite") {
    cache.most_gib = number_value("prefix-cache", size, 0, kMostGib, ", free, none or infinite");
  }
  cache.eviction = eviction_of(arguments);
  const auto& evicted = arguments.get<std::string>("evicted-prefix");
  if (evicted != "none" && evicted != "copy") {
    throw usage_error(fmt::format("--evicted-prefix {}: expected none or copy", evicted));
  }
  cache.copies = evicted == "copy";
  const auto& router = arguments.get<std::string>("router");
  if (router != "least" && router != "prefix") {
    throw usage_error(fmt::format("--router {}: expected least or prefix", router));
  }
  cache.routes = router == "prefix";
  if (arguments.has("host-cache")) {
    cache.host_gib = number_value("host-cache", arguments.get<std::string>("host-cache"), 0, kMostGib);
    check_host_links(request);
  }
  check_cache(size, cache);
  for (Request& r : request.requests) r.cached = 0;  // it is found, or not, as the simulation goes on
  request.no_prefix_cache = size == "none";
  if (!request.no_prefix_cache) request.prefix_cache = cache;
}

}  // namespace

void describe_prefixes(po::options_description_easy_init add) {
  add("cached-prompt", po::value<std::string>()->default_value("0"),
      "share of each prompt that a prefix cache has, so that it is not computed; trace: what a prefix cache finds of "
      "the blocks that the hash_ids of --requests name");
  add("shared-prefix", po::value<std::string>(),
      "TOKENS[:GROUPS]: prompts begin with so many tokens of their group, which a prefix cache may find");
  add("prefix-cache", po::value<std::string>()->default_value("free"),
      "GiB of each device for blocks of prompts that no running sequence has; free: what these leave; none; infinite");
  add("host-cache", po::value<std::string>(), "GiB of the host's memory, for each device, that such blocks go to");
  add("prefix-eviction", po::value<std::string>()->default_value("lru"),
      "which of these go first: lru | fifo | lfu | lfu-da | slru (docs/serving.md)");
  add("evicted-prefix", po::value<std::string>()->default_value("none"),
      "of prompts that a policy evicts from a prefix cache has none, or a copy of the whole prompt");
  add("router", po::value<std::string>()->default_value("least"),
      "requests go to the server that has least of them, or prefix: most of their prompt");
}

// The last token of a prompt is always computed: the answer begins with what it makes.
void set_prefixes(const Arguments& arguments, SimulateRequest& request) {
  const auto& text = arguments.get<std::string>("cached-prompt");
  const bool trace = text == "trace";
  bool shared = arguments.has("shared-prefix");
  if (shared && (trace || arguments.has("requests"))) {
    throw usage_error("--shared-prefix is of drawn requests: those of --requests begin as the file says");
  }
  if (shared && arguments.has("cached-prompt")) {
    throw usage_error("--shared-prefix and --cached-prompt: a cache that is simulated finds what it has")
        .note("leave one of the two away");
  }
  shared = shared || request.in_conversations();
  if (trace && request.prefixes.size() <= 1) {
    throw usage_error("--cached-prompt trace: nothing says which prompts begin alike (hash_ids of --requests)")
        .note("a share, as --cached-prompt 0.5, is taken of each prompt");
  }
  for (const char* option : {"prefix-cache", "prefix-eviction", "host-cache", "evicted-prefix", "router"}) {
    if (shared || trace || !arguments.has(option)) continue;
    throw usage_error(fmt::format("--{}: nothing says what prompts share", option))
        .note("--cached-prompt trace with --requests takes the trace's hash_ids, --shared-prefix makes prompts that "
              "begin alike, --turns conversations");
  }
  if (shared) share_prefixes(arguments, request);
  if (!shared && !trace) {
    const double share = share_value("cached-prompt", text, 0, 1, ", or trace");
    for (Request& r : request.requests) r.cached = cached_tokens(share, r.prompt);
  }
  request.cached_share = total_share(request.requests);
  if (shared || trace) set_cache(arguments, request);
}

std::optional<PrefixCacheSetup> prefix_setup(const SimulateRequest& request, const CostModel& cost,
                                             const Device& device, const PolicySpec& policy,
                                             const ResidencySummary& longest) {
  if (!request.prefix_cache) return std::nullopt;
  const PrefixCacheRequest& asked = *request.prefix_cache;
  if (!asked.copies && !finds_prefixes(policy, longest)) return std::nullopt;
  PrefixCacheSetup setup;
  setup.tree = &request.prefixes;
  double tokens = 0;
  for (const Request& r : request.requests) tokens += r.prompt;
  const auto mean = static_cast<std::uint64_t>(tokens / static_cast<double>(request.requests.size()));
  setup.token_bytes = cost.memory().prompt_bytes(mean) / static_cast<double>(mean);
  if (asked.most_gib) setup.most_bytes = *asked.most_gib * kGiB;
  setup.loses_nothing = asked.loses_nothing;
  setup.eviction = asked.eviction;
  setup.copies = longest.evicts;
  setup.host_bytes = asked.host_gib * kGiB;
  if (asked.host_gib > 0) setup.host_bytes_per_s = host_rate(device)->value * kGB;
  return setup;
}

}  // namespace kvroof
