// What every model family of the two tables must hold, found through them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engine/weight_families.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
namespace fs = std::filesystem;

namespace {

#define KVROOF_NAME(model_type, ...) #model_type,
constexpr std::string_view kRun[] = {KVROOF_WEIGHT_FAMILIES(KVROOF_NAME)};
#undef KVROOF_NAME

// The golden models' configurations, and the tests that change them into those of families built alike.
std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(KVROOF_SOURCE_DIR) / "tests/golden")) {
    if (entry.path().filename() != "config.json" && entry.path().extension() != ".cpp") continue;
    std::ifstream file(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

}  // namespace

TEST_CASE("a family whose weights the engine names has a parser of its config.json") {
  for (const std::string_view type : kRun) {
    INFO(type);
    const auto config = parse_config_json(fmt::format(R"({{"model_type": "{}"}})", type));
    CHECK((config.ok() || !config.error().starts_with(fmt::format("model_type \"{}\" is not supported", type))));
  }
}

TEST_CASE("a family that the engine runs is held to reference values, by a model of tests/golden or a related one's") {
  const std::vector<std::string> texts = golden_texts();
  for (const std::string_view type : kRun) {
    INFO(type);
    const auto names_it = [&](const std::string& text) {
      return text.find(fmt::format(R"("model_type": "{}")", type)) != std::string::npos ||
             text.find(fmt::format(R"("model_type", "{}")", type)) != std::string::npos;
    };
    CHECK(std::ranges::any_of(texts, names_it));
  }
}
