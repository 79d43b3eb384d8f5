// Reads the resolved keys block by block, fills computed defaults in, and checks rules across keys.
#include "core/train/settings/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/config/suggest.hpp"
#include "core/train/settings/batch_sizes.hpp"
#include "core/train/settings/problems.hpp"

namespace fastllm::train {
namespace {

using config::Node;

// An integer of any size modulo 2^64, two's complement.
uint64_t modulo_2_64(const std::string& digits) {
  uint64_t value = 0;
  for (char c : digits)
    if (c != '-') value = value * 10 + uint64_t(c - '0');
  return digits[0] == '-' ? 0 - value : value;
}

// What a text stands for that the schema took from its choices: without an entry the two disagree.
template <class T>
T chosen(const std::map<std::string, T>& values, const std::string& text) {
  const auto found = values.find(text);
  FASTLLM_ASSERT(found != values.end());
  return found->second;
}

class Maker {
 public:
  Maker(Node& root, const Environment& environment)
      : root_(root), environment_(environment), problems_(root) {}

  Settings run() {
    read_run();
    read_multi_stage();
    read_distributed();
    settings_.batch =
        resolve_batch(root_, settings_.distributed.batch_data_parallel,
                      settings_.distributed.pipeline_parallel, problems_, settings_.notes);
    read_training();
    read_data();
    read_optimizer();
    read_tensor_logs();
    read_profiling();
    settings_.debug_schedule = get<bool>("schedule.debug_schedule");
    settings_.profile_schedule = get<bool>("schedule.profile_schedule");
    if (settings_.profile_schedule && !settings_.run.experiment_dir)
      needs_folder("schedule.profile_schedule");
    settings_.skip_step = get<bool>("schedule.skip_step");
    if (settings_.skip_step) note("schedule.skip_step", "no update of the weights takes place");
    check_intervals();
    check_formats();
    check_sizes();
    problems_.throw_if_any();
    return std::move(settings_);
  }

 private:
  template <class T>
  T get(const std::string& path) const {
    return root_.get<T>(path);
  }
  template <class T>
  std::optional<T> optional(const std::string& path) const {
    return root_.get_optional<T>(path);
  }
  // A computed default goes into the tree.
  void fill(const std::string& path, Node value) { *root_.find(path) = std::move(value); }
  int64_t get_or_fill(const std::string& path, int64_t computed) {
    if (auto value = optional<int64_t>(path)) return *value;
    fill(path, Node::integer(computed));
    return computed;
  }
  bool given(const std::string& path) const {
    const Node* node = root_.find(path);
    return node && node->explicitly_set;
  }
  void note(const std::string& path, const std::string& text) {
    settings_.notes.push_back(config::where(root_, path) + ": " + text);
  }

  void read_run() {
    RunSettings& run = settings_.run;
    run.experiment_dir = optional<std::string>("run.experiment_dir");
    run.structured_logs = get<bool>("run.structured_logs");
    run.log_timestamps = get<bool>("run.log_timestamps");
    run.threads = optional<int64_t>("run.threads");
    if (get<bool>("run.tensor_logs.save") && !run.experiment_dir)
      needs_folder("run.tensor_logs.save");
  }

  void read_tensor_logs() {
    TensorLogSettings& logs = settings_.tensor_logs;
    logs.save = get<bool>("run.tensor_logs.save");
    logs.show = get<bool>("run.tensor_logs.show");
    logs.max_elements = get<int64_t>("run.tensor_logs.max_elements");
    const std::string at = "model.multi_stage.debug_";
    logs.global = get<bool>(at + "global_tensors");
    logs.activation_memory = get<bool>(at + "activation_memory");
    logs.levels.layer_outputs = get<int64_t>(at + "layer_outputs");
    logs.levels.layer_gradients = get<int64_t>(at + "layer_gradients");
    logs.levels.param_init = get<int64_t>(at + "param_init");
    logs.levels.param_gradients = get<int64_t>(at + "param_gradients");
    logs.levels.all_param_gradients = get<int64_t>(at + "all_param_gradients");
    logs.levels.param_update = get<int64_t>(at + "param_update");
  }

