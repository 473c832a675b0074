#include "apps/program.hpp"

int main(int argc, char** argv) { return kvroof::kvroof_program(argc, argv); }
