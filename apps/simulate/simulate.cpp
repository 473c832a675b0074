// kvroof simulate: requests on a server, one by one: percentiles of first tokens and tokens, and what meets goals.
#include <algorithm>
#include <tuple>

#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/simulate/simulate_output.hpp"
#include "apps/simulate/simulate_rank.hpp"
#include "apps/simulate/simulate_transfers.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

int run_simulate(const Arguments& arguments) {
  SimulateRequest request = simulate_request(arguments);
  const std::string svg = svg_file(arguments);
  std::vector<Workload> workloads = make_workloads(request.workload, arguments);
  std::vector<SimulatedRow> rows = simulate_rows(request, workloads, arguments);
  while (const std::uint32_t count = more_requests(request, rows)) {
    const auto lengths = [&] { return std::tuple(request.workload.prompt, request.workload.output); };
    const auto before = lengths();
    request = simulate_request(arguments, count);
    if (lengths() != before) workloads = make_workloads(request.workload, arguments);
    rows = simulate_rows(request, workloads, arguments);
  }
  rank_rows(request, rows);
  if (!svg.empty()) write_text_file(svg, simulate_svg(request, rows));
  if (arguments.has("per-request")) {
    write_file(arguments.get<std::string>("per-request"), requests_csv(request, rows));
  }
  const Format format = format_of(arguments);
  write_result(arguments, format == Format::kJson  ? simulate_json(request, rows)
                          : format == Format::kCsv ? simulate_csv(request, rows)
                                                   : simulate_table(request, rows));
  const auto met = [](const SimulatedRow& row) { return row.problem.empty() && row.met; };
  const bool any = std::any_of(rows.begin(), rows.end(), met);
  return static_cast<int>(any ? ExitCode::kOk : ExitCode::kGateFailed);
}

constexpr std::string_view kSimulateExamples =
    "  kvroof simulate --model llama-3-8b --device h100-sxm --engine vllm --rate 8 --prompt 2k --output 256 --spread "
    "0.5\n"
    "  kvroof simulate --model llama-3-8b --device h100-sxm,h200 --policy full,h2o --budget 0.5 --rate max --prompt 8k "
    "--output 512 --ttft-ms 2000 --tpot-ms 50\n"
    "  kvroof simulate --model llama-3-8b --device l40s --engine vllm --requests azure.csv --replicas auto --ttft-ms "
    "1000\n"
    "  kvroof simulate --model llama-3.1-70b --device h100-sxm,h200,b200,mi300x --engine vllm --tp auto --dtype "
    "bf16,fp8 --rate 10 --prompt 2k --output 256 --ttft-ms 1000 --tpot-ms 40 --replicas auto\n"
    "  kvroof simulate --model llama-3-8b --device h100-sxm --engine vllm --policy full,snapkv --budget 0.25 --rate "
    "max --prompt 8k --output 256 --ttft-ms 1000 --tpot-ms 20 --replicas 4 --prefill-replicas auto\n"
    "  kvroof simulate --model llama-3-8b --device h100-sxm,h200 --engine vllm --requests mooncake.jsonl "
    "--cached-prompt trace --host-cache 200\n"
    "  kvroof simulate --model llama-3.1-405b --dtype fp8 --device h200 --engine vllm --tp 8 --pp 1,2 --rate 2 "
    "--prompt 1k --output 256\n"
    "  kvroof simulate --model deepseek-v3 --dtype fp8 --device h200 --engine sglang --dp 8 --ep all --clients 256\n"
    "  kvroof simulate --model llama-3-8b --device h100-sxm,l40s --engine vllm --policy full,h2o --budget 0.3 --prompt "
    "4k --output 256 --ttft-ms 2000 --tpot-ms 50 --clients max --think-s 30\n"
    "  kvroof simulate --model llama-3.1-8b --device h100-sxm --engine vllm --turns 10 --prompt 2k --message 200 "
    "--output 300 --think-s 30 --rate 4 --host-cache 200\n"
    "  kvroof simulate --model llama-3-8b --device h100-sxm --clients 64 --prompt 1k --output 1k --per-request r.csv";

}  // namespace

Command simulate_command() {
  return {"simulate", "requests on a server one by one: percentiles of latency, the load that meets goals",
          "--model NAME --device NAME --rate R|max | --requests FILE | --clients N|max [options]", kSimulateExamples,
          &describe_simulate, &run_simulate};
}

}  // namespace kvroof