  void read_profiling() {
    ProfilingSettings& p = settings_.profiling;
    const std::string at = "profiling.";
    p.cpu = get<bool>(at + "cpu");
    p.skip = get<int64_t>(at + "skip");
    p.wait = get<int64_t>(at + "wait");
    p.warmup = get<int64_t>(at + "warmup");
    p.cycles = get<int64_t>(at + "cycles");
    p.averages = get<bool>(at + "averages");
    p.trace = get<bool>(at + "trace");
    p.chrome = get<bool>(at + "export");
    p.table_width = int(get<int64_t>(at + "table_width"));
    p.ranks = read_set(at + "ranks");
    p.log = get<bool>(at + "log");
    if (!p.cpu || settings_.run.experiment_dir) return;
    if (p.chrome) needs_folder(at + "export");
    if ((p.averages || p.trace) && !p.log)
      needs_folder(p.averages ? at + "averages" : at + "trace");
  }

  // Integers in their order, each once.
  std::vector<int64_t> read_set(const std::string& path) {
    const auto written = root_.get_list<int64_t>(path);
    const std::set<int64_t> unique(written.begin(), written.end());
    std::vector<int64_t> values(unique.begin(), unique.end());
    if (values == written) return values;
    Node list = Node::list();
    list.explicitly_set = true;
    for (int64_t value : values) list.append(Node::integer(value));
    fill(path, std::move(list));
    return values;
  }

  void needs_folder(const std::string& path) {
    problems_.add(
        path,
        "expected run.experiment_dir to be set too, found null; write run.experiment_dir: FOLDER, "
        "or leave this out");
  }

  void read_multi_stage() {
    MultiStageSettings& stages = settings_.multi_stage;
    const std::string at = "model.multi_stage.";
    stages.full_precision_gradients = get<bool>(at + "full_precision_gradients");
    stages.layers_per_stage = get<double>(at + "layers_per_stage");
    stages.zero_stage = int(optional<int64_t>(at + "zero_stage").value_or(0));
    if (stages.zero_stage >= 2) fill(at + "num_grad_buffers", Node::integer(2));
    if (stages.zero_stage >= 3) fill(at + "num_weight_buffers", Node::integer(2));
    stages.num_weight_buffers = int(optional<int64_t>(at + "num_weight_buffers").value_or(0));
    stages.num_gradient_buffers = int(optional<int64_t>(at + "num_grad_buffers").value_or(0));
  }

  void read_distributed() {
    DistributedSettings& ranks = settings_.distributed;
    const std::string at = "model.distributed.";
    ranks.world_size = get_or_fill(at + "world_size", environment_.world_size.value_or(1));
    ranks.rank = get_or_fill(at + "rank", environment_.rank.value_or(0));
    ranks.local_world_size =
        get_or_fill(at + "local_world_size", environment_.local_world_size.value_or(1));
    ranks.tensor_parallel = get<int64_t>(at + "tensor_parallel");
    ranks.pipeline_parallel = get<int64_t>(at + "pipeline_parallel");
    ranks.sequence_data_parallel = get<int64_t>(at + "sequence_data_parallel");
    ranks.sequence_tensor_parallel = get<bool>(at + "sequence_tensor_parallel");
    ranks.pipeline_first = get<bool>(at + "pipeline_first");
    ranks.training_dtype = get<std::string>(at + "training_dtype");
    ranks.optimization_dtype = get<std::string>(at + "optimization_dtype");
    if (ranks.sequence_tensor_parallel && ranks.tensor_parallel == 1) {
      note(at + "sequence_tensor_parallel",
           "true is replaced by false, since there is one tensor-parallel rank");
      ranks.sequence_tensor_parallel = false;
      fill(at + "sequence_tensor_parallel", Node::boolean(false));
    }
    check_ranks();
    read_seeds();
  }

