// Someone else's program, run to its end: what is sent to this process is passed on to it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace kvroof {

// Runs `words` with `variables` ("NAME=value") as its environment and the answers to signals that this process was
// started with. Returns its exit code as a shell has it (128 + signal where one ended it). Throws Error (126, 127 as
// shells) where it cannot be started.
//
// Signals that someone sends to this process are the program's until it has ended; those of the terminal reach it by
// themselves. None ends this process before the program.
int run_to_its_end(std::vector<std::string> words, std::vector<std::string> variables);

// The signal that asked this process to end after the program had ended; 0: none.
const std::atomic<int>& asked_to_stop();

}  // namespace kvroof
