// A store of one rank with all it refers to, for tests that describe their model themselves.
#pragma once

#include <utility>

#include "core/shard/store.hpp"
#include "tests/support/gpt_description.hpp"

namespace fastllm::test {

struct DescribedStore {  // members in the order of lifetimes
  model::Description description;
  shard::Layout layout;
  shard::Store store;

  explicit DescribedStore(model::Description what, const shard::StoreOptions& options = {})
      : description(std::move(what)), layout(description, {}, {}), store(layout, 0, options) {}
  explicit DescribedStore(const GptShape& shape, const shard::StoreOptions& options = {})
      : DescribedStore(gpt_description(shape), options) {}
};

}  // namespace fastllm::test
