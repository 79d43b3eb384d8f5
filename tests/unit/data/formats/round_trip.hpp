// What every format of documents must do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/data/support.hpp"

namespace fastllm::data {

// Documents of 1 to 99 tokens below 1000, or below what the type holds.
inline std::vector<std::vector<int64_t>> random_documents(const TokenTypeInfo& type) {
  std::mt19937 random(uint32_t(type.type));
  std::vector<std::vector<int64_t>> documents(100);
  for (auto& document : documents) {
    document.resize(1 + random() % 99);
    for (int64_t& id : document)
      id = int64_t(random()) % (std::min<int64_t>(999, type.highest) + 1);
  }
  return documents;
}

// Documents of every type of tokens come back from a file as they were written.
template <class Writer, class Dataset>
void expect_round_trips(const std::string& name) {
  for (const TokenTypeInfo& type : kTokenTypes) {
    SCOPED_TRACE(type.name);
    TemporaryDirectory folder;
    const auto path = folder.path() / name;
    const auto documents = random_documents(type);
    int64_t tokens = 0;
    Writer writer(path, type.type);
    for (const auto& document : documents) {
      writer.add(document);
      tokens += int64_t(document.size());
    }
    writer.finish();
    const Dataset dataset(path);
    EXPECT_EQ(dataset.token_type(), type.type);
    ASSERT_EQ(dataset.num_documents(), int64_t(documents.size()));
    EXPECT_EQ(dataset.num_tokens(), tokens);
    for (size_t d = 0; d < documents.size(); ++d)
      ASSERT_EQ(read_document(dataset, int64_t(d)), documents[d]) << d;
  }
}

}  // namespace fastllm::data
