// How fast this host reads memory: what decoding speed is compared with.
#pragma once

namespace kvroof {

// Bytes a second that `threads` threads read together from an array larger than any cache: the best of a few passes
// within about 0.3 s.
double measure_read_bandwidth(unsigned threads);

}  // namespace kvroof
