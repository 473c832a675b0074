// The experiment of the papers on H2O (arXiv:2306.14048) and Keyformer (arXiv:2403.09054): MPT-7B, prompts and outputs
// of equal length, the whole cache against H2O with 90 % and Keyformer with 50 % of it.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "tests/gpu/suite/engine_timing.hpp"
#include "kernels/cuda/measure/timing.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {
namespace {

struct Point {
  std::string policy;
  double kept = 1;  // of the prompt; the whole cache grows beyond it
  std::uint32_t prompt = 0, output = 0, batch = 0;
  bool largest = false;

  [[nodiscard]] bool evicts() const { return policy != "full"; }
  [[nodiscard]] Json parameters() const {
    return {{"model", "mpt-7b"}, {"policy", policy}, {"prompt", prompt},
            {"output", output},  {"batch", batch},   {"largest", largest}};
  }
};

// Tokens of a cache that memory must hold.
double tokens_of(const Point& p) { return p.evicts() ? p.kept * p.prompt + 1 : p.prompt + p.output; }

class Experiment {
 public:
  Experiment(const Options& options, Report& report)
      : options_(options),
        report_(report),
        model_(random_model("mpt-7b", 8192, options.small, options.seed)),
        steps_(options.small ? 2 : 32) {}

  // Points of one policy, each with batch 4 or the largest that fits. Its weights are made anew.
  void run(const std::string& policy, double kept, const std::vector<std::uint32_t>& prompts, bool largest) {
    report_.guarded("paper", {{"policy", policy}, {"prompts", prompts}, {"largest", largest}}, [&] {
      engine_.reset();
      engine_ = std::make_unique<EngineTiming>(model_, policy);
      cuda::DeviceFacts facts;
      cuda::check_device(cuda::find_device(facts), "asking for free memory");
      const double free = 0.9 * static_cast<double>(facts.free_bytes);
      for (const std::uint32_t length : prompts) {
        Point p{policy, kept, length, length, options_.small ? 1U : 4U, largest};
        if (largest) p.batch = static_cast<std::uint32_t>(std::clamp(free / sequence_bytes(p), 4.0, 256.0));
        report_.guarded("paper", p.parameters(), [&] { point(p); });
      }
      if (policy == "full" && !largest) whole_run(prompts[0]);
    });
  }

 private:
  // Every step of a run of the whole cache, against what the few timed ones make of it.
  void whole_run(std::uint32_t length) {
    const Point p{"full", 1, length, length, options_.small ? 1U : 4U, false};
    report_.guarded("whole_run", p.parameters(), [&] {
      const double integral = decode_seconds(p);
      if (integral == 0) return report_.cut("whole_run", p.parameters());  // there is nothing to hold it against
      engine_->release();
      engine_->grow(p.batch, p.prompt, p.output);
      double sum = 0;
      for (std::uint32_t i = 0; i < p.output; ++i) sum += engine_->decode();
      engine_->release();
      const double off = integral / sum - 1;
      report_.check("whole_run", p.parameters(), options_.small || std::abs(off) <= 0.02,
                    {{"seconds", sum}, {"integrated_seconds", integral}, {"deviation", off}, {"tolerance", 0.02}});
    });
  }

  // What the report says of a point, also of one that an earlier process measured; 0: nothing.
  [[nodiscard]] double decode_seconds(const Point& p) const {
    for (const Json& row : report_.document()["rows"]) {
      if (row["what"] == "paper" && row["parameters"] == p.parameters()) return row.value("decode_seconds", 0.0);
    }
    return 0;
  }

  // Of the caches of a sequence, with a position for each row and what a policy keeps of it. The device gives memory,
  // which each layer asks for by itself, in pages.
  [[nodiscard]] double sequence_bytes(const Point& p) const {
    constexpr double kPage = 2U << 20U;
    const ModelShape& s = model_.config.shape;
    const double layer = tokens_of(p) * s.kv_heads * (2.0 * s.row_width() + 3 * sizeof(std::uint32_t));
    return s.layers * std::ceil(layer / kPage) * kPage;
  }

  // Median seconds of a step when a sequence has `length` tokens behind it, and of the prefill of one sequence.
  std::pair<double, double> step_at(const Point& p, std::uint32_t length) {
    engine_->release();  // what a point that failed left behind
    const double prefill = engine_->grow(p.batch, length, steps_ + 2) / p.batch;
    std::vector<double> times;
    engine_->decode();
    for (std::uint32_t i = 0; i < steps_; ++i) times.push_back(engine_->decode());
    engine_->release();
    return {cuda::measured(times).median, prefill};
  }

  // The mean of steps in the middle of equal stretches of the output. A policy that evicts holds the same rows all the
  // time, so that one length says it all; the whole cache takes eight, or as many as time allows, but at least two.
  void point(const Point& p) {
    const std::uint32_t least = p.evicts() ? 1 : 2;
    std::uint32_t lengths = p.evicts() ? 1 : 8;
    const double once = prefill_per_token_[p.policy] * p.batch * (p.prompt + (p.evicts() ? 0 : p.output / 2.0));
    const double left = report_.seconds_left();
    // Prompts of the largest batches take most of the time; a few lengths do, for a step is linear in what it reads.
    while (lengths > least && once * lengths > left / (p.largest ? 6 : 2)) lengths /= 2;
    if (once * lengths > left / 2) return report_.cut("paper", p.parameters());
    Json at = Json::array();
    double sum = 0, prompt_seconds = 0;
    for (std::uint32_t i = 0; i < lengths; ++i) {
      const std::uint32_t length = p.prompt + (p.evicts() ? 0 : (2 * i + 1) * p.output / (2 * lengths));
      const auto [step, seconds] = step_at(p, length);
      prefill_per_token_[p.policy] = seconds / length;
      if (i == 0) prompt_seconds = seconds * p.batch;
      sum += step;
      at.push_back({{"length", length}, {"step_seconds", step}});
    }
    const double decode = sum / lengths * p.output;
    report_.add("paper", p.parameters(),
                {{"decode_seconds", decode},
                 {"tokens_per_s", double{1} * p.batch * p.output / decode},
                 {"prefill_seconds", prompt_seconds},
                 {"steps", at},
                 {"cache_tokens", tokens_of(p)}});
  }

  const Options& options_;
  Report& report_;
  Model model_;
  std::uint32_t steps_;
  std::unique_ptr<EngineTiming> engine_;
  std::map<std::string, double> prefill_per_token_;  // seconds, of each policy
};

}  // namespace

void measure_paper(const Options& options, Report& report) {
  Experiment experiment(options, report);
  const auto all = [&](const std::vector<std::uint32_t>& prompts, bool largest) {
    experiment.run("full", 1, prompts, largest);
    experiment.run("h2o:budget=0.9", 0.9, prompts, largest);
    experiment.run("keyformer:budget=0.5", 0.5, prompts, largest);
  };
  if (options.small) return all({12}, false);
  // All policies beside each other before the next lengths: what is cut for time is what comes last.
  all({1024, 2048, 4096}, false);
  for (const std::uint32_t prompt : {1024U, 2048U, 4096U}) all({prompt}, true);
}

}  // namespace kvroof::suite
