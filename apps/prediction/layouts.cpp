#include "apps/prediction/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/values.hpp"
#include "apps/prediction/workload.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostDevices = 1024;

// Where a deployment has more devices than a device's links join.
std::vector<std::string> network_notes(const WorkloadRequest& request, std::span<const Device* const> devices) {
  const Deployment& largest = std::ranges::max(request.deployments, {}, &Deployment::devices);
  const std::uint32_t most = largest.devices();
  std::vector<std::string> notes;
  for (const Device* device : devices) {
    const double joined = device->fact(DeviceField::kLinkDevices) ? device->value(DeviceField::kLinkDevices) : most;
    if (joined < 8 || most <= joined) continue;
    notes.push_back(fmt::format("{}: the links of {} join {:.0f}; more are taken to be joined by a network with a "
                                "card for each device (400 Gb/s beside PCIe 5), of which no row was measured",
                                layout_options(largest), device->name, joined));
  }
  return notes;
}

// Stages that wait for each other, and those that nobody measured.
std::string stage_note(const EngineProfile& engine) {
  if (!engine.overlaps_stages) {
    return fmt::format("--pp: stages of {} wait for each other, so that they share the memory of a model and not its "
                       "time", engine.name);
  }
  if (engine.measured_stages) return "";
  return fmt::format("--pp: stages of {} are taken to work on different sequences at once, which no measured row of it "
                     "shows", engine.name);
}

std::string expert_note(const EngineProfile& engine) {
  if (engine.listed_expert_us > 0) return "";
  return fmt::format("--ep: rows of {} show no difference between experts that lie whole on some devices and those "
                     "that all devices share; that devices pass the rows of fewer experts is all that is predicted",
                     engine.name);
}

std::string group_note(const EngineProfile& engine) {
  if (engine.measured_groups) return "";
  return fmt::format("--dp: {} is taken to send tokens to experts as DeepEP's kernels do, which no measured row of a "
                     "whole model under it shows", engine.name);
}

}  // namespace

void describe_layouts(po::options_description_easy_init add) {
  add("tp", po::value<std::string>()->default_value("1"),
      "devices that share each layer (tensor parallelism), a list, or auto: 1, 2, 4 and 8");
  add("pp", po::value<std::string>()->default_value("1"),
      "stages of so many devices that each hold a part of the layers (pipeline parallelism), a list");
  add("dp", po::value<std::string>()->default_value("1"),
      "groups of --tp devices that each attend to sequences of their own and share the experts (data parallelism of "
      "attention), a list");
  add("ep", po::value<std::string>()->default_value("1"),
      "groups of a stage's devices that each hold whole experts (expert parallelism), a list, or all: each of them");
}

std::vector<Deployment> layouts_of(const Arguments& arguments) {
  const auto counts = [&](const char* option) {
    return count_list(option, arguments.get<std::string>(option), 1, kMostDevices);
  };
  std::vector<std::optional<std::uint32_t>> groups;  // nothing: as many as devices
  for (const std::string& text : split_list("ep", arguments.get<std::string>("ep"))) {
    text == "all" ? groups.emplace_back() : groups.emplace_back(count_value("ep", text, 1, kMostDevices, ", or all"));
  }
  const bool any = arguments.get<std::string>("tp") == "auto";
  std::vector<Deployment> layouts;
  const auto add = [&](Deployment layout) {
    const auto same = [&](const Deployment& other) { return layout_options(other) == layout_options(layout); };
    if (std::ranges::none_of(layouts, same)) layouts.push_back(std::move(layout));
  };
  for (const std::uint32_t tensor : any ? std::vector<std::uint32_t>{1, 2, 4, 8} : counts("tp")) {
    for (const std::uint32_t stages : counts("pp")) {
      for (const std::uint32_t data : counts("dp")) {
        for (const auto& group : groups) {
          Deployment layout = TrafficTypes{};
          layout.tensor_parallel = tensor;
          layout.stages = stages;
          layout.data_parallel = data;
          layout.expert_parallel = group.value_or(layout.devices_of_a_layer());
          add(std::move(layout));
        }
      }
    }
  }
  return layouts;
}

std::string layout_options(const Deployment& deployment) {
  std::string text = fmt::format("--tp {}", deployment.tensor_parallel);
  if (deployment.stages > 1) text += fmt::format(" --pp {}", deployment.stages);
  if (deployment.data_parallel > 1) text += fmt::format(" --dp {}", deployment.data_parallel);
  if (deployment.expert_parallel > 1) text += fmt::format(" --ep {}", deployment.expert_parallel);
  return text;
}

std::string layout_text(const Deployment& deployment) {
  const bool plain = deployment.devices() == deployment.tensor_parallel && deployment.expert_parallel == 1;
  return plain ? "" : fmt::format(" ({})", layout_options(deployment));
}

void add_layout(nlohmann::ordered_json& json, const Deployment& deployment) {
  json["tensor_parallel"] = deployment.tensor_parallel;
  json["pipeline_stages"] = deployment.stages;
  json["data_parallel"] = deployment.data_parallel;
  json["expert_parallel"] = deployment.expert_parallel;
}

bool names_layouts(const std::vector<Deployment>& deployments) {
  return std::ranges::any_of(deployments, [](const Deployment& d) { return !layout_text(d).empty(); });
}

std::vector<std::string> layout_notes(const WorkloadRequest& request, std::span<const Device* const> devices) {
  std::vector<std::string> notes = network_notes(request, devices);
  const auto any = [&](auto has) { return std::ranges::any_of(request.deployments, has); };
  const bool stages = any([](const Deployment& d) { return d.stages > 1; });
  const bool groups = any([](const Deployment& d) { return d.data_parallel > 1; });
  const bool experts = any([](const Deployment& d) { return d.expert_parallel > 1; });
  for (const Device* device : devices) {
    const EngineProfile engine = request.engine_on(*device);
    if (stages) notes.push_back(stage_note(engine));
    if (groups) notes.push_back(group_note(engine));
    if (experts) notes.push_back(expert_note(engine));
  }
  std::erase(notes, "");
  std::ranges::sort(notes);
  notes.erase(std::unique(notes.begin(), notes.end()), notes.end());
  return notes;
}

}  // namespace kvroof
