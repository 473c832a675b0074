// The options of `kvroof simulate` that make conversations of drawn requests.
#pragma once

#include <string>

#include "apps/simulate/simulate_request.hpp"

namespace kvroof {

void describe_conversations(boost::program_options::options_description_easy_init add);
// Sets how many turns conversations have, how long messages are, and what of answers is left out. Throws Error (usage).
void set_conversations(const Arguments& arguments, SimulateRequest& request);
// Of turns that were drawn with messages as prompts: adds what was said before. The share that the model has positions
// for, at whose rate they come from then on.
double hold_conversations(SimulateRequest& request);

// " in conversations of 10 turns, with messages of 256 after the first"; nothing where requests follow nothing.
std::string conversations_text(const SimulateRequest& request);

}  // namespace kvroof
