#include "kernels/cuda/cublaslt.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "kernels/libraries/libraries.hpp"

namespace kvroof::cuda {

using namespace cublaslt;

namespace {

// Every length of a prompt has plans of its own; they are cheap to make again.
constexpr std::size_t kMostPlans = 1024;
constexpr int kMostWays = 4;  // that are asked for: what the library proposes it may refuse when it comes to launch it

// Null, or the function that the library lacks.
const char* find_functions(void* library, Functions& functions) {
#define KVROOF_FIND(name, result, arguments) \
  if (!find_function(library, #name, functions.name)) return #name;
  KVROOF_CUBLASLT_FUNCTIONS(KVROOF_FIND)
#undef KVROOF_FIND
  return nullptr;
}

// As open_library, in one folder alone.
std::string open_below(const char* folder, const TakeLibrary& take) {
  for (const char* file : kCublasLtFiles) {
    const std::string path = fmt::format("{}/{}", folder, file);
    if (!std::filesystem::exists(path)) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? fmt::format("{} cannot be loaded: {}", path, dlerror()) : take(library, path);
  }
  return fmt::format("{} was not found", kCublasLtFiles.front());
}

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::use(void* library, const std::string& path) {
  Functions lt;
  if (const char* lacking = find_functions(library, lt)) return failure("{} has no {}", path, lacking);
  const std::size_t version = lt.cublasLtGetVersion();
  if (major_of(version) < kOldestMajor || major_of(version) > kNewestMajor) {
    return failure("{} is version {}; {} to {} are served", path, version, kOldestMajor, kNewestMajor);
  }
  Handle handle = nullptr;
  if (const Status status = lt.cublasLtCreate(&handle); status != kSuccess) {
    return failure("{}, version {}, cannot be started: {}", path, version, lt.cublasLtGetStatusString(status));
  }
  return std::unique_ptr<CublasLt>(new CublasLt(lt, handle));
}

Result<std::unique_ptr<CublasLt>> CublasLt::load() {
  std::unique_ptr<CublasLt> found;
  const TakeLibrary take = [&](void* library, const std::string& path) {
    auto used = use(library, path);
    if (!used) return used.error();
    found = std::move(used).value();
    return std::string();
  };
  const char* const folder = library_folder();
  const std::string problem = folder != nullptr
                                  ? open_below(folder, take)
                                  : open_library(this_host(), kCublasLtFiles, RTLD_NOW | RTLD_LOCAL, take);
  if (found == nullptr) return Failure{problem};
  return found;
}

CublasLt::~CublasLt() {
  forget();
  lt_.cublasLtDestroy(handle_);  // the library stays loaded, as what it told the driver of does
}

std::string CublasLt::version() const {
  const std::size_t version = lt_.cublasLtGetVersion();
  return fmt::format("{}.{}.{}", major_of(version), version / 100 % 100, version % 100);
}

// The rows of w and x are columns to the library: it makes outᵀ [rows, tokens] = (wᵀ)ᵀ · xᵀ.
Status CublasLt::describe(const Product& p, Plan& plan) const {
  const int type = p.type == Stored::kBF16 ? kRealBF16 : kReal16;
  Status status = lt_.cublasLtMatmulDescCreate(&plan.desc, kCompute32, kReal32);
  const auto then = [&status](auto&& call) {
    if (status == kSuccess) status = call();
  };
  then([&] {
    return lt_.cublasLtMatmulDescSetAttribute(plan.desc, kDescTransA, &kTransposed, sizeof kTransposed);
  });
  then([&] { return lt_.cublasLtMatrixLayoutCreate(&plan.w, type, p.w.cols, p.w.rows, p.w.cols); });
  then([&] { return lt_.cublasLtMatrixLayoutCreate(&plan.x, type, p.w.cols, p.tokens, p.w.cols); });
  then([&] { return lt_.cublasLtMatrixLayoutCreate(&plan.out, kReal32, p.w.rows, p.tokens, p.out_row); });
  return status;
}

Status CublasLt::choose(Plan& plan) const {
  Preference preference = nullptr;
  Status status = lt_.cublasLtMatmulPreferenceCreate(&preference);
  if (status != kSuccess) return status;
  const auto set = [&](int attribute, const auto& value) {
    if (status == kSuccess) {
      status = lt_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    }
  };
  set(kPreferMostWorkspace, std::uint64_t{kWorkspaceBytes});
  for (const int attribute : kPreferAlignment) set(attribute, kAlignment);
  std::array<HeuristicResult, kMostWays> results{};
  int found = 0;
  if (status == kSuccess) {
    status = lt_.cublasLtMatmulAlgoGetHeuristic(handle_, plan.desc, plan.w, plan.x, plan.out, plan.out, preference,
                                                kMostWays, results.data(), &found);
  }
  lt_.cublasLtMatmulPreferenceDestroy(preference);
  if (status != kSuccess) return status;
  while (found > 0) {
    const HeuristicResult& way = results[--found];
    if (way.state == kSuccess) plan.ways.push_back(way.algo);
  }
  return plan.ways.empty() ? kNotSupported : kSuccess;
}

CublasLt::Plan& CublasLt::plan_of(const Product& p) {
  const Sizes sizes = {static_cast<std::uint32_t>(p.type), p.w.rows, p.w.cols, p.tokens, p.out_row};
  if (const auto known = plans_.find(sizes); known != plans_.end()) return known->second;
  if (plans_.size() >= kMostPlans) forget();
  Plan& plan = plans_[sizes];
  Status status = describe(p, plan);
  if (status == kSuccess) status = choose(plan);
  if (status != kSuccess) refuse(p, plan, status);
  return plan;
}

bool CublasLt::multiply(Stream& stream, const Product& p, std::byte* workspace) {
  Plan& plan = plan_of(p);
  const float alpha = p.factor, beta = p.add ? 1.0F : 0.0F;
  while (!plan.ways.empty() && stream.problem == nullptr) {
    const Status status =
        lt_.cublasLtMatmul(handle_, plan.desc, &alpha, p.w.data, plan.w, p.x, plan.x, &beta, p.out, plan.out, p.out,
                           plan.out, &plan.ways.back(), workspace, kWorkspaceBytes, stream.handle);
    if (status == kSuccess) return true;
    if (status == kExecutionFailed) {
      stream.problem = "cuBLASLt could not launch a product (CUBLAS_STATUS_EXECUTION_FAILED)";
    } else if (status == kNotSupported && plan.ways.size() > 1) {
      plan.ways.pop_back();
    } else {
      refuse(p, plan, status);
    }
  }
  return false;
}

void CublasLt::refuse(const Product& p, Plan& plan, Status status) {
  plan.ways.clear();
  if (!problem_.empty()) return;
  problem_ = fmt::format("cuBLASLt {} refused a product of {} x {} with {} vectors: {}", version(), p.w.rows, p.w.cols,
                         p.tokens, lt_.cublasLtGetStatusString(status));
}

void CublasLt::release(Plan& plan) const {
  if (plan.desc != nullptr) lt_.cublasLtMatmulDescDestroy(plan.desc);
  for (const Layout layout : {plan.w, plan.x, plan.out}) {
    if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
  }
}

void CublasLt::forget() {
  for (auto& [sizes, plan] : plans_) release(plan);
  plans_.clear();
}

}  // namespace kvroof::cuda
