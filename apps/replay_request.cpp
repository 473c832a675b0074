#include "apps/replay_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "sim/cost/cost.hpp"
#include "sim/policy/budget.hpp"

namespace kvroof {
namespace {

// A count ≥ 1 with an optional k (1,024).
std::uint32_t parse_count(const std::string& option, std::string_view text, std::uint32_t least, std::uint32_t most) {
  std::string_view digits = text;
  std::uint64_t unit = 1;
  if (!digits.empty() && (digits.back() == 'k' || digits.back() == 'K')) {
    unit = 1024;
    digits.remove_suffix(1);
  }
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool number = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
  if (!number || value * unit < least || value * unit > most) {
    throw usage_error(fmt::format("--{} {}: expected a count from {} to {}", option, text, least, most));
  }
  return static_cast<std::uint32_t>(value * unit);
}

std::vector<BatchChoice> parse_batches(const Arguments& arguments, bool with_devices) {
  std::vector<BatchChoice> batches;
  for (const std::string& item : split_list("batch", arguments.get<std::string>("batch"))) {
    if (item != "max") {
      batches.emplace_back(parse_count("batch", item, 1, CostModel::kMaxBatch));
      continue;
    }
    if (!with_devices) throw usage_error("--batch max: the largest batch depends on a device; add --device");
    batches.emplace_back(std::nullopt);
  }
  return batches;
}

std::vector<PolicySpec> parse_points(const Arguments& arguments) {
  std::vector<Budget> budgets;
  if (arguments.has("budget")) {
    for (const std::string& item : split_list("budget", arguments.get<std::string>("budget"))) {
      Result<Budget> budget = parse_budget(item);
      if (!budget) throw usage_error(fmt::format("--budget {}: {}", item, budget.error()));
      budgets.push_back(std::move(budget).value());
    }
  }
  return cross_budgets(parse_policies(arguments.get<std::string>("policy")), budgets);
}

std::optional<DType> parse_type(const Arguments& arguments, const std::string& option) {
  if (!arguments.has(option)) return std::nullopt;
  const auto& text = arguments.get<std::string>(option);
  const std::optional<DType> type = parse_dtype(text);
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) return type;
  throw usage_error(fmt::format("--{} {}: expected f32, f16 or bf16", option, text));
}

std::optional<std::uint32_t> parse_length(const Arguments& arguments, const std::string& option, std::uint32_t least) {
  if (!arguments.has(option)) return std::nullopt;
  if (!arguments.has("as")) {
    throw usage_error(fmt::format("--{} belongs to --as: without it lengths are as recorded", option));
  }
  return parse_count(option, arguments.get<std::string>(option), least, 1U << 24);
}

}  // namespace

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    const std::size_t first = item.find_first_not_of(" \t");
    if (first == std::string::npos)
      throw usage_error(fmt::format("--{} '{}': an item of the list is empty", option, text));
    items.push_back(item.substr(first, item.find_last_not_of(" \t") - first + 1));
    begin = end + 1;
  }
  return items;
}

ReplayRequest replay_request(const Arguments& arguments) {
  ReplayRequest request;
  request.trace = arguments.positional.front();
  request.points = parse_points(arguments);
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (arguments.has("device")) {
    for (const std::string& name : split_list("device", arguments.get<std::string>("device"))) {
      request.devices.push_back(find_device(name, catalog));
    }
  }
  request.batches = parse_batches(arguments, !request.devices.empty());
  if (arguments.has("as")) {
    for (const std::string& name : split_list("as", arguments.get<std::string>("as"))) {
      request.models.push_back(find_model_shape(name, catalog));
    }
  }
  request.prompt = parse_length(arguments, "prompt", 1);
  request.output = parse_length(arguments, "output", 0);
  request.kv = parse_type(arguments, "kv");
  request.weights = parse_type(arguments, "dtype");
  if (arguments.has("kept")) request.kept = arguments.get<std::string>("kept");
  request.kept_steps = parse_kept_steps(arguments.get<std::string>("kept-steps"));
  if (arguments.has("kept-steps") && !request.kept) {
    throw usage_error("--kept-steps says which steps --kept FILE writes; add --kept");
  }
  if (arguments.has("closed-loop")) request.closed_loop = arguments.get<std::string>("closed-loop");
  if (arguments.has("seed")) request.seed = arguments.seed;
  return request;
}

}  // namespace kvroof
