// The resolved configuration as plain values, for the parts that run (docs/compatibility.md).
// Made once, after the model plugin filled its own defaults; computed defaults are written back
// into the tree, so that what is printed and kept is what runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/interval.hpp"
#include "core/config/node.hpp"
#include "core/distributed/environment.hpp"
#include "core/distributed/world.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "core/optim/loss_scaler.hpp"

namespace fastllm::train {

enum class Phase { kTraining, kValidation, kTest };
const char* phase_name(Phase phase);  // "Training", ...: the keys of data.datasets

// What a launcher says of this process.
using Environment = distributed::LaunchEnvironment;

struct RunSettings {
  std::optional<std::string> experiment_dir;
  bool structured_logs = true;  // log files in the run's folder
  bool log_timestamps = true;
  std::optional<int64_t> threads;  // nullopt: all cores
};

struct TensorLogSettings {
  bool save = false, show = true;
  int64_t max_elements = 8;  // samples shown of a tensor
  bool global = true;        // names them so; of one rank alone
  bool activation_memory = false;
  struct Levels {  // 0: nothing; see core/train/tensor_log.hpp
    int64_t layer_outputs = 0, layer_gradients = 0, param_init = 0, param_gradients = 0,
            all_param_gradients = 0, param_update = 0;
  } levels;
};

struct ProfilingSettings {
  bool cpu = false;
  int64_t skip = 1, wait = 0, warmup = 1, cycles = 1;  // iterations
  bool averages = false, trace = false, chrome = false;
  int table_width = 80;
  std::vector<int64_t> ranks;  // empty: all
  bool log = false;            // tables go to the log
};

struct MultiStageSettings {
  bool full_precision_gradients = true;
  bool wide_frozen_weights = true;     // store_frozen_weights_in_optimization_precision
  bool debug_tensor_parallel = false;  // core/train/tensor_agreement.hpp
  double layers_per_stage = 1;
  int zero_stage = 0;                                    // 0: unset
  int num_weight_buffers = 0, num_gradient_buffers = 0;  // 0: one a stage
};

struct DistributedSettings {
  int64_t world_size = 1, rank = 0, local_world_size = 1;
  int64_t tensor_parallel = 1, pipeline_parallel = 1, sequence_data_parallel = 1;
  int64_t data_parallel = 1, batch_data_parallel = 1;  // derived
  double timeout_s = 60;                               // for another rank to come to the same step
  double heartbeat_timeout_s = 8;                      // for a sign of life of another rank
  bool sequence_tensor_parallel = false, pipeline_first = false;
  std::string training_dtype = "float32", optimization_dtype = "float32";
  // seed is what was written; the others are derived from it, modulo 2^64.
  uint64_t seed = 1234, initialization_seed = 0, training_seed = 0;

