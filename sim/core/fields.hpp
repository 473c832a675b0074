// Members by a table of pointers to them, so that what is done to each is written once.
#pragma once

#include <cstddef>
#include <utility>

namespace kvroof {

// Shows f each member of one, or the same member of several, in the order of the table. Unrolled: simulations add
// counts up for every sequence of every step.
template <const auto& table, class F, class... Of>
void for_each_field(const F& f, Of&... of) {
  const auto show = [&]<std::size_t I> {
    constexpr auto field = table[I];
    f(of.*field...);
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (show.template operator()<I>(), ...);
  }(std::make_index_sequence<table.size()>());
}

}  // namespace kvroof
