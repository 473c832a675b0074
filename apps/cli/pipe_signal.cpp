#include "apps/cli/pipe_signal.hpp"

#include <csignal>

namespace kvroof {
namespace {

void (*g_started_with)(int) = SIG_DFL;

}  // namespace

void end_at_closed_pipes() { g_started_with = std::signal(SIGPIPE, SIG_DFL); }

void restore_pipe_signal() { std::signal(SIGPIPE, g_started_with); }

}  // namespace kvroof
