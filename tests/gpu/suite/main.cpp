#include "tests/gpu/suite/parts.hpp"

int main(int count, char** words) { return kvroof::suite::suite_program(count, words); }
