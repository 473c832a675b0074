#include "analysis/device_names.hpp"

#include <filesystem>

#include "sim/device/device.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

std::string meant(const std::string& driver) {
  return catalog_name_of(driver, std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog").value_or("none");
}

}  // namespace

TEST_CASE("a driver's name stands for the board of the catalog whose words it has, the longest such name") {
  CHECK(meant("NVIDIA H200") == "h200");
  CHECK(meant("NVIDIA H200 NVL") == "h200-nvl");
  CHECK(meant("NVIDIA H100 80GB HBM3") == "h100-sxm");
  CHECK(meant("NVIDIA A100-SXM4-40GB") == "a100-40g");
  CHECK(meant("NVIDIA A100-PG509-200") == "a100-40g");
  CHECK(meant("NVIDIA GH200 144G HBM3e") == "gh200-144g");
  CHECK(meant("NVIDIA GH200 480GB") == "gh200-96g");
  CHECK(meant("NVIDIA A100 80GB PCIe") == "a100-pcie-80g");
  CHECK(meant("NVIDIA GeForce RTX 4070 Ti") == "rtx-4070-ti");
  CHECK(meant("NVIDIA GeForce RTX 4090") == "rtx-4090");
  CHECK(meant("NVIDIA RTX 5000 Ada Generation") == "rtx-5000-ada");
  CHECK(meant("Tesla T4") == "t4");
}

TEST_CASE("a part of a board, and another board of like name, are not the one of the catalog") {
  for (const char* other :
       {"NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "NVIDIA GeForce RTX 4080 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D", "NVIDIA H20-3e", "NVIDIA GeForce RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 2080 Ti with Max-Q Design", "NVIDIA RTX 4000 SFF Ada Generation"}) {
    INFO(other);
    CHECK(meant(other) == "none");
  }
  CHECK(name_of_words("NVIDIA GeForce RTX 4090 Laptop GPU", {"rtx-4090-laptop"}) == "rtx-4090-laptop");
}

}  // namespace kvroof
