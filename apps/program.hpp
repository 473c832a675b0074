// The kvroof program: finds the verb, parses its options strictly, runs it, and turns errors into one sentence and an
// exit code.
#pragma once

namespace kvroof {

// What main() returns.
int kvroof_program(int argc, char** argv);

}  // namespace kvroof
