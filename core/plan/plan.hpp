// All that a plan tells of a configuration, without memory for it and without ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/activations.hpp"
#include "core/plan/compute.hpp"
#include "core/plan/disk.hpp"
#include "core/plan/hardware.hpp"
#include "core/plan/memory.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/time.hpp"
#include "core/plan/traffic.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::plan {

struct KindPlan {
  RankKind ranks;
  StateMemory memory;
  // The most at once, as configured and the other way round.
  int64_t activations = 0, with_recomputation = 0, without_recomputation = 0;
  int64_t kept = 0;  // what layers keep inside adds to that; 0 when it is not known
  StepTraffic traffic = {};
  double flops = 0;  // of one rank and step
  int64_t bytes() const { return memory.table.total_bytes() + activations + kept; }
};

// Another way to run the same, and what the largest rank would then hold.
struct Alternative {
  std::string change;  // "model.multi_stage.zero_stage=3"
  std::string why;     // "weights and gradients of two stages at a time"
  int64_t bytes = 0;
};

struct Plan {
  shard::World world;
  int64_t parameters = 0, trainable = 0;
  std::vector<StageCompute> stages;
  std::vector<KindPlan> kinds;      // by pipeline rank
  int64_t samples = 0, tokens = 0;  // of a step
  int64_t micro_batches = 0, train_iters = 0;
  bool kept_known = false;
  double model_flops = 0;  // three forwards, as is the custom; over all ranks
  double flops = 0;        // what ranks do
  double bubble = 0;       // share of time in which a rank waits, when all steps take equally long
  Disk disk;
  StepTime time;
  std::vector<Alternative> alternatives;
  const KindPlan& largest() const;
};

// Whether ranks of one micro-batch talk inside layers, which a plan does not know of.
inline bool layers_communicate(const shard::World& world) {
  return world.tensor > 1 || world.sequence_data > 1;
}

struct Question {
  const train::Settings& settings;
  model::Model& model;
  Hardware hardware = {};
  bool export_optimizer_state = false;
  std::vector<int64_t> kept = {};  // by layer, inside of it; empty: not known
};
// Throws Error(kInvalid) for sizes that do not divide, as a run would.
Plan make_plan(const Question& question);

// Bytes of the largest rank with other settings; nullopt: they do not go together.
std::optional<int64_t> bytes_with(const Question& question);
std::vector<Alternative> alternatives(const Question& question);

}  // namespace fastllm::plan