  // Bounds of the three sizes are 2^20, so products fit.
  void check_ranks() {
    DistributedSettings& ranks = settings_.distributed;
    const std::string at = "model.distributed.";
    if (ranks.rank >= ranks.world_size) {
      problems_.add(at + "rank",
                    fmt::format("expected less than model.distributed.world_size ({}), found {}",
                                ranks.world_size, ranks.rank));
    }
    int64_t model_parallel = ranks.tensor_parallel * ranks.pipeline_parallel;
    if (ranks.world_size % model_parallel != 0) {
      problems_.add(
          at + "world_size",
          fmt::format(
              "expected a multiple of tensor_parallel times pipeline_parallel = {}, found {}",
              model_parallel, ranks.world_size));
    } else {
      ranks.data_parallel = ranks.world_size / model_parallel;
      if (ranks.data_parallel % ranks.sequence_data_parallel != 0) {
        problems_.add(at + "sequence_data_parallel",
                      fmt::format("expected a divisor of the {} data-parallel ranks, found {}",
                                  ranks.data_parallel, ranks.sequence_data_parallel));
      } else {
        ranks.batch_data_parallel = ranks.data_parallel / ranks.sequence_data_parallel;
      }
    }
    if (ranks.local_world_size % ranks.tensor_parallel != 0) {
      problems_.add(at + "local_world_size",
                    fmt::format("expected a multiple of tensor_parallel ({}), found {}",
                                ranks.tensor_parallel, ranks.local_world_size));
    }
  }

  // One generator here where the reference has one for numbers equal on tensor ranks and one for
  // the others.
  void read_seeds() {
    DistributedSettings& ranks = settings_.distributed;
    const std::string at = "model.distributed.";
    auto shift = [&](const char* name) {
      return modulo_2_64(root_.find(at + name)->scalar_text());
    };
    ranks.seed = uint64_t(get<int64_t>(at + "seed"));
    ranks.initialization_seed =
        ranks.seed + shift("pp_gen_init_seed_shift") + shift("tp_gen_init_seed_shift");
    ranks.training_seed = ranks.seed + shift("pp_gen_seed_shift") + shift("tp_gen_seed_shift") +
                          shift("train_seed_shift");
  }

  Interval read_interval(const std::string& at) {
    Interval result(optional<int64_t>(at + ".interval"), get<int64_t>(at + ".offset"));
    if (root_.has(at + ".seconds")) result.seconds = optional<double>(at + ".seconds");
    int64_t written = get<int64_t>(at + ".offset");
    if (result.offset != written) {
      note(at + ".offset", fmt::format("{} is reduced modulo the interval {} to {}", written,
                                       *result.interval, result.offset));
      fill(at + ".offset", Node::integer(result.offset));
    }
    return result;
  }

  SaveSettings read_save(const std::string& at) {
    SaveSettings save;
    save.when = read_interval(at);
    save.keep = optional<int64_t>(at + ".keep");
    save.keep_every = optional<int64_t>(at + ".keep_every");
    save.callback.script = root_.get_list<std::string>(at + ".callback.script");
    const Node& variables = *root_.find(at + ".callback.environment");
    for (size_t i = 0; i < variables.size(); ++i)
      save.callback.environment.emplace_back(variables.key(i), variables.at(i).as_text());
    if (save.when.enabled() && !settings_.run.experiment_dir)
      needs_folder(at + (save.when.interval ? ".interval" : ".seconds"));
    if (save.keep_every && save.when.seconds && !save.when.interval) {
      problems_.add(at + ".keep_every",
                    fmt::format("expected {0}.interval to be set too, since saves by time have no "
                                "count, found null; write {0}.interval, or leave this out",
                                at));
    }
    return save;
  }

  void read_validation() {
    read_validation_set("");
    const Node& block = *root_.find("training.validation");
    for (size_t i = 0; i < block.size(); ++i)
      if (block.at(i).kind() == Node::Kind::kMap) read_validation_set(block.key(i));
  }

