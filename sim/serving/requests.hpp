// Requests to a server: when each arrives and how long its prompt and its answer are; drawn from distributions.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/serving/prefix_tree.hpp"

namespace kvroof {

struct Request {
  double arrival = 0;        // seconds, from the first request on
  std::uint32_t prompt = 1;  // tokens, at least 1
  std::uint32_t output = 1;  // tokens of the answer, at least 1 of a request that a server is sent
  std::uint32_t cached = 0;  // tokens of the prompt that a prefix cache has, less than the prompt
  PrefixBlock prefix = kNoPrefix;  // the last block of the prompt in a tree of prompts, where one says what they share
  // The last block of what is there when the request is answered, prompt and answer, for whoever goes on from it.
  PrefixBlock answered = kNoPrefix;
  std::uint32_t conversation = 0, turn = 1;  // which (conversations.hpp), and which of its requests
  std::uint32_t thoughts = 0;  // tokens at the start of the answer that later turns do not have in their prompts
  // A turn that comes when the request before it in the list is answered, or so long after that; it does not arrive by
  // itself.
  bool follows = false;

  friend bool operator==(const Request&, const Request&) = default;
};

// Requests that arrive independently of the server (an open loop), or conversations that begin so.
struct DrawnRequests {
  std::uint32_t count = 0;
  double rate = 1;  // requests a second
  std::uint32_t turns = 1;   // of a conversation, the last of which may have fewer
  std::uint32_t message = 1; // mean tokens of a prompt that follows, without what was said before
  double thoughts = 0;       // of an answer, the share that later prompts leave out
  // Times between arrivals have a gamma distribution of this shape, as in `vllm bench serve --burstiness`: 1 is a
  // Poisson process, below 1 requests come in bursts, above 1 more evenly. 0: one every 1 / rate seconds.
  double burstiness = 1;
  std::uint32_t prompt = 1, output = 1;  // mean lengths in tokens
  // Standard deviation of the lengths over their mean: they are log-normal, as those of production traces are. 0: all
  // have the mean.
  double spread = 0;
  std::uint64_t seed = 0;
};

// Seconds for which clients wait before their requests, from an exponential distribution (the interactive system of
// operational analysis, Denning and Buzen 1978). Same values, same pauses, on every machine.
std::vector<double> draw_pauses(std::uint32_t count, double mean, std::uint64_t seed);

// In the order of their arrival, the first at 0; turns follow each other and have the arrival of their first. Same
// values, same requests, on every machine.
std::vector<Request> draw_requests(const DrawnRequests& drawn);

}  // namespace kvroof
