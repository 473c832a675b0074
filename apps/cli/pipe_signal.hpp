// SIGPIPE: kvroof ends by it as filters do, and a program that it starts has it as kvroof itself was started with.
#pragma once

namespace kvroof {

// A closed pipe ends this process from now on, also where it was started with SIGPIPE ignored.
void end_at_closed_pipes();

// SIGPIPE is again what this process was started with, for the programs that it starts.
void restore_pipe_signal();

}  // namespace kvroof
