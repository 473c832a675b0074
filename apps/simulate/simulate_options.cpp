// The options of `kvroof simulate`.
#include "apps/prediction/asked_devices.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/simulate/simulate_conversations.hpp"
#include "apps/simulate/simulate_prefixes.hpp"
#include "apps/simulate/simulate_request.hpp"

namespace kvroof {

namespace po = boost::program_options;

void describe_simulate(po::options_description_easy_init add) {
  describe_workload(add);
  add("device", po::value<std::string>(), kDevicesHelp);
  add("requests", po::value<std::string>(),
      "a trace of requests, CSV or JSON lines: Azure, BurstGPT, Mooncake, Qwen-Bailian, Vidur, Splitwise, "
      "LLMServingSim, or arrival_s,prompt,output");
  add("rate", po::value<std::string>(),
      "requests a second (of a trace: in place of its own), or max: the highest that meets the goals");
  add("clients", po::value<std::string>(),
      "clients that each send a request when the one before is answered, or max: as many as meet the goals");
  describe_conversations(add);
  add("think-s", po::value<std::string>(),
      "seconds that clients wait before each request, or a conversation before a turn, on average, as people who read "
      "and write do (default: 0)");
  add("count", po::value<std::string>(),
      "requests that are drawn, or the first of a file (default: all of a file; 1000; at a rate as many as fill the "
      "servers, of clients five each, of conversations more, up to 16000)");
  add("arrivals", po::value<std::string>()->default_value("poisson"), "poisson | constant | gamma:SHAPE");
  add("spread", po::value<std::string>()->default_value("0.1"),
      "standard deviation of the drawn lengths over their mean; 0: all have the mean, so that what begins together "
      "ends together");
  describe_prefixes(add);
  add("replicas", po::value<std::string>()->default_value("1"),
      "servers that share the requests, or auto: as few as meet the goals");
  add("prefill-replicas", po::value<std::string>(),
      "of --replicas so many compute prompts alone and hand caches over to the others, a list (0: none), or auto: "
      "none, and the number that meets the goals best");
  add("prefill-device", po::value<std::string>(), "device of those servers (default: --device)");
  add("prefill-tp", po::value<std::string>(), "devices of each of those servers (default: as --tp)");
  add("transfer-gbs", po::value<std::string>(),
      "GB/s at which a device sends or receives a cache (default: 50, a NIC of 400 Gb/s, or its PCIe if slower)");
  add("transfer-ms", po::value<std::string>(),
      "ms until a cache is there, beside its bytes (default: from arrival to queue, as the engine takes)");
  add("ttft-ms", po::value<std::string>(), "goal: a request's first token within so many ms");
  add("tpot-ms", po::value<std::string>(), "goal: a request's mean time per further token");
  add("attainment", po::value<std::string>()->default_value("0.9"), "share of requests that must meet the goals");
  describe_prices(add);
  add("by", po::value<std::string>(),
      "what ranks: device, what is served on each | usd, for the money, at the highest price (default: device; with "
      "--replicas auto usd, where all devices have a price)");
  add("top", po::value<std::string>()->default_value("10"), "of ranked rows, the first that all tables show");
  add("cold", po::bool_switch(),
      "the servers have just started: intervals hold for a first minute, in which kernels are compiled");
  add("per-request", po::value<std::string>(), "write what became of each request to this CSV file");
  add("svg", po::value<std::string>(),
      "write the picture of how many requests had their first token by when to this file");
}

}  // namespace kvroof