  void read_validation_set(const std::string& name) {
    ValidationSet set{name, {}, 0};
    const std::string at = set.key();
    for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest}) {
      if (name == phase_name(phase))
        problems_.add(at,
                      fmt::format("expected a name of your own, found {}, whose dataset belongs "
                                  "to a phase; give the set and its dataset another name",
                                  name));
    }
    set.when = read_interval(at);
    set.iterations = optional<int64_t>(at + ".iterations").value_or(0);
    if (set.when.enabled() && set.iterations == 0) {
      problems_.add(at + ".iterations",
                    fmt::format("expected a number of steps, since {}.{} is set, found null; write "
                                "for example 10",
                                at, set.when.interval ? "interval" : "seconds"));
    }
    if (set.when.interval && set.when.seconds) {
      problems_.add(at + ".seconds",
                    fmt::format("expected null, since {}.interval is set, found {}: an evaluation "
                                "by iterations goes on in its data, one by time begins again; "
                                "leave one of them out",
                                at, *set.when.seconds));
    }
    if (set.iterations > 0) settings_.training.validation.push_back(set);
  }

  void read_training() {
    TrainingSettings& training = settings_.training;
    training.train_iters = get<int64_t>("training.train_iters");
    training.test_iters = get<int64_t>("training.test_iters");
    training.num_workers = int(get<int64_t>("training.num_workers"));
    training.prefetch_factor = int(optional<int64_t>("training.prefetch_factor").value_or(2));
    training.wall_clock_limit = optional<double>("training.wall_clock_limit");
    read_divergence();
    training.logs = read_interval("training.logs");
    training.checkpoint = read_save("training.checkpoint");
    training.exports = read_save("training.export");
    training.export_format = get<std::string>("training.export.format");
    training.shutdown = read_interval("training.shutdown");
    training.recompute_activations = get<bool>("training.recompute_activations");
    read_validation();
  }

  void read_divergence() {
    DivergenceSettings& divergence = settings_.training.divergence;
    const std::string at = "training.divergence.";
    using Policy = DivergenceSettings::Policy;
    divergence.policy = chosen<Policy>(
        {{"stop", Policy::kStop}, {"skip", Policy::kSkip}, {"continue", Policy::kContinue}},
        get<std::string>(at + "policy"));
    divergence.max_skipped = get<int64_t>(at + "max_skipped");
    divergence.loss_threshold = optional<double>(at + "loss_threshold");
    divergence.loss_factor = optional<double>(at + "loss_factor");
  }

  // "part of": every iteration of `a` must be one of `b`.
  void check_sub_interval(const std::string& a_path, const Interval& a, const std::string& b_path,
                          const Interval& b) {
    if (a.is_sub_interval_of(b)) return;
    if (b.seconds && !b.interval) return;  // what is saved by time is saved at a stop, too
    if (!b.interval) {
      problems_.add(
          a_path + ".interval",
          fmt::format("is not a sub-interval of {}, whose interval is null; write {}.interval: {}",
                      b_path, b_path, *a.interval));
      return;
    }
    int64_t below = *a.interval - *a.interval % *b.interval;
    if (*a.interval % *b.interval != 0) {
      std::string fit = below > 0 ? fmt::format("{} or {}", below, below + *b.interval)
                                  : fmt::format("{}", *b.interval);
      problems_.add(
          a_path + ".interval",
          fmt::format(
              "is not a sub-interval of {}: expected a multiple of {}.interval ({}), found {}; "
              "write {}",
              b_path, b_path, *b.interval, *a.interval, fit));
    }
    int64_t rest = b.offset % *b.interval;
    if (a.offset % *b.interval != rest) {
      problems_.add(
          a_path + ".offset",
          fmt::format(
              "is not a sub-interval of {}: expected an offset that leaves {} when divided by "
              "{}.interval ({}), as {}.offset does, found {}; write {}",
              b_path, rest, b_path, *b.interval, b_path, a.offset, rest));
    }
  }

