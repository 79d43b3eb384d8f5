// The one thing all datasets say alike: where a token came from.
#include "core/data/batch.hpp"

#include <fmt/format.h>

namespace fastllm::data {

std::string SampledDataset::locate(int64_t index, int64_t position) const {
  return fmt::format("position {} of sample {} of dataset {}", position, index, name());
}

}  // namespace fastllm::data
