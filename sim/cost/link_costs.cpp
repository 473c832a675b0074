#include "sim/cost/link_costs.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

using F = DeviceField;

constexpr double kLinkSpread = 0.40;
// Of a link's rate in one direction, what a ring of messages of 4 to 134 MB reaches above its start: 0.37 to 0.83 in
// public tables of 2, 4 and 8 A100, H100 and B200, 0.55 to 0.66 in the middle of each (ai-dynamo/aiconfigurator
// @095f58a).
constexpr double kLinkShare = 0.55;
// Of that rate, what reading the whole message of every other device reaches: 0.67 to 0.80 in tables of 128 kB to 1 MB
// of TensorRT-LLM on H100, H200 and B200 (the same commit).
constexpr double kOneShotShare = 0.72;
constexpr double kUnknownPcie = 16;  // GB/s
// A sum over PCIe, without links between the devices, starts so much later.
constexpr double kHostedSumUs = 20;
// Where no device reads another's memory, each byte crosses PCIe twice, to the host's memory and from there: two boards
// that send to each other at once move 30 GB/s so where they move 56 directly (two RTX 5090 with a patched driver).
constexpr double kHostedShare = 0.5;
// Links join a server or a rack (link_devices); beyond it a ring leaves through a network card of each device, whose
// rate is this share of PCIe's: 400 Gb/s beside 64 GB/s, 200 beside 32. A bridge joins fewer devices than a server has,
// and the others are reached over PCIe.
constexpr double kNetworkShare = 0.78, kLeastDomain = 8;
// An engine's own kernel for a sum reads the other devices' memory: over links between all of them, or between two
// boards over PCIe. That is how vLLM chooses (custom_all_reduce.py: off without peer access, and for more than two
// PCIe-only boards), whose kernel SGLang has too; TensorRT-LLM wants links. The others are NCCL's sums, which start as
// late as those of FasterTransformer: 36 us over two devices, 12 more for each doubling.
constexpr double kNcclSumUs = 36, kNcclDoublingUs = 12;
// Of the kernels that send tokens to their experts and bring the experts' outputs back, in tables of DeepEP (SGLang) on
// 8 to 64 H100, H200 and B200 and of TensorRT-LLM on 2 to 64 GB200 (ai-dynamo/aiconfigurator @095f58a): 11 to 22 us of
// each of the two with one token; 22 to 31 where they leave a server, and there 46 to 48 GB/s of a card of 50.
constexpr double kExchangeUs = 13, kExchangeLeavesUs = 13;
constexpr double kExchangeCardShare = 0.94;

double fact_or(const Device& device, F field, double other) {
  return device.fact(field) ? device.value(field) : other;
}

}  // namespace

LinkCosts::LinkCosts(const Placement& placed, const Device& device)
    : placed_(placed), domain_(fact_or(device, F::kLinkDevices, placed.deployment.devices())) {
  set_sums(device);
  set_exchange(device);
}

void LinkCosts::set_sums(const Device& device) {
  const EngineProfile& engine = placed_.engine;
  const double devices = placed_.deployment.tensor_parallel;
  const bool linked = device.fact(F::kLinkGbPerS) && devices <= domain_;
  const bool peers = linked || fact_or(device, F::kPeerAccess, 1) > 0;
  const double pcie = fact_or(device, F::kPcieGbPerS, kUnknownPcie);
  double one_way = linked ? device.value(F::kLinkGbPerS) / 2 : pcie;
  if (!linked && device.fact(F::kLinkGbPerS) && domain_ >= kLeastDomain) {
    one_way = std::min(device.value(F::kLinkGbPerS) / 2, domain_ * kNetworkShare * pcie);
  }
  bandwidth_ = kLinkShare * (peers ? 1 : kHostedShare) * one_way * 1e9;
  const double hosted = linked ? 0 : kHostedSumUs;
  set_hops(device, hosted);
  const bool own_kernel = linked || (peers && devices <= 2);
  const double start = own_kernel ? engine.sum_us : std::max(engine.sum_us, kNcclSumUs);
  const double doubling = own_kernel ? engine.sum_doubling_us : std::max(engine.sum_doubling_us, kNcclDoublingUs);
  if (linked && engine.second_shot_us > 0) one_shot_bandwidth_ = kOneShotShare * one_way * 1e9;
  sum_start_ = (start + hosted + doubling * (std::log2(devices) - 1)) * 1e-6;
}