  void check_intervals() {
    const TrainingSettings& training = settings_.training;
    check_sub_interval("training.shutdown", training.shutdown, "training.checkpoint",
                       training.checkpoint.when);
    check_sub_interval("training.wandb.alert", read_interval("training.wandb.alert"),
                       "training.logs", training.logs);
  }

  // Abilities of the formats that configurations name (docs/compatibility.md).
  static bool holds_optimizer_state(const std::string& format) {
    return format == "distributed" || format == "fast_llm";
  }

  void check_formats() {
    const std::string exported = get<std::string>("training.export.format");
    const std::string path = "training.export.optimizer_state";
    if (root_.find(path)->is_null()) fill(path, Node::boolean(holds_optimizer_state(exported)));
    auto check = [&](const std::string& key, const std::string& format_key) {
      std::string format = get<std::string>(format_key);
      if (!get<bool>(key) || holds_optimizer_state(format)) return;
      problems_.add(
          key,
          fmt::format("expected false, since {} is {}, which holds no optimizer state, found true; "
                      "write false, or {}: distributed",
                      format_key, format, format_key));
    };
    check(path, "training.export.format");
    check("pretrained.optimizer_state", "pretrained.format");
  }

  void read_data() {
    DataSettings& data = settings_.data;
    data.seed = get<int64_t>("data.sampling.seed");
    data.shuffle = get<std::string>("data.sampling.shuffle");
    data.use_loss_masking_spans = get<bool>("data.sampling.use_loss_masking_spans");
    data.truncate_documents = get<bool>("data.sampling.truncate_documents");
    data.maximum_document_length = optional<int64_t>("data.sampling.maximum_document_length");
    data.tokenizer_path = optional<std::string>("data.tokenizer.path");
    data.sample_warn_ms = get<double>("data.data_sample_warn_time_ms");
    data.batch_warn_ms = get<double>("schedule.data_batch_warn_time_ms");
    // Its default says the opposite of what happens, so whoever writes it is told.
    if (given("data.sampling.gpu") && get<bool>("data.sampling.gpu"))
      note("data.sampling.gpu", "no effect here: the order is always the CPU's");
    if (root_.find("data.split")->size() > 3) {
      problems_.add("data.split",
                    fmt::format("expected at most 3 numbers (training, validation, test), found {}",
                                root_.find("data.split")->size()));
    }
    Node& datasets = *root_.find("data.datasets");
    if (datasets.size() == 0)
      use_legacy_definition(datasets);
    else
      note_unused_legacy_keys();
    check_dataset_names(datasets);
    data.datasets = datasets;
  }

