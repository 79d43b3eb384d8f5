// The memory of a run and what works in it: layout, store, executor, optimizer, schedules. Made once, in the order the reference
// tells of it (docs/compatibility.md). One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/schedule.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/loss_scaler.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/ranks.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

// Floating-point operations of a whole batch, over all ranks.
struct StepFlops {
  double training = 0;  // three forwards, as is the custom (one forward, twice that for backward)
  double training_hardware = 0;  // with what backward and recomputation make again
  double evaluation = 0;         // one forward
};

// Memory and types of a store, as settings say.
shard::StoreOptions store_options(const Settings& settings);

// What a model is judged by: the first loss over labels (PORT_SUM), in order of definition, which
// the losses of blocks are not; without one the first of all, without any "".
std::string main_loss(const model::Description& description);

// The names of a model's losses as they are shown, each once: those over labels (PORT_SUM) before
// those of blocks, in order of definition.
std::vector<std::string> losses_in_order(const model::Description& description);

class Workspace {
 public:
  // Logs splitting, parameters, buffers and bytes; allocates; binds the model. Throws
  // Error(kOutOfMemory).
  Workspace(const Settings& settings, model::Model& model, const Ranks& ranks = {});
  Workspace(const Workspace&) = delete;

  const Ranks ranks;
  shard::Layout layout;
  // By main stage of a tied weight: the ranks that share it with this one.
  const std::map<int, distributed::Communicator*> tied_groups;
  shard::Store store;
  Executor executor;
  optim::AdamW optimizer;
  optim::LossScaler scaler;
  std::vector<model::Step> training_schedule, evaluation_schedule;
  std::vector<std::string> loss_names;  // losses_in_order
  StepFlops flops;
};

}  // namespace fastllm::train