  distributed::World world() const {
    return {.tensor = int(tensor_parallel),
            .pipeline = int(pipeline_parallel),
            .data = int(data_parallel),
            .pipeline_first = pipeline_first,
            .sequence_data = int(sequence_data_parallel),
            .local_world_size = int(local_world_size)};
  }
};

struct Callback {
  std::vector<std::string> script;  // empty: none
  std::vector<std::pair<std::string, std::string>> environment;
};

struct SaveSettings {
  Interval when;
  std::optional<int64_t> keep, keep_every;  // keep nullopt: all
  Callback callback;
};

// A set that is evaluated while training.
struct ValidationSet {
  std::string name;  // "": the one that needs no name, training.validation itself
  Interval when;
  int64_t iterations = 0;  // steps of one evaluation
  std::string key() const { return "training.validation" + (name.empty() ? "" : "." + name); }
  // Of data.datasets.
  std::string dataset() const;
};

// Ours: what follows when a step gives numbers that are no numbers, or a loss out of all bounds.
struct DivergenceSettings {
  enum class Policy { kStop, kSkip, kContinue };
  Policy policy = Policy::kStop;
  int64_t max_skipped = 10;  // in a row: by skip, or by a loss scale that cannot move
  // The main loss above it, or above so many times its recent mean, counts.
  std::optional<double> loss_threshold, loss_factor;
};

struct TrainingSettings {
  int64_t train_iters = 0, test_iters = 0;
  int num_workers = 2;
  int prefetch_factor = 2;  // micro-batches ready ahead, per worker
  // For another rank to end a long operation: a data set, a save, a load. nullopt: no limit.
  std::optional<double> timeout_s = 3600;
  std::vector<ValidationSet> validation;  // those with a number of steps
  Interval logs, shutdown;
  std::optional<double> wall_clock_limit;  // seconds since the program began
  DivergenceSettings divergence;
  SaveSettings checkpoint, exports;
  std::string export_format = "fast_llm";
  bool recompute_activations = false;
};

// Micro-batches of a step and a rank: what a schedule still counts in an int, with room.
constexpr int64_t kMostMicroBatches = 1 << 20;

struct BatchSettings {
  int64_t micro_batch_size = 1;  // samples
  int64_t depth_first_micro_batches = 1, breadth_first_micro_batches = 1;
  int64_t sequential_micro_batches = 1;                          // their product
  int64_t batch_size = 1;                                        // samples over the whole cluster
  int64_t sequence_length = 2048, micro_sequence_length = 2048;  // tokens
  bool cross_document_attention = true;
};

struct DataSettings {
  // data.datasets, resolved; when that is empty, the legacy definition for each phase.
  config::Node datasets = config::Node::map();
  // By phase_name or the name of a set; null: there is none.
  const config::Node& dataset(const std::string& name) const;
  int64_t seed = 784569;
  std::string shuffle = "epoch";  // full, epoch, skip_first_epoch, disabled, legacy
  bool use_loss_masking_spans = false;
  bool truncate_documents = true;
  std::optional<int64_t> maximum_document_length;  // tokens
  std::optional<std::string> tokenizer_path;
  bool legacy_definition = false;  // datasets is empty: data.path and so on define all phases
  double sample_warn_ms = 1000;    // a slower sample warns
  double batch_warn_ms = 1000;     // schedule.data_batch_warn_time_ms
};

struct OptimizerSettings {
  optim::AdamWOptions adamw;
  optim::LearningRate learning_rate;
  optim::ScalerOptions scaler;  // its kind follows from the constant and the training type
};

struct Settings {
  RunSettings run;
  MultiStageSettings multi_stage;
  DistributedSettings distributed;
  TrainingSettings training;
  BatchSettings batch;
  DataSettings data;
  OptimizerSettings optimizer;
  TensorLogSettings tensor_logs;
  ProfilingSettings profiling;
  // Of the block schedule: compute, but never update; log the schedule; time its steps.
  bool skip_step = false, debug_schedule = false, profile_schedule = false;
  std::vector<std::string> notes;  // to log: reduced offsets, values that were replaced

  // Samples that training, testing or a set's evaluations take (docs/compatibility.md); 0: it does
  // not take place. Never overflows: checked when made.
  int64_t samples(Phase phase) const;  // not of kValidation
  int64_t samples(const ValidationSet& set) const;
  // The first evaluation step of a set at that iteration, counted over all its evaluations: where
  // in its data it goes on. Not a matter of which evaluations this run has done.
  static int64_t first_validation_step(const ValidationSet& set, int64_t iteration);
};

// Fills what the plugin left to the core (null, with a computed default) in `root`, as far as it
// goes even when it throws.
// All broken cross-field rules come in one Error(kInvalid), one a line, each with where().
Settings make_settings(config::Node& root, const Environment& environment);

// A launcher and the configuration must tell the same story: refuses what is given and contradicts,
// all in one Error. Before make_settings, whose other problems would follow from that.
void check_launch(const config::Node& root, const Environment& environment);

// Refuses what is valid but not done yet by this version, all in one Error. Apart from make_settings
// so that such a configuration can still be checked, completed, planned for and printed.
void check_supported(const Settings& settings, const config::Node& root);

// Lines for the plan that is printed at start and by --validate: "checkpoints: ...".
std::vector<std::string> plan_lines(const Settings& settings);

}  // namespace fastllm::train
