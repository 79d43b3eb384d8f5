// What all ranks do together through the store: be at the same place, and have the same in hand.
// Slow (milliseconds), and good at telling who is missing or different. Rank 0 compares, and writes
// what all are to say. The store does not grow: rank 0 removes what all have read.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/distributed/store.hpp"

namespace fastllm::distributed {

class Coordinator {
 public:
  // check: called while waiting; throws when there is no use in waiting on.
  Coordinator(Store& store, int rank, int size, std::function<void()> check = {});

  // Returns when all ranks have come here. A rank that does not within the timeout is named, and one
  // that is at another place.
  void meet(const std::string& place, std::chrono::milliseconds timeout);

  // Throws on every rank unless all gave the same text: names the first line that differs, what it is
  // on which ranks. what: "configuration".
  void agree(const std::string& what, const std::string& text, std::chrono::milliseconds timeout);

 private:
  // All ranks' values on rank 0; elsewhere empty.
  std::vector<std::string> gather(const std::string& key, const std::string& value,
                                  const std::string& what, std::chrono::milliseconds timeout);
  // Of rank 0, to all.
  std::string verdict(const std::string& key, const std::function<std::string()>& judge,
                      const std::string& what, std::chrono::milliseconds timeout);
  // Of rank 0, when all have come somewhere: they have read the verdicts before, and it their values.
  void remove_read(const std::vector<std::string>& values);
  void wait_for(const std::vector<std::string>& keys, const std::vector<int>& ranks,
                const std::string& what, std::chrono::milliseconds timeout);

  Store& store_;
  int rank_, size_;
  std::function<void()> check_;
  int64_t rounds_ = 0;
  std::vector<std::string> verdicts_;  // keys of rank 0's, until all have read them
};

// The sentence for texts that differ, by rank; empty: they do not.
std::string difference(const std::string& what, const std::vector<std::string>& texts);

}  // namespace fastllm::distributed
