#include "apps/simulate/simulate_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/cli/data_folder.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/asked_devices.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/prediction/engine_hardware.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/simulate/requests_file.hpp"
#include "apps/simulate/simulate_conversations.hpp"
#include "apps/simulate/simulate_prefixes.hpp"
#include "sim/core/files.hpp"
#include "sim/core/number_text.hpp"
#include "sim/serving/conversations.hpp"
#include "sim/serving/request_trace.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kMostRequests = 10'000'000;
constexpr std::uint32_t kMostOutput = 1U << 20;
constexpr std::uint32_t kMostClients = 1U << 20, kMostClientsFound = 16000;
constexpr double kNicGbPerS = 50;  // 400 Gb/s: a ConnectX-7 beside each GPU, as in a DGX H100

std::optional<double> number_option(const Arguments& arguments, const char* option, double least, double most) {
  if (!arguments.has(option)) return std::nullopt;
  return number_value(option, arguments.get<std::string>(option), least, most);
}

double rate_of(const Arguments& arguments) {
  return number_value("rate", arguments.get<std::string>("rate"), 1e-6, 1e6, ", or max");
}

// poisson, constant or gamma:SHAPE.
double burstiness_of(const Arguments& arguments) {
  const auto& text = arguments.get<std::string>("arrivals");
  if (text == "poisson") return 1;
  if (text == "constant") return 0;
  if (text.starts_with("gamma:")) return number_value("arrivals gamma", text.substr(6), 0.01, 1000);
  throw usage_error(fmt::format("--arrivals {}: expected poisson, constant or gamma:SHAPE", text))
      .note("a shape below 1 makes bursts, above 1 evens arrivals out (vllm bench serve calls it burstiness)");
}

// Where nobody asked for lengths that differ, none is beyond a model's positions.
void keep_within(const WorkloadRequest& workload, std::vector<Request>& requests) {
  if (workload.model.max_positions == 0) return;
  const std::int64_t mean = std::int64_t{workload.prompt} + workload.output;
  const std::int64_t room = std::max<std::int64_t>(workload.model.max_positions - mean, 0);
  // As far below the mean as above it at most, so that it stays the mean.
  for (Request& r : requests) {
    if (r.follows) continue;
    const std::int64_t off = std::int64_t{r.prompt} + r.output - mean;
    r.prompt = static_cast<std::uint32_t>(std::max<std::int64_t>(r.prompt + std::clamp(off, -room, room) - off, 1));
    r.output = static_cast<std::uint32_t>(std::clamp<std::int64_t>(mean + room - r.prompt, 1, r.output));
  }
}

// So many turns that so many requests can be sent where that share of them is kept.
std::uint32_t drawn_for(const SimulateRequest& request, std::size_t sent, double kept = 1) {
  if (!request.in_conversations()) return static_cast<std::uint32_t>(sent);
  const auto turns = static_cast<double>(turns_for(sent, request.clients, request.turns));
  const double all = std::ceil(turns / kept);
  if (all <= kMostRequests) return static_cast<std::uint32_t>(all);
  throw usage_error(fmt::format("--turns {}: {:.0f} requests, with those before and after the ones that come; expected "
                                "at most {}", request.turns, all, kMostRequests))
      .note("fewer of --clients or --count, and fewer turns, have fewer");
}

