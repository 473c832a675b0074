// kvroof doctor: what is installed, allowed and missing for a GPU, and the remedy.
#include <fmt/format.h>

#include "apps/cli/command.hpp"
#include "apps/cli/output.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cupti/examine.hpp"

namespace kvroof {
namespace {

int run_doctor(const Arguments& arguments) {
  const Examination examination = examine(this_machine(), cuda_device_problem(), cuda_is_built());
  Table table;
  table.columns = {{"item", "item", false},
                   {"state", "state", false},
                   {"found", "found", false},
                   {"what to do", "remedy", false}};
  for (const Finding& finding : examination.findings) {
    table.rows.push_back({finding.item, std::string(name_of(finding.health)), finding.found, finding.remedy});
  }
  write_table(arguments, table);
  return static_cast<int>(examination.has_device ? ExitCode::kOk : ExitCode::kNeedsDevice);
}

void describe_doctor(boost::program_options::options_description_easy_init) {}

}  // namespace

Command doctor_command() {
  Command command;
  command.name = "doctor";
  command.summary = "what is installed, allowed and missing for a GPU, and the remedy; exits 77 without a device";
  command.usage = "[options]";
  command.examples = "  kvroof doctor\n  kvroof doctor --format json";
  command.describe = describe_doctor;
  command.run = run_doctor;
  return command;
}

}  // namespace kvroof
