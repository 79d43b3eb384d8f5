// Who the ranks of a run are: each says it in the store, rank 0 looks at what all say, and writes what
// comes of it. Every way in which this goes wrong is told in one sentence, on all ranks that came.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed {

// Who a rank says it is.
struct Hello {
  int rank = 0, size = 1;    // as it was started
  std::string version;       // of the program
  std::string problem = {};  // why it cannot take part, in a sentence; empty: it can
};

// Waits until all have come. Returns how each is told apart: "node3, process 17". Throws on every
// rank: which has a problem, which did not come, which two say the same number, which was started for
// another number of ranks or by another version; kCancelled when a signal asked one to stop meanwhile.
std::vector<std::string> introduce(Store& store, const Hello& own,
                                   std::chrono::milliseconds timeout);

// The problem of this rank is another's, too, which tells it.
class ToldByAnother : public Error {
 public:
  using Error::Error;
};

}  // namespace fastllm::distributed