void draw(const Arguments& arguments, std::uint32_t count, SimulateRequest& request) {
  DrawnRequests drawn;
  request.chosen_count = arguments.has("count");
  const std::size_t sent = request.chosen_count
                               ? count_value("count", arguments.get<std::string>("count"), 1, kMostRequests)
                           : request.clients > 0 ? request.sent_by(request.clients)
                                                 : count;
  drawn.turns = request.turns;
  drawn.message = request.message;
  drawn.thoughts = request.thoughts;
  drawn.prompt = request.workload.prompt;
  drawn.output = request.workload.output;
  drawn.spread = number_value("spread", arguments.get<std::string>("spread"), 0, 10);
  const bool one_by_one = sent == 1 || request.clients == 1;
  if (one_by_one && !arguments.has("spread")) drawn.spread = 0;  // nothing falls into step with anything
  drawn.burstiness = burstiness_of(arguments);
  drawn.seed = arguments.seed;
  if (request.asked_rate > 0) drawn.rate = request.asked_rate;
  request.drawn = true;
  const auto draw_turns = [&](std::uint32_t turns) {
    drawn.count = turns;
    request.requests = draw_requests(drawn);
    for (Request& r : request.requests) {
      r.prompt = std::min(r.prompt, kMostPrompt);
      r.output = std::min(r.output, kMostOutput);
    }
    if (!arguments.has("spread")) keep_within(request.workload, request.requests);
    return hold_conversations(request);
  };
  const std::uint32_t turns = drawn_for(request, sent);
  // Once more where the model has no positions for many of them.
  if (const double kept = draw_turns(turns); kept < 1) draw_turns(drawn_for(request, sent, kept));
  request.sent = std::min(sent, request.requests.size());
  request.requests_text = fmt::format("{} drawn request{} of {} + {} tokens{}{}", request.sent,
                                      request.sent == 1 ? "" : "s",
                                      drawn.prompt, drawn.output, conversations_text(request),
                                      drawn.spread > 0 ? fmt::format(", spread {:g}", drawn.spread) : "");
}

// Where a file has lengths alone (Vidur's of arXiv summaries and chats).
void draw_arrivals(const Arguments& arguments, const std::string& path, SimulateRequest& request) {
  if (!arguments.has("rate") && request.clients == 0) {
    throw usage_error(fmt::format("{} does not say when requests come", path))
        .note("a column arrival_s, arrival_ms or timestamp does; or --rate R, with --arrivals, or --clients N");
  }
  DrawnRequests drawn;
  drawn.count = static_cast<std::uint32_t>(request.requests.size());
  drawn.burstiness = burstiness_of(arguments);
  drawn.seed = arguments.seed;
  const std::vector<Request> times = draw_requests(drawn);
  for (std::size_t i = 0; i < times.size(); ++i) request.requests[i].arrival = times[i].arrival;
}

void read(const Arguments& arguments, SimulateRequest& request) {
  const auto refuse_said = [&](const char* option, const char* what) {
    if (!arguments.has(option)) return;
    throw usage_error(fmt::format("--{} and --requests: the file says {}", option, what))
        .note("leave one of the two away");
  };
  for (const char* option : {"prompt", "output", "spread"}) refuse_said(option, "how long requests are");
  RequestTrace trace = read_requests_file(arguments.get<std::string>("requests"));
  const std::string path = requests_name(arguments.get<std::string>("requests"));
  request.requests = std::move(trace.requests);
  const std::size_t all = request.requests.size();
  const bool at_once = !(request.requests.back().arrival > 0);
  if (arguments.has("count")) {
    const std::uint32_t count = count_value("count", arguments.get<std::string>("count"), 1, kMostRequests);
    request.requests.resize(std::min<std::size_t>(count, all));
  }
  request.sent = request.requests.size();
  request.without_answer = trace.left_out;
  request.prefixes = std::move(trace.prefixes);
  if (trace.has_arrivals) refuse_said("arrivals", "when requests come");
  if (!trace.has_arrivals) draw_arrivals(arguments, path, request);
  for (const Request& r : request.requests) {
    if (r.prompt <= kMostPrompt && r.output <= kMostOutput) continue;
    throw usage_error(fmt::format("{}: a request of {} + {} tokens; expected at most {} + {}", path, r.prompt, r.output,
                                  kMostPrompt, kMostOutput));
  }
  double own_rate = 0;  // requests a second in the file
  if (const double last = request.requests.back().arrival; last > 0) {
    own_rate = static_cast<double>(request.requests.size() - 1) / last;
  }
  if (arguments.has("rate") && at_once && trace.has_arrivals) {
    throw usage_error(fmt::format("--rate: all requests of {} arrive at once, so they have no rate", path));
  }
  double factor = request.highest_rate ? own_rate : 1;
  if (request.asked_rate > 0 && own_rate > 0) factor = own_rate / request.asked_rate;
  for (Request& r : request.requests) r.arrival *= factor;
  double prompts = 0, outputs = 0;
  for (const Request& r : request.requests) prompts += r.prompt, outputs += r.output;
  const auto count = static_cast<double>(request.requests.size());
  const std::string over = own_rate > 0 ? fmt::format(" over {} s", number_text((count - 1) / own_rate)) : "";
  const std::string first = request.requests.size() < all ? fmt::format(" (the first of {})", all) : "";
  request.requests_text = fmt::format("{} request{} of {}{}{}, {:.0f} + {:.0f} tokens on average{}",
                                      request.requests.size(), request.requests.size() == 1 ? "" : "s", path, first,
                                      over, prompts / count, outputs / count,
                                      trace.has_arrivals || request.clients > 0
                                          ? ""
                                          : "; the file has no times, and when they come is drawn");
}

