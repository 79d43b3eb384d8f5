// Every key of the core: name, type, default, bounds, help, and what becomes of it in this version.
// What keys mean together is checked in blocks/.
#include "core/train/settings/core_fields.hpp"

#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"
#include "core/train/settings/later_names.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {
namespace {

using namespace config;  // the levels, mostly

constexpr double kMostThreads = 1024;
constexpr double kMostRanks = 1 << 20;

void add_run(Schema& schema) {
  schema.describe("run", "Where a run is kept and what it logs.");
  schema.add(
      "run",
      {boolean("tensor_logs.save", "false", kLogging, "Write tensor logs as artifacts of the run."),
       boolean("tensor_logs.show", "true", kLogging, "Print tensor logs."),
       above(0,
             integer("tensor_logs.max_elements", "8", kLogging, "Samples printed of each tensor.")),
       boolean("structured_logs", "true", kLogging, "Write log files into the run's folder."),
       nullable("nothing is saved",
                text("experiment_dir", "null", kCore, "Folder in which everything is saved.")),
       no_effect(
           boolean("enable_all_loggers", "false", kLogging, "Also log what other libraries say.")),
       boolean("log_timestamps", "true", kLogging,
               "Begin each line of the log with date and time."),
       no_effect(nullable("the folder's name",
                          text("experiment_name", "null", kFeature, "Name of the experiment."))),
       no_effect(
           boolean("torch_dynamo_enable", "true", kExpert, "Allow kernels compiled at run time.")),
       no_effect(boolean("enable_triton_kernels", "true", kExpert, "Allow Triton kernels.")),
       no_effect(boolean("triton_linear_kernels", "false", kPerformance,
                         "Use Triton for matrix products.")),
       nullable("all cores",
                between(1, kMostThreads,
                        integer("threads", "null", kExpert, "Threads that compute.")))});
}

void add_multi_stage(Schema& schema) {
  const std::string at = "model.multi_stage";
  schema.describe(at, "How layers are gathered into stages and what is kept in memory.");
  auto log_level = [&](const std::string& path, const std::string& what) {
    return at_least(0, integer(path, "0", kLogging,
                               "Log level of " + what +
                                   ": 1 names and shapes, 2 also mean and deviation, "
                                   "more: 2^(level - 3) samples."));
  };
  schema.add(
      at, {boolean("full_precision_gradients", "true", kOptional,
                   "Gradient buffers in the optimization type."),
           boolean("store_frozen_weights_in_optimization_precision", "true", kOptional,
                   "Shards of frozen weights in the optimization type; false: in the training "
                   "type, and no second copy where a stage has a weight buffer of its own."),
           log_level("debug_layer_outputs", "layer outputs"),
           log_level("debug_layer_gradients", "layer gradients"),
           log_level("debug_param_init", "initial parameters"),
           log_level("debug_param_gradients", "reduced parameter gradients"),
           log_level("debug_all_param_gradients", "parameter gradients of every layer"),
           log_level("debug_param_update", "updated parameters"),
           boolean("debug_global_tensors", "true", kLogging,
                   "Name logged tensors Global; those of several ranks are Local anyway."),
           boolean("debug_activation_memory", "false", kLogging, "Log memory after each layer."),
           boolean("debug_tensor_parallel", "false", kLogging,
                   "Each step, log a MISMATCH of what tensor ranks must have alike."),
           no_effect(boolean("compile_all", "false", kExpert, "Compile every layer at run time.")),
           above(0, real("layers_per_stage", "1", kPerformance, "Layers of each stage.")),
           refused("more than one is not offered; leave the key out",
                   at_least(1, integer("stages_per_pipeline_stage", "1", kWip,
                                       "Stages of each pipeline rank at a time."))),
           nullable("one a stage", between(1, kMostRanks,
                                           integer("num_weight_buffers", "null", kExpert,
                                                   "Weight buffers that stages share; "
                                                   "zero_stage overrides it."))),
           nullable("one a stage", between(1, kMostRanks,
                                           integer("num_grad_buffers", "null", kExpert,
                                                   "Gradient buffers that stages share; "
                                                   "zero_stage overrides it."))),
           nullable("as the two above",
                    between(1, 3,
                            integer("zero_stage", "null", kPerformance,
                                    "Memory saving: 2 or more makes num_grad_buffers 2, 3 also "
                                    "num_weight_buffers."))),
           no_effect(at_least(0, real("pipeline_delay", "0", kExpert, "Unused.")))});
}

void add_distributed(Schema& schema) {
  const std::string at = "model.distributed";
  schema.describe(at, "Ranks, number types and seeds.");
  auto ranks = [&](const std::string& path, int level, const std::string& help) {
    return between(1, kMostRanks, integer(path, "1", level, help));
  };
  auto from_environment = [&](const std::string& path, double minimum, const std::string& variable,
                              const std::string& fallback, const std::string& help) {
    return nullable("of the variable " + variable + ", else " + fallback,
                    between(minimum, kMostRanks, integer(path, "null", kExpert, help)));
  };
  schema.add(
      at,
      {ranks("tensor_parallel", kPerformance, "Ranks that share each layer."),
       ranks("pipeline_parallel", kPerformance, "Ranks that share the stages."),
       boolean("sequence_tensor_parallel", "false", kPerformance,
               "Divide the sequence too over tensor-parallel ranks; false when there is one."),
       ranks("sequence_data_parallel", kPerformance, "Ranks that share each sample."),
       from_environment("world_size", 1, "WORLD_SIZE", "1", "Number of ranks."),
       from_environment("rank", 0, "RANK", "0", "Number of this rank, from 0."),
       from_environment("local_world_size", 1, "LOCAL_WORLD_SIZE", "1", "Ranks on this computer."),
       boolean("pipeline_first", "false", kExpert,
               "Neighbouring ranks are pipeline neighbours instead of data ones."),
       above(0, real("timeout", "60", kOptional, "Longest wait for other ranks, in seconds.")),
       at_least(1, real("heartbeat_timeout", "8", kExpert,
                        "A rank without a sign of life for so many seconds has failed.")),
       integer("seed", "1234", kOptional, "Seed of all random numbers."),
       dtype("training_dtype", "float32", kCore,
             "Type of weights and hidden states in forward and "
             "backward: float32, bfloat16 or float16."),
       dtype("optimization_dtype", "float32", kExpert,
             "Type of shards and optimizer state: float32.")});
  struct Shift {
    const char *name, *value, *help;
    bool used = true;
  };
  const Shift shifts[] = {
      {"dp_seed_shift", "317767863445754100075399033823", "Added to the seed per data rank.",
       false},
      {"pp_seed_shift", "811026271858507938190098775099", "Added to the seed per pipeline rank.",
       false},
      {"pp_gen_seed_shift", "500460795349110443334056239993",
       "Added to the seed of numbers equal on tensor-parallel ranks."},
      {"pp_gen_init_seed_shift", "631112027069964424381239824623", "The same for initialization."},
      {"tp_seed_shift", "705275193289568515128435800471", "Added to the seed per tensor rank.",
       false},
      {"tp_gen_seed_shift", "278779420836085904093221202933",
       "Added to the seed of numbers that differ on tensor-parallel ranks."},
      {"tp_gen_init_seed_shift", "894750739684993243926471979237", "The same for initialization."},
      {"sample_seed_shift", "751127116949963770353413160199", "Added to the seed per step.", false},
      {"train_seed_shift", "938219878163699459065752841447", "Added to the seed in training."},
      {"valid_seed_shift", "683552447587140661489672773353", "Added to the seed in validation.",
       false},
      {"test_seed_shift", "220111337975202516901860145957", "Added to the seed in tests.", false},
  };
  for (const Shift& shift : shifts) {
    Field field = key(Type::kBigInt, shift.name, shift.value, kOptional, shift.help);
    schema.add(at, shift.used ? field : no_effect(field));
  }
  schema.add(
      at, no_effect(boolean("reproducible_init", "false", kTesting,
                            "Initialize alike on any number of ranks, which is always so here.")));
}

const std::vector<std::string> kFormats = {"distributed", "fast_llm", "auto",    "starcoder2",
                                           "llama",       "qwen2",    "mistral", "mixtral"};

void add_pretrained(Schema& schema) {
  schema.describe("pretrained", "A checkpoint to start from.");
  schema.add(
      "pretrained",
      {choice("format", "fast_llm", kCore, kFormats, "Format of the checkpoint."),
       formerly({"load_weights"}, boolean("model_weights", "true", kFeature,
                                          "Load weights; false: the configuration alone.")),
       formerly({"load_optimizer"},
                boolean("optimizer_state", "false", kFeature,
                        "Load the optimizer's state too; the format must hold it.")),
       nullable("start from nothing", text("path", "null", kCore, "Folder of the checkpoint.")),
       nullable("no limit",
                above(0, real("timeout", "null", kFeature,
                              "Longest wait for other ranks while loading, in seconds."))),
       choice("load_config", "architecture", kCore, {"none", "architecture", "model", "fast_llm"},
              "Which keys the checkpoint decides: none, those of the architecture, the whole "
              "model, or "
              "stages and ranks too.")});
}

// The interval in iterations. at: prefix of the keys, "logs."
std::vector<Field> interval(const std::string& at, const std::string& what,
                            const std::string& every = "null") {
  return {nullable("never", above(0, integer(at + "interval", every, kFeature,
                                             what + " each so many iterations."))),
          at_least(0, integer(at + "offset", "0", kFeature,
                              "Iteration of the first time, reduced modulo the interval."))};
}

// And the one in time (ours). what: "save again".
Field period(const std::string& at, const std::string& what) {
  return nullable("never", above(0, real(at + "seconds", "null", kExpert,
                                         "Also " + what +
                                             " once so many seconds have passed since "
                                             "the last time.")));
}

void add_validation(Schema& schema) {
  const std::string iterations = "Steps of one evaluation.";
  schema.describe("training.validation",
                  "Evaluation on data.datasets.Validation, and, in a block for each, on sets with "
                  "names of your own.");
  auto add = [&](const std::string& at) {
    schema.add("training", interval(at, "Evaluate"));
    schema.add(
        "training",
        nullable("none", above(0, integer(at + "iterations", "null", kFeature, iterations))));
    schema.add("training",
               nullable("never", above(0, real(at + "seconds", "null", kExpert,
                                               "Instead of interval: evaluate once so many seconds "
                                               "have passed since the last time, always on the "
                                               "same first samples."))));
  };
  add("validation.");
  schema.describe("training.validation.*", "A set of its own: its data is data.datasets.NAME.");
  add("validation.*.");
}

void add_saving(Schema& schema, const std::string& at, const std::string& what,
                const std::string& keep) {
  schema.add("training", interval(at, what));
  Field script =
      nullable("none", key(Type::kTextList, at + "callback.script", "null", kFeature,
                           "Program and arguments started after each save, not waited for."));
  script.from_text = FromText::kShellWords;
  schema.add(
      "training",
      {script,
       key(Type::kTextDict, at + "callback.environment", "{}", kFeature,
           "Environment variables added for the script."),
       nullable("keeps all",
                above(0, integer(at + "keep", keep, kFeature, "How many stay on the disk."))),
       nullable("no other", above(0, integer(at + "keep_every", "null", kFeature,
                                             "Each n-th is kept for good and not counted.")))});
}

void add_training(Schema& schema) {
  schema.describe("training", "How long to train, and what happens at which iteration.");
  add_validation(schema);
  schema.describe("training.logs", "The line of metrics.");
  schema.add("training", interval("logs.", "Log metrics", "100"));
  schema.add("training", period("logs.", "log"));
  schema.describe("training.checkpoint", "Saves to resume from.");
  add_saving(schema, "checkpoint.", "Save", "5");
  schema.add("training", period("checkpoint.", "save"));
  schema.describe("training.export", "Saves for others to use.");
  schema.add("training",
             {choice("export.format", "fast_llm", kCore, kFormats, "Format of the export."),
              boolean("export.model_weights", "true", kFeature, "Write the weights."),
              nullable("if the format holds it", boolean("export.optimizer_state", "null", kFeature,
                                                         "Write the optimizer's state.")),
              at_least(1 << 20, integer("export.parameters_per_file", "4294967296", kFeature,
                                        "Most elements in a file.")),
              nullable("as stored", dtype("export.data_type", "null", kFeature,
                                          "Type of the weights in the file."))});
  add_saving(schema, "export.", "Export", "null");
  schema.describe("training.shutdown",
                  "A planned stop, with a checkpoint; part of training.checkpoint's iterations.");
  schema.add("training", interval("shutdown.", "Stop"));
  schema.add("training",
             nullable("no limit",
                      above(0, real("wall_clock_limit", "null", kExpert,
                                    "A planned stop after the first iteration that ends so many "
                                    "seconds or more after the start of the program."))));
  schema.describe("training.divergence",
                  "What follows a loss or gradient that is no number, or a loss out of all bounds. "
                  "Ours.");
  schema.add(
      "training",
      {choice("divergence.policy", "stop", kExpert, {"stop", "skip", "continue"},
              "stop: end the run before the update, with exit code 4; skip: leave the update out; "
              "continue: update even so, and after a value that is no number save nothing any "
              "more."),
       above(0, integer("divergence.max_skipped", "10", kExpert,
                        "With skip: so many updates left out in a row end the run. With stop and "
                        "skip: so many that loss scaling left out in a row, at a scale that is "
                        "constant or at its minimum, count as divergence.")),
       nullable("no limit", real("divergence.loss_threshold", "null", kExpert,
                                 "A language-model loss of a training step above it counts as "
                                 "divergence. Other losses of the model have no bound.")),
       nullable("no limit",
                above(1, real("divergence.loss_factor", "null", kExpert,
                              "A language-model loss above so many times its mean over the last 50 "
                              "good steps counts as divergence, once there are 10 of them.")))});
  schema.describe("training.wandb", "Weights & Biases.");
  for (const Field& field : interval("wandb.alert.", "Post an alert"))
    schema.add("training", no_effect(field));
  schema.add(
      "training",
      {no_effect(nullable("as the alert", boolean("wandb.alert.status_updates", "null", kFeature,
                                                  "Post when the run starts, stops or fails."))),
       no_effect(text("wandb.group_name", "default", kFeature, "Group of the run.")),
       no_effect(text("wandb.project_name", "fast_llm", kFeature, "Project of the run.")),
       nullable(
           "off",
           refused("this program is built without it; leave the key out, the same numbers are in "
                   "the run's metrics.jsonl",
                   text("wandb.entity_name", "null", kFeature, "Account of the run."))),
       at_least(0,
                integer("train_iters", "0", kCore, "Training iterations; 0: set up, then stop.")),
       at_least(0, integer("test_iters", "0", kFeature, "Steps of the test phase at the end.")),
       between(
           0, kMostThreads,
           integer("num_workers", "2", kFeature, "Threads that prepare batches; 0: none ahead.")),
       nullable("2", between(1, 1 << 20,
                             integer("prefetch_factor", "null", kFeature,
                                     "Micro-batches each worker has ready; never fewer in all "
                                     "than two steps take, three steps are then in memory."))),
       nullable("no limit",
                above(0, real("timeout", "3600", kFeature,
                              "Longest wait for long operations of other ranks (data sets, saves, "
                              "loads), in seconds."))),
       boolean("recompute_activations", "false", kExpert,
               "Make a layer's activations again in its backward: less memory, about a third more "
               "time.")});
}

void add_batch(Schema& schema) {
  schema.describe("batch", "Sizes; what is left out follows from the rest.");
  auto computed = [](const std::string& path, const std::string& help) {
    return nullable("computed", above(0, integer(path, "null", kCore, help)));
  };
  auto computed_count = [](const std::string& path, const std::string& help) {
    return nullable("computed", between(1, kMostMicroBatches, integer(path, "null", kCore, help)));
  };
  schema.add(
      "batch",
      {computed("micro_batch_size", "Samples computed at a time."),
       computed_count("depth_first_micro_batches",
                      "Micro-batches that go through all stages one by one."),
       computed_count("breadth_first_micro_batches",
                      "Micro-batches that go through a stage together."),
       computed("sequential_micro_batches", "Product of the two; a given value is replaced."),
       computed("batch_size", "Samples of a step, over all ranks."),
       above(0, integer("sequence_length", "2048", kCore, "Tokens of a sample.")),
       computed("micro_sequence_length",
                "Tokens of a sample computed at a time; divides sequence_length."),
       boolean("cross_document_attention", "true", kFeature,
               "Tokens see earlier documents of their sample; false: only their own document.")});
}

void add_schedule(Schema& schema) {
  schema.describe("schedule", "Order and overlap of the steps of a training step.");
  schema.add(
      "schedule",
      {no_effect(boolean("pipeline_overlap", "true", kTesting,
                         "Send between pipeline ranks while computing.")),
       no_effect(
           boolean("data_overlap", "true", kTesting, "Reduce over data ranks while computing.")),
       above(0, real("data_batch_warn_time_ms", "1000", kFeature,
                     "A wait for a batch beyond this many milliseconds is a warning.")),
       no_effect(boolean("throttle_cpu", "true", kExpert, "Do not run far ahead of the device.")),
       no_effect(
           above(0, integer("throttle_cpu_rate", "1", kExpert, "Steps between two throttles."))),
       no_effect(at_least(
           0, integer("throttle_cpu_delay", "1", kExpert, "Steps the host may be ahead."))),
       boolean("debug_schedule", "false", kDebug, "Log the schedule."),
       no_effect(boolean("debug_send_recv", "false", kDebug, "Log what pipeline ranks send.")),
       boolean("profile_schedule", "false", kDebug, "Time each step of the schedule."),
       refused("no longer supported; leave the key out",
               boolean("estimate_critical_batch", "false", kWip, "No longer supported.")),
       boolean("skip_step", "false", kDebug, "Compute, but do not update the weights.")});
}

void add_data(Schema& schema) {
  schema.describe("data", "Where samples come from.");
  for (Field field : legacy_dataset_fields()) {
    field.help += " Used when datasets is empty.";
    schema.add("data", field);
  }
  schema.describe("data.fim", "Fill-in-the-middle of the legacy definition.");
  schema.describe("data.sampling", "Order of the samples.");
  schema.add(
      "data",
      {integer("sampling.seed", "784569", kFeature, "Seed of the order."),
       no_effect(boolean("sampling.gpu", "true", kFeature, "The order is always the CPU's.")),
       boolean("sampling.use_loss_masking_spans", "false", kFeature,
               "Leave the spans that the files mark out of the loss."),
       choice("sampling.shuffle", "epoch", kFeature,
              {"full", "epoch", "skip_first_epoch", "disabled", "legacy"},
              "What is shuffled: all epochs together, each alone, each but the first, nothing, or "
              "as older "
              "versions did."),
       boolean("sampling.truncate_documents", "true", kExpert,
               "Cut documents where samples end; false: samples hold whole documents and padding, "
               "and documents longer than a sample are left out (a later release's)."),
       nullable("no limit",
                above(0, integer("sampling.maximum_document_length", "null", kExpert,
                                 "Tokens; longer documents are cut in chunks that do not see each "
                                 "other, or left out when documents are not cut (a later "
                                 "release's).")))});
  schema.describe("data.tokenizer", "Needed by fill-in-the-middle alone.");
  schema.add("data",
             {no_effect(choice("tokenizer.format", "TokenizerFromFile", kDeprecated,
                               {"TokenizerFromFile"}, "Unused.")),
              nullable("none", text("tokenizer.path", "null", kCore, "File of the tokenizer."))});
  Nested datasets;
  datasets.path = "datasets";
  datasets.form = Nested::Form::kKeyed;
  datasets.family = kDatasetFamily;
  for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest})
    datasets.keys.push_back(phase_name(phase));
  datasets.free_names = true;
  datasets.help = "Dataset of each phase and of each named set in training.validation.";
  schema.add("data", datasets);
  schema.add("data", {above(0, real("data_sample_warn_time_ms", "1000", kFeature,
                                    "A sample that takes more milliseconds is a warning.")),
                      no_effect(choice("multiprocessing_context", "spawn", kExpert,
                                       {"spawn", "fork"}, "Batches are prepared by threads."))});
}