// Where some stages lie beyond the links, all are taken to hand over through the card of each device or, beyond a
// bridge, over PCIe.
void LinkCosts::set_hops(const Device& device, double hosted) {
  hop_bandwidth_ = bandwidth_;
  if (placed_.deployment.devices() > domain_) {
    const bool leaves = domain_ >= kLeastDomain, peers = fact_or(device, F::kPeerAccess, 1) > 0;
    const double share = leaves ? kNetworkShare : peers ? 1 : kHostedShare;
    const double between = kLinkShare * share * fact_or(device, F::kPcieGbPerS, kUnknownPcie) * 1e9;
    hop_bandwidth_ = std::min(bandwidth_, between);
    hosted = kHostedSumUs;
  }
  hop_start_ = (placed_.engine.sum_us + hosted) * 1e-6;
}

// Two sums of the residual stream a layer over the devices that share it: a ring, or, of messages that are short enough
// for it, each device reads those of all others at once. A norm over all heads of q and k sums their squares over the
// devices as well, two numbers a token. Where the host shares out one product after another, the parts of each product
// come back to one device instead.
double LinkCosts::sum_seconds(double bytes) const {
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  const double devices = placed_.deployment.tensor_parallel;
  if (devices < 2) return 0;
  if (engine.product_us > 0) return shape.depth() * engine.linears_per_layer * devices * engine.product_us * 1e-6;
  double passing = 2 * (devices - 1) / devices * bytes / bandwidth_;
  if (one_shot_bandwidth_ > 0) {
    const double one_shot = (devices - 1) * bytes / one_shot_bandwidth_;
    passing = std::min(one_shot, engine.second_shot_us * 1e-6 + passing);
  }
  const double of_squares = shape.qk_norm == QkNorm::kWhole ? 1 : 0;
  return shape.depth() * 2 * (sum_start_ + passing) + shape.layers * of_squares * sum_start_;
}

// Stages hand over all residual streams.
void LinkCosts::add(Parts& parts, std::uint64_t tokens) const {
  const double bytes = static_cast<double>(tokens * placed_.shape.hidden) * kActivationBytes;
  const double hops = placed_.deployment.stages - 1.0;
  const double handed = bytes * std::max(placed_.shape.residual_streams, 1U);
  const double seconds =
      hops * (hop_start_ + handed / hop_bandwidth_) + sum_seconds(bytes) + exchange_seconds(tokens);
  if (seconds > 0) parts.add(CostTerm::kLinks, Limit::kLinks, seconds, kLinkSpread);
}

// A token goes to the devices of its experts in the type that these multiply, and their outputs come back in 16 bits:
// to those that hold an expert of it, whole or a slice, or to all devices where that is less. Those beyond the links
// are reached through a network card of each device, at the same time.
void LinkCosts::set_exchange(const Device& device) {
  const Deployment& deployment = placed_.deployment;
  if (deployment.data_parallel == 1) return;
  const double devices = deployment.devices_of_a_layer();
  const double joined = fact_or(device, F::kLinkDevices, devices);
  const bool leaves = devices > joined && joined >= kLeastDomain;
  const double others = leaves ? devices - joined : 0, near = devices - 1 - others;
  const double of_each = double{1} * placed_.shape.experts_per_token / deployment.expert_parallel;
  const double copies = std::min(1.0, of_each);
  const double pcie = fact_or(device, F::kPcieGbPerS, kUnknownPcie);
  const bool linked = device.fact(F::kLinkGbPerS) && (leaves || devices <= joined);
  const bool peers = linked || fact_or(device, F::kPeerAccess, 1) > 0;
  const double one_way = linked ? device.value(F::kLinkGbPerS) / 2 : pcie;
  const double link = kLinkShare * (peers ? 1 : kHostedShare) * one_way * 1e9;
  const double card = kExchangeCardShare * kNetworkShare * pcie * 1e9;
  const double there = placed_.format.own ? 1 : kActivationBytes;
  const double bytes = placed_.shape.routed_width() * (there + kActivationBytes);
  exchange_token_ = copies * bytes * std::max(near / link, others / card) / deployment.tensor_parallel;
  exchange_start_ = 2e-6 * (kExchangeUs + (leaves ? kExchangeLeavesUs : 0) + (linked ? 0 : kHostedSumUs));
}

double LinkCosts::exchange_seconds(std::uint64_t tokens) const {
  if (placed_.deployment.data_parallel == 1) return 0;
  const double each = exchange_start_ + static_cast<double>(tokens) * exchange_token_;
  return static_cast<double>(placed_.shape.expert_layers()) * each;
}

}  // namespace kvroof