void check_load(const Arguments& arguments, const SimulateRequest& request) {
  for (const char* option : {"rate", "arrivals"}) {
    if (request.clients == 0 || !arguments.has(option)) continue;
    throw usage_error(fmt::format(
                          "--clients and --{}: clients send their next request when they are answered, at no rate",
                          option))
        .note("leave one of the two away");
  }
  if (arguments.has("attainment") && !request.has_goals()) {
    throw usage_error("--attainment needs a goal: --ttft-ms, --tpot-ms or both");
  }
  if (!arguments.has("requests") && !arguments.has("rate") && request.clients == 0) {
    throw usage_error("--rate is missing: requests a second, or max; or --requests FILE, or --clients N");
  }
  const char* load = request.highest_rate ? "rate max" : "clients max";
  const bool searches_load = request.highest_rate || request.most_clients;
  if ((searches_load || request.replicas == 0) && !request.has_goals()) {
    throw usage_error(fmt::format("--{} needs a goal: --ttft-ms, --tpot-ms or both",
                                  searches_load ? load : "replicas auto"));
  }
  if (searches_load && request.replicas == 0) {
    throw usage_error(fmt::format("--{} and --replicas auto: one of the two must be a number", load));
  }
  if (arguments.has("think-s") && request.clients == 0 && !request.in_conversations()) {
    throw usage_error("--think-s is of clients, or of --turns: --clients says how many there are");
  }
}

void read_prefill_replicas(const Arguments& arguments, SimulateRequest& request) {
  const auto& text = arguments.get<std::string>("prefill-replicas");
  request.prefill.best = text == "auto";
  if (!request.prefill.best) {
    request.prefill.replicas = count_list("prefill-replicas", text, 0, kMostReplicas, ", or auto alone");
  }
  if (request.prefill.best && request.most_clients) {
    throw usage_error("--clients max and --prefill-replicas auto: one of the two must be a number");
  }
  if (request.prefill.best && !request.has_goals()) {
    throw usage_error("--prefill-replicas auto needs a goal: --ttft-ms, --tpot-ms or both");
  }
  const auto& of = request.prefill.replicas;
  const std::uint32_t most = request.prefill.best ? 1 : *std::max_element(of.begin(), of.end());
  if (request.replicas > 0 && most >= request.replicas) {
    const std::string expected =
        request.replicas == 1 ? "--replicas 1 leaves none for answers; expected --replicas 2 or more"
                              : fmt::format("one of --replicas {} at least is for answers; expected at most {}",
                                            request.replicas, request.replicas - 1);
    throw usage_error(fmt::format("--prefill-replicas {}: {}", text, expected))
        .note("--replicas counts all servers, those of prompts among them");
  }
}

void set_pauses(const Arguments& arguments, SimulateRequest& request) {
  request.pause = number_option(arguments, "think-s", 0, 1e6).value_or(0);
  if (request.pause > 0) {
    request.pauses = draw_pauses(static_cast<std::uint32_t>(request.requests.size()), request.pause, request.seed);
  }
}

