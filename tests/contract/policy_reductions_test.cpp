// Policies that must equal simpler ones where their parameters leave nothing of their own.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

TEST_CASE("a policy whose parameters take away what is its own is the simpler policy") {
  struct Reduction {
    const char* policy;
    const char* simpler;
  };
  Shape shape = kShape;
  shape.layers = 4;
  for (const Reduction& r :
       {Reduction{"h2o:budget=20:recent=20", "window:budget=20"},
        Reduction{"streaming:budget=20:sinks=0", "window:budget=20"},
        Reduction{"keyformer:budget=20:recent=10:noise=none:tau=1..1", "h2o:budget=20:recent=10"},
        Reduction{"h2o:budget=20:when=1", "h2o:budget=20"},
        Reduction{"h2o:budget=20:recent=20:when=8", "window:budget=20:when=8"},
        Reduction{"keyformer:budget=20:recent=10:noise=none:tau=1..1:when=8", "h2o:budget=20:recent=10:when=8"},
        Reduction{"keyformer:budget=20:recent=10:noise=none:tau=1..1:when=prefill",
                  "h2o:budget=20:recent=10:when=prefill"},
        Reduction{"tova:budget=20:when=1", "tova:budget=20"},
        Reduction{"streaming:budget=20:sinks=0:when=prefill", "window:budget=20:when=prefill"},
        Reduction{"threshold:threshold=0:recent=1", "full"},
        Reduction{"threshold:threshold=1000:recent=20", "window:budget=20"},
        Reduction{"a2sf:budget=20:forgetting=1:recent=10", "h2o:budget=20:recent=10"},
        Reduction{"roco:budget=20:recent=20", "window:budget=20"},
        Reduction{"pyramidkv:budget=20:window=6:beta=1", "snapkv:budget=20:window=6"},
        Reduction{"adakv:budget=20:window=6:floor=1", "snapkv:budget=20:window=6:kernel=7:pool=max"},
        Reduction{"adakv:budget=20:window=6:safeguard=1:rule=kvpress", "snapkv:budget=20:window=6"},
        // Where everything is safe, every head has k; where nothing is left for the second stage, W_O v has no say.
        Reduction{"adakv:budget=20:inner=knorm:safeguard=1", "knorm:budget=20"},
        Reduction{"adakv:budget=20:inner=keydiff:safeguard=1:group=none", "keydiff:budget=20:group=none"},
        Reduction{"adakv:budget=20:inner=expected-attention:safeguard=1:sinks=3",
                  "expected-attention:budget=20:sinks=3"},
        Reduction{"criticalkv:budget=20:window=6:capacities=adaptive:safeguard=1", "snapkv:budget=20:window=6"},
        Reduction{"criticalkv:budget=20:window=6:capacities=adaptive:first=1",
                  "adakv:budget=20:window=6:rule=kvpress:group=mean"},
        Reduction{"criticalkv:budget=20:capacities=adaptive:first=1:inner=expected-attention",
                  "adakv:budget=20:inner=expected-attention"},
        Reduction{"cake:budget=20:window=6:gamma=0", "snapkv:budget=20:window=6"},
        Reduction{"compactor:budget=20:blend=0:sinks=0:recent=0", "non-causal:budget=20"},
        Reduction{"compactor:budget=20:blend=1000000:sinks=0:recent=0", "leverage:budget=20"},
        // Of one row all weights are multiplied alike.
        Reduction{"finch:budget=20:window=1", "snapkv:budget=20:window=1:kernel=1"},
        Reduction{"h2o:budget=20:page=1", "h2o:budget=20"},
        Reduction{"duo:retrieval=1", "full"},
        Reduction{"duo:retrieval=0:sinks=4:recent=16", "streaming:budget=20"}}) {
    for (shape.layer = 0; shape.layer < shape.layers; shape.layer += 3) {
      INFO(r.policy << " layer " << shape.layer);
      CHECK(history(spec_of(r.policy), shape, random_logit) == history(spec_of(r.simpler), shape, random_logit));
    }
  }
}

TEST_CASE("a set for each query head of a group is the set of a model that has a KV head for each") {
  Shape one_each = kShape;
  one_each.kv_heads = one_each.query_heads;
  for (const PolicyInfo& info : policy_table()) {
    if (std::ranges::find(info.params, "group", &ParamInfo::name) == info.params.end()) continue;
    const std::string policy = fmt::format("{}{}", info.name, info.takes_budget ? ":budget=0.5" : "");
    const auto for_each = spec_of(policy + ":group=none");
    const auto shared = spec_of(policy);
    if (info.traits(shared).tensors.any()) continue;  // the keys of the two models differ
    INFO(for_each.text());
    CHECK(history(for_each, kShape, random_logit) == history(shared, one_each, random_logit));
  }
}