void add_profiling(Schema& schema) {
  schema.describe("profiling", "Traces of where time goes.");
  Field ranks =
      at_least(0, key(Type::kIntList, "ranks", "[]", kLogging, "Ranks that profile; empty: all."));
  schema.add(
      "profiling",
      {boolean("cpu", "false", kOptional, "Profile the CPU."),
       no_effect(boolean("cuda", "false", kCore, "Profile the GPU.")),
       at_least(0, integer("skip", "1", kFeature, "Iterations before the first cycle.")),
       at_least(0, integer("wait", "0", kFeature, "Iterations before each cycle.")),
       at_least(0, integer("warmup", "1", kFeature, "Iterations of each cycle that are not kept.")),
       above(0, integer("cycles", "1", kFeature, "Iterations of each cycle that are kept.")),
       boolean("averages", "false", kLogging, "Write averages."),
       boolean("trace", "false", kLogging, "Write each event as text."),
       boolean("export", "false", kLogging, "Write each event for a trace viewer."),
       between(40, 10000,
               integer("table_width", "80", kLogging, "Characters of a line of a table.")),
       ranks, boolean("log", "false", kLogging, "Tables go to the log instead of a file.")});
}

void add_optimizer(Schema& schema) {
  schema.describe("optimizer", "AdamW.");
  schema.describe("optimizer.learning_rate", "Learning rate as a function of the update.");
  schema.add(
      "optimizer",
      {real("learning_rate.base", "0.0001", kCore, "Learning rate after warmup."),
       choice("learning_rate.decay_style", "constant", kFeature,
              {"constant", "linear", "power", "cosine"},
              "Shape of the decay from base to minimum."),
       nullable("no decay", integer("learning_rate.decay_iterations", "null", kFeature,
                                    "Update at which decay ends, warmup included.")),
       above(0,
             real("learning_rate.decay_power", "1", kFeature, "Exponent of the decay's progress.")),
       at_least(0, integer("learning_rate.warmup_iterations", "0", kFeature,
                           "Updates of linear growth from 0 to base.")),
       real("learning_rate.minimum", "0", kFeature, "Learning rate at the end of the decay."),
       nullable("the keys above",
                text("learning_rate.schedule", "null", kWip,
                     "Stages type,steps,rate[,end rate[,power]] joined by ';', instead of the "
                     "other keys."))});
  schema.describe("optimizer.gradient_scaler", "Scale of the loss, for float16.");
  schema.add(
      "optimizer",
      {nullable("chosen by the type", at_least(0, real("gradient_scaler.constant", "null", kFeature,
                                                       "Fixed scale; 0 counts as null."))),
       above(0, real("gradient_scaler.initial", "65536", kFeature,
                     "First scale of the dynamic scaler.")),
       above(0, real("gradient_scaler.minimum", "1", kFeature,
                     "Smallest scale of the dynamic scaler.")),
       above(0, integer("gradient_scaler.window", "1000", kFeature,
                        "Successful updates until the scale doubles.")),
       above(0, integer("gradient_scaler.hysteresis", "2", kFeature,
                        "Failed updates until the scale halves.")),
       at_least(0, real("weight_decay", "0.01", kCore,
                        "Share of a weight removed each update, times the rate.")),
       between(0, 1, real("beta_1", "0.9", kFeature, "Memory of the gradient's mean.")),
       between(0, 1, real("beta_2", "0.999", kFeature, "Memory of the gradient's square.")),
       above(0, real("epsilon", "1.0e-08", kFeature, "Added to the root of the square.")),
       above(0, real("gradient_norm_clipping", "1", kFeature,
                     "Longest gradient over all trainable parameters; 1e9 never bites.")),
       at_least(0, real("default_learning_rate_scale", "1", kFeature,
                        "Learning-rate scale of parameters without one of their own."))});
}

}  // namespace

Schema make_core_schema() {
  Schema schema;
  add_dataset_family(schema);
  add_run(schema);
  schema.describe("model", "The model, its memory and its ranks.");
  schema.describe("model.base_model", "The model plugin's keys.");
  add_multi_stage(schema);
  add_distributed(schema);
  add_pretrained(schema);
  add_training(schema);
  add_batch(schema);
  add_schedule(schema);
  add_data(schema);
  add_profiling(schema);
  add_optimizer(schema);
  add_later_names(schema);
  return schema;
}

void add_model_fields(Schema& schema, const std::vector<Field>& fields) {
  schema.add("model.base_model", fields);
}

}  // namespace fastllm::train