// Which stage or group of a server sends a cache, and which one has it then, is not in the simulation.
void check_prefill_layouts(const SimulateRequest& request) {
  const auto refuse = [](const char* option, std::uint32_t count, const char* what) {
    if (count == 1) return;
    throw usage_error(fmt::format("--prefill-replicas and --{} {}: caches that move between servers of {} are not "
                                  "simulated; expected --{} 1",
                                  option, count, what, option))
        .note("without --prefill-replicas every server computes prompts and answers, with any --pp and --dp");
  };
  for (const Deployment& d : request.workload.deployments) {
    refuse("pp", d.stages, "several stages");
    refuse("dp", d.data_parallel, "several groups");
  }
}

void set_prefill(const Arguments& arguments, SimulateRequest& request) {
  for (const char* option : {"prefill-device", "prefill-tp", "transfer-gbs", "transfer-ms"}) {
    if (arguments.has("prefill-replicas") || !arguments.has(option)) continue;
    throw usage_error(fmt::format("--{} needs --prefill-replicas: how many servers compute prompts alone", option));
  }
  if (!arguments.has("prefill-replicas")) return;
  check_prefill_layouts(request);
  read_prefill_replicas(arguments, request);
  PrefillRequest& prefill = request.prefill;
  if (arguments.has("prefill-device")) {
    prefill.device = find_device(arguments.get<std::string>("prefill-device"), data_folder() / "catalog");
  }
  if (arguments.has("prefill-tp")) {
    prefill.tensor_parallel = count_value("prefill-tp", arguments.get<std::string>("prefill-tp"), 1, 1024);
    for (Deployment deployment : request.workload.deployments) {
      deployment.tensor_parallel = *prefill.tensor_parallel;
      const std::string problem = deployment_problem(request.workload.model, deployment);
      if (!problem.empty()) throw usage_error(fmt::format("--prefill-tp {}: {}", *prefill.tensor_parallel, problem));
    }
  }
  prefill.transfer_gbs = number_option(arguments, "transfer-gbs", 1e-3, 1e6);
  prefill.transfer_ms = number_option(arguments, "transfer-ms", 0, 1e6);
}

}  // namespace

// A client that sends one request alone makes no closed loop. Of conversations no cache has what was said before the
// first request of a client, so that each sends more. Of a given number all requests are sent.
std::size_t SimulateRequest::sent_by(std::uint32_t of) const {
  if (!requests.empty() && !most_clients) return sent;
  const std::size_t twice = most_clients ? 2 * std::size_t{of} : 0;
  const std::size_t each = in_conversations() ? 3 * warm_up_each() : 5;
  const std::size_t several = std::max({each * std::min<std::size_t>(of, 3200), twice, std::size_t{1000}});
  return requests.empty() ? several : std::min(several, requests.size());
}

// All clients begin at once, and at a rate conversations with their first turns: a third of what comes passes until the
// others are as frequent. Of clients with --count, and of a file, times are of all requests, as benchmarks count them.
std::size_t SimulateRequest::warm_up_of(std::uint32_t of) const {
  if (of == 0 && in_conversations()) return sent / 3;
  const bool chosen = !most_clients && (chosen_count || !drawn);
  if (of <= 1 || chosen) return 0;
  if (in_conversations()) return std::min(warm_up_each() * of, sent_by(of) / 2);
  return sent_by(of) >= 2ULL * of ? of : 0;
}

SchedulerLimits SimulateRequest::limits_on(const Device& device) const {
  return scheduler_limits(workload.engine_on(device));
}

TransferLink SimulateRequest::link_on(const Device& device) const {
  double gbs = kNicGbPerS;
  for (const Device* side : {&device, &prefill_device(device)}) {
    if (const auto& pcie = side->fact(DeviceField::kPcieGbPerS)) gbs = std::min(gbs, pcie->value);
  }
  const double arrival_ms = workload.engine_on(device).arrival_us * 1e-3;
  return {prefill.transfer_gbs.value_or(gbs) * 1e9, prefill.transfer_ms.value_or(arrival_ms) * 1e-3};
}

