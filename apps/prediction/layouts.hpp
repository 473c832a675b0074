// How a model lies over devices: --tp, --pp, --dp and --ep, and what is said of the layouts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

struct WorkloadRequest;

void describe_layouts(boost::program_options::options_description_easy_init add);
// Each layout that was asked for, once; types and weights are not set. Throws Error (usage).
std::vector<Deployment> layouts_of(const Arguments& arguments);

// "--tp 4 --pp 2 --dp 2 --ep 8", without the last three where they are 1.
std::string layout_options(const Deployment& deployment);
// The same in brackets after a blank; empty where --tp alone says it.
std::string layout_text(const Deployment& deployment);
// Whether any has such a text.
bool names_layouts(const std::vector<Deployment>& deployments);

// The counts of a layout, under the names that results have for them.
void add_layout(nlohmann::ordered_json& json, const Deployment& deployment);

// What a reader must know of the layouts of a request on these devices.
std::vector<std::string> layout_notes(const WorkloadRequest& request, std::span<const Device* const> devices);

}  // namespace kvroof
