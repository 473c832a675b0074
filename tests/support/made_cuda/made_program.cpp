// A program that uses a GPU, as far as a recorder can tell: loads what CUDA_INJECTION64_PATH names, as the driver does,
// and launches on the made CUPTI. usage: made_program KERNELS [CHILD…]; a CHILD is the KERNELS of a process of its own:
// by fork and exec, on GPU 0 (N), by fork alone, on GPU 1 (fN), or that one, once its spool has them, killed (kN) or
// become this program with 7 KERNELS by exec (eN), or left behind until the spool is removed (sN).
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

template <class F>
F* function(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library, name));
}

void* made_cupti() {
  void* const cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  return function<void()>(cupti, "made_launch") == nullptr ? nullptr : cupti;
}

bool launch(int kernels) {
  const char* const path = std::getenv("CUDA_INJECTION64_PATH");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* const start = function<int()>(library, "InitializeInjection");
  if (start == nullptr || start() != 1 || start() != 1) return false;
  if (void* const cupti = made_cupti()) {
    auto* const run =
        function<void(std::uint32_t, std::uint64_t, std::uint64_t, const char*)>(cupti, "made_launch");
    for (int i = 1; i <= kernels; ++i) {
      run(static_cast<std::uint32_t>(i), 1000U * i, 1000U * i + 500, i % 2 == 0 ? "_Z4gemvPf" : "_Z7softmaxPf");
    }
    // The first call of NVTX loads what is named by then.
    const char* const named = std::getenv("NVTX_INJECTION64_PATH");
    void* const ranges = named == nullptr ? nullptr : dlopen(named, RTLD_NOW | RTLD_LOCAL);
    auto* const mark = function<void(std::uint64_t, const char*)>(ranges, "made_mark");
    if (mark != nullptr) mark(77, "half way");
    function<void(std::uint64_t)>(cupti, "made_pool")(60);
  }
  std::printf("%d launched\n", kernels);
  std::fflush(stdout);
  return true;
}

std::string spool_file() {
  const char* const folder = std::getenv("KVROOF_SPOOL_FOLDER");
  return std::string(folder == nullptr ? "" : folder) + "/" + std::to_string(getpid()) + "-0.spool";
}

// The recorder asks for buffers that are not full each second.
void wait_until_recorded() {
  const std::string spool = spool_file();
  struct stat facts {};
  stat(spool.c_str(), &facts);
  const auto before = facts.st_size;
  if (made_cupti() == nullptr) return;
  for (int i = 0; i < 20'000 && stat(spool.c_str(), &facts) == 0 && facts.st_size == before; ++i) usleep(1000);
}

// Tells whoever reads the pipe, and leaves them.
void outlive_parent(int told) {
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  close(told);
  struct stat facts {};
  for (int i = 0; i < 10'000 && stat(spool_file().c_str(), &facts) == 0; ++i) usleep(1000);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const bool forked = std::isdigit(*argv[i]) == 0;
    int told[2] = {-1, -1};
    if (pipe(told) != 0) return 98;
    const pid_t child = fork();
    if (child == 0 && !forked) {
      execl(argv[0], argv[0], argv[i], nullptr);
      _exit(126);
    }
    if (child == 0) {
      setenv("MADE_GPU", "1", 1);
      const bool launched = launch(std::atoi(argv[i] + 1));
      if (*argv[i] != 'f') wait_until_recorded();
      if (*argv[i] == 'k') raise(SIGKILL);
      if (*argv[i] == 's') outlive_parent(told[1]);
      if (*argv[i] == 'e') execl(argv[0], argv[0], "7", nullptr);
      return launched ? 0 : 99;
    }
    close(told[1]);
    char none = 0;
    if (*argv[i] == 's') {
      static_cast<void>(!read(told[0], &none, 1));
    } else {
      waitpid(child, nullptr, 0);
    }
    close(told[0]);
  }
  return launch(std::atoi(argv[1])) ? 5 : 99;
}