// Of the devices that compute prompts as well.
static void set_device_prices(const Arguments& arguments, SimulateRequest& request) {
  std::vector<Device> all = request.devices;
  if (request.prefill.device) all.push_back(*request.prefill.device);
  set_prices(arguments, all);
  if (request.prefill.device) {
    request.prefill.device = all.back();
    all.pop_back();
  }
  request.devices = std::move(all);
}

// Prices are known now.
static void set_rank(const Arguments& arguments, SimulateRequest& request) {
  request.top = count_value("top", arguments.get<std::string>("top"), 1, 1U << 20);
  const auto priced = [](const Device& device) { return device.price.has_value(); };
  request.by_price = request.replicas == 0 && std::ranges::all_of(request.devices, priced) &&
                     (!request.prefill.device || priced(*request.prefill.device));
  request.ranks_rows = arguments.has("by");
  if (!request.ranks_rows) return;
  const auto& by = arguments.get<std::string>("by");
  if (by != "device" && by != "usd") {
    throw usage_error(fmt::format("--by {}: expected device (what is served on each) or usd (for the money)", by));
  }
  request.by_price = by == "usd";
  if (request.by_price && std::ranges::none_of(request.devices, priced)) {
    throw usage_error("--by usd: no --device has a price").note("--usd-per-hour gives one");
  }
}

// Lengths are known now: the longest prompt, answer and sequence are of different requests.
static void set_longest(SimulateRequest& request) {
  WorkloadRequest& workload = request.workload;
  workload.prompt = workload.output = 0;
  const Request* longest = &request.requests.front();
  for (const Request& r : request.requests) {
    workload.prompt = std::max(workload.prompt, r.prompt);
    workload.output = std::max(workload.output, r.output);
    if (std::uint64_t{r.prompt} + r.output > std::uint64_t{longest->prompt} + longest->output) longest = &r;
  }
  workload.longest = {longest->prompt, longest->output};
  require_positions(workload.model, longest->prompt, longest->output);
}

SimulateRequest simulate_request(const Arguments& arguments, std::uint32_t count) {
  SimulateRequest request;
  request.workload = workload_request(arguments);
  request.seed = arguments.seed;
  request.cold = arguments.get<bool>("cold");
  request.devices = asked_devices(arguments, request.workload);
  request.highest_rate = arguments.has("rate") && arguments.get<std::string>("rate") == "max";
  request.lasts = arguments.has("rate");
  if (request.lasts && !request.highest_rate) request.asked_rate = rate_of(arguments);
  if (arguments.has("clients")) {
    request.most_clients = arguments.get<std::string>("clients") == "max";
    request.clients = request.most_clients
                          ? kMostClientsFound
                          : count_value("clients", arguments.get<std::string>("clients"), 1, kMostClients, ", or max");
  }
  const auto& replicas = arguments.get<std::string>("replicas");
  request.replicas = replicas == "auto" ? 0 : count_value("replicas", replicas, 1, kMostReplicas, ", or auto");
  request.ttft_ms = number_option(arguments, "ttft-ms", 1e-3, 1e9);
  request.tpot_ms = number_option(arguments, "tpot-ms", 1e-3, 1e9);
  request.attainment = share_value("attainment", arguments.get<std::string>("attainment"), 0.01, 1);
  set_conversations(arguments, request);
  check_load(arguments, request);
  set_prefill(arguments, request);
  arguments.has("requests") ? read(arguments, request) : draw(arguments, count, request);
  set_pauses(arguments, request);
  set_prefixes(arguments, request);
  set_device_prices(arguments, request);
  set_rank(arguments, request);
  if (request.prefill.device) check_runs_on(request.workload, *request.prefill.device);
  set_longest(request);
  return request;
}

}  // namespace kvroof