  // Each is a phase's or a named set's; a misspelt one would otherwise go unseen.
  void check_dataset_names(const Node& datasets) {
    std::vector<std::string> known;
    for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest})
      known.push_back(phase_name(phase));
    const Node& sets = *root_.find("training.validation");
    for (size_t i = 0; i < sets.size(); ++i)
      if (sets.at(i).kind() == Node::Kind::kMap) known.push_back(sets.key(i));
    for (size_t i = 0; i < datasets.size(); ++i) {
      const std::string& name = datasets.key(i);
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string meant = config::nearest(name, known);
      problems_.add(
          config::join_path("data.datasets", name),
          fmt::format("unknown key; {}",
                      meant.empty() ? fmt::format("the dataset of a set of its own needs "
                                                  "training.validation.{} too",
                                                  name)
                                    : fmt::format("did you mean data.datasets.{}?", meant)));
    }
  }

  void use_legacy_definition(Node& datasets) {
    Node legacy = Node::map();
    for (const char* key : {"split", "format", "path", "fim"})
      legacy.set_child(key, *root_.find(std::string("data.") + key));
    legacy.set_child("type", Node::text("legacy"));
    for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest})
      datasets.set_child(phase_name(phase), legacy);
    datasets.explicitly_set = false;
    settings_.data.legacy_definition = true;
    if (root_.find("data.path")->size() > 0)
      note("data.path", "defines the datasets of all phases, since data.datasets is empty");
  }

  void note_unused_legacy_keys() {
    for (const char* key : {"data.split", "data.format", "data.path", "data.fim"})
      if (given(key)) note(key, "no effect, since data.datasets is set");
  }

  void read_optimizer() {
    const std::string at = "optimizer.";
    optim::AdamWOptions& adamw = settings_.optimizer.adamw;
    adamw.weight_decay = get<double>(at + "weight_decay");
    adamw.beta_1 = get<double>(at + "beta_1");
    adamw.beta_2 = get<double>(at + "beta_2");
    adamw.epsilon = get<double>(at + "epsilon");
    adamw.gradient_norm_clipping = get<double>(at + "gradient_norm_clipping");
    adamw.default_learning_rate_scale = get<double>(at + "default_learning_rate_scale");
    for (const char* key : {"beta_1", "beta_2"}) {
      if (get<double>(at + key) == 1)
        problems_.add(at + key,
                      "expected a number below 1, found 1: no gradient would ever count; write for "
                      "example 0.9");
    }
    read_scaler();
    read_learning_rate();
  }

  void read_scaler() {
    const std::string at = "optimizer.gradient_scaler.";
    optim::ScalerOptions& scaler = settings_.optimizer.scaler;
    scaler.initial = get<double>(at + "initial");
    scaler.minimum = get<double>(at + "minimum");
    scaler.window = get<int64_t>(at + "window");
    scaler.hysteresis = get<int64_t>(at + "hysteresis");
    if (settings_.distributed.training_dtype == "float16")
      scaler.kind = optim::ScalerKind::kDynamic;
    if (auto scale = optional<double>(at + "constant"); scale && *scale != 0) {
      scaler.kind = optim::ScalerKind::kConstant;
      scaler.constant = *scale;
    }
    for (const char* key : {"constant", "initial", "minimum"}) {
      const auto scale = optional<double>(at + key);
      if (scale && *scale > 0x1p100)
        problems_.add(at + key,
                      fmt::format("expected at most 2^100, since losses and their gradients are "
                                  "float32, found {}; write for example 65536",
                                  *scale));
    }
  }

  void read_learning_rate() {
    const std::string at = "optimizer.learning_rate.";
    optim::LearningRate& rate = settings_.optimizer.learning_rate;
    rate.base = get<double>(at + "base");
    using optim::DecayStyle;
    rate.decay_style = chosen<DecayStyle>({{"constant", DecayStyle::kConstant},
                                           {"linear", DecayStyle::kLinear},
                                           {"power", DecayStyle::kPower},
                                           {"cosine", DecayStyle::kCosine}},
                                          get<std::string>(at + "decay_style"));
    rate.decay_iterations = optional<int64_t>(at + "decay_iterations");
    rate.decay_power = get<double>(at + "decay_power");
    rate.warmup_iterations = get<int64_t>(at + "warmup_iterations");
    rate.minimum = get<double>(at + "minimum");
    rate.schedule = optional<std::string>(at + "schedule").value_or("");
    try {
      rate.validate();
    } catch (const Error& error) {
      std::string text = error.what();  // "decay_iterations: ..."
      size_t colon = text.find(": ");
      bool has_key = colon != std::string::npos && root_.has(at + text.substr(0, colon));
      if (has_key)
        problems_.add(at + text.substr(0, colon), text.substr(colon + 2));
      else
        problems_.add("optimizer.learning_rate", text);
    }
  }

  // Samples and tokens of every phase, and what each phase needs to take place.
  void check_sizes() {
    const TrainingSettings& training = settings_.training;
    const BatchSettings& batch = settings_.batch;
    auto check = [&](const std::string& path, int64_t steps) {
      int64_t samples = 0, tokens = 0;
      if (__builtin_mul_overflow(steps, batch.batch_size, &samples) ||
          __builtin_mul_overflow(samples, batch.sequence_length, &tokens)) {
        problems_.add(
            path,
            fmt::format("expected a number of tokens that fits in 64 bits, found {} steps of {} "
                        "samples of {} tokens",
                        steps, batch.batch_size, batch.sequence_length));
        return int64_t(0);
      }
      return samples;
    };
    int64_t samples = check("training.train_iters", training.train_iters);
    samples |= check("training.test_iters", training.test_iters);
    for (const ValidationSet& set : training.validation) {
      int64_t evaluations = set.when.count(training.train_iters) + 1, steps = 0;
      if (__builtin_mul_overflow(evaluations, set.iterations, &steps))
        steps = std::numeric_limits<int64_t>::max();
      check(set.key() + ".iterations", steps);
    }
    // Only a model with a table of positions has a longest sequence.
    const Node* positions = root_.find("model.base_model.use_position_embeddings");
    const Node* rows = root_.find("model.base_model.max_position_embeddings");
    if (samples != 0 && positions && positions->kind() == Node::Kind::kBool &&
        positions->as_bool() && rows && rows->kind() == Node::Kind::kInt &&
        rows->as_int() < batch.sequence_length) {
      problems_.add(
          "batch.sequence_length",
          fmt::format(
              "expected at most model.base_model.max_position_embeddings ({}), found {}; shorten "
              "the sequence or enlarge the table",
              rows->as_int(), batch.sequence_length));
    }
  }

  Node& root_;
  const Environment& environment_;
  Problems problems_;
  Settings settings_;
};

}  // namespace

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kTraining:
      return "Training";
    case Phase::kValidation:
      return "Validation";
    case Phase::kTest:
      return "Test";
  }
  return "?";
}

