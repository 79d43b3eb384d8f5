// The micro-batches of one step on this rank, taken from a loader.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/data/loader.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/ranks.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

// Seconds since the program began; tests bring their own.
using Clock = std::function<double()>;

struct StepBatches {
  std::vector<std::unique_ptr<data::Batch>> owned;
  StepInput input;  // points into owned
};

// vocab_size: ids outside [0, vocab_size) are refused; 0: no check. predicted_tokens: labels a
// position has.
data::LoaderOptions loader_options(const Settings& settings, int64_t vocab_size,
                                   int64_t predicted_tokens, int64_t first_sample);

// Waits for them; warns when that takes longer than settings.data.batch_warn_ms. All ranks call, each
// for its own samples; labels are counted over all of them. nullopt: a rank is to stop, as `stop` said
// or a signal that ended the wait. stop null: never.
std::optional<StepBatches> next_batches(data::Loader& loader, const Settings& settings,
                                        int64_t step, const Clock& clock, const Ranks& ranks,
                                        const std::function<bool()>& stop);

}  // namespace fastllm::train
