// What the conditions of a published row say: free text in which authors name loads, lengths and options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvroof {

// A number in front of a word such as req/s: "rate 8 req/s", "2.5 qps".
std::optional<double> rate_of(std::string_view text);

// Whether the conditions say that tokens were drawn by top-p: "top_p 0.9", but not "top_p 1".
bool by_top_p(const std::string& conditions);

// Whether the conditions say that devices attend to sequences of their own and share the experts alone.
bool by_attention_groups(const std::string& conditions);

// Whether the conditions say that graphs were turned off.
bool without_graphs(const std::string& conditions);

// Whether all prompts are as long, and all answers: so where the conditions name no data or range that lengths are
// drawn from. InferenceMAX draws those of its three pairs from 0.8 to 1 of them, and tables of its results do not say
// so; whether others with these pairs do is not known, so that their mean is taken as stated.
bool equal_lengths(const std::string& conditions, std::uint32_t input, std::uint32_t output);

// Of lengths "0.8 to 1 of these" the mean share; 1 where nothing of the kind is said.
double mean_share(const std::string& conditions);

}  // namespace kvroof