std::string ValidationSet::dataset() const {
  return name.empty() ? phase_name(Phase::kValidation) : name;
}

const Node& DataSettings::dataset(const std::string& name) const {
  static const Node none;
  const Node* found = datasets.child(name);
  return found ? *found : none;
}

int64_t Settings::samples(Phase phase) const {
  switch (phase) {
    case Phase::kTraining:
      return batch.batch_size * training.train_iters;
    case Phase::kTest:
      return batch.batch_size * training.test_iters;
    case Phase::kValidation:
      break;
  }
  return 0;
}

int64_t Settings::samples(const ValidationSet& set) const {
  // Nothing is evaluated when nothing is trained; else a last evaluation comes at the end in any
  // case.
  if (!set.when.enabled() || training.train_iters == 0) return 0;
  if (!set.when.interval) return batch.batch_size * set.iterations;
  int64_t evaluations =
      set.when.count(training.train_iters) + (set.when.enabled(training.train_iters) ? 0 : 1);
  return batch.batch_size * set.iterations * evaluations;
}

int64_t Settings::first_validation_step(const ValidationSet& set, int64_t iteration) {
  return set.iterations * set.when.count(iteration - 1);
}

Settings make_settings(Node& root, const Environment& environment) {
  return Maker(root, environment).run();
}

std::vector<std::string> plan_lines(const Settings& settings) {
  std::vector<std::string> lines;
  const TrainingSettings& training = settings.training;
  if (training.train_iters == 0) return lines;
  const SaveSettings& save = training.checkpoint;
  if (!save.when.enabled()) {
    lines.push_back("checkpoints: none - all progress is lost if the run stops");
  } else {
    std::string kept = save.keep ? fmt::format("the last {} are kept", *save.keep) : "all are kept";
    if (save.keep_every) kept += fmt::format(", and each {}th for good", *save.keep_every);
    std::string when;
    if (save.when.interval) {
      when = fmt::format("every {} iterations{}", *save.when.interval,
                         save.when.offset ? fmt::format(" from {}", save.when.offset) : "");
    }
    if (save.when.seconds)
      when += fmt::format("{}every {} s", when.empty() ? "" : ", ", *save.when.seconds);
    lines.push_back(fmt::format("checkpoints: {} and at the end, {}", when, kept));
  }
  return lines;
}

}  // namespace fastllm::train
