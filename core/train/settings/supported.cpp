// What is valid but not done yet by this version, told before anything starts. Each key leaves this
// list when its work lands.
#include <fmt/format.h>

#include "core/base/tensor.hpp"
#include "core/train/datasets/dataset_checks.hpp"
#include "core/train/settings/problems.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {
namespace {

using config::Node;

std::string not_supported(const std::string& what, const std::string& instead) {
  return fmt::format("{} is not supported yet by this version; {}", what, instead);
}

class Checker {
 public:
  Checker(const Settings& settings, const Node& root)
      : settings_(settings), root_(root), problems_(root) {}

  void run() {
    check_types();
    check_saves();
    check_step();
    check_datasets();
    problems_.throw_if_any();
  }

 private:
  // instead: what to write.
  void refuse(const std::string& path, const std::string& what, const std::string& instead) {
    problems_.add(path, not_supported(what, instead));
  }
  bool is_true(const std::string& path) const { return root_.get<bool>(path); }

  void check_types() {
    const std::string at = "model.distributed.";
    const std::string& training = settings_.distributed.training_dtype;
    if (!compute_dtype(training)) {
      problems_.add(at + "training_dtype",
                    fmt::format("expected float32, bfloat16 or float16, found {}; write for "
                                "example training_dtype: bfloat16",
                                training));
    }
    // Ours for good: in 16 bits most updates would be rounded away.
    const std::string& optimization = settings_.distributed.optimization_dtype;
    if (optimization != "float32") {
      problems_.add(at + "optimization_dtype",
                    fmt::format("expected float32, in which this program keeps weights and "
                                "optimizer state, found {}; write optimization_dtype: float32 or "
                                "leave the key out",
                                optimization));
    }
  }

  void check_saves() {
    if (root_.get_optional<std::string>("pretrained.path")) {
      refuse("pretrained.path", "starting from a checkpoint of elsewhere",
             "leave the key out; a run resumes from its own checkpoints without it");
    }
    if (settings_.training.exports.when.enabled())
      refuse("training.export.interval", "export",
             "leave the key out, and use training.checkpoint");
    const std::string script = ".callback.script";
    if (!settings_.training.checkpoint.callback.script.empty())
      refuse("training.checkpoint" + script, "a script after each save", "leave the key out");
    if (!settings_.training.exports.callback.script.empty())
      refuse("training.export" + script, "a script after each save", "leave the key out");
  }

  void check_step() {
    const BatchSettings& batch = settings_.batch;
    if (batch.micro_sequence_length != batch.sequence_length) {
      refuse("batch.micro_sequence_length", "computing a sample in pieces",
             fmt::format("write {} or leave the key out", batch.sequence_length));
    }
  }

  void check_datasets() {
    check_dataset_of(phase_name(Phase::kTraining), settings_.samples(Phase::kTraining));
    for (const ValidationSet& set : settings_.training.validation)
      check_dataset_of(set.dataset(), settings_.samples(set));
    check_dataset_of(phase_name(Phase::kTest), settings_.samples(Phase::kTest));
  }

  // name: in data.datasets; samples: taken from it.
  void check_dataset_of(const std::string& name, int64_t samples) {
    if (samples == 0) return;
    std::string path = "data.datasets." + name;
    const Node& definition = settings_.data.dataset(name);
    bool named = root_.find("data.datasets")->explicitly_set;
    bool legacy_content =
        root_.find("data.path")->size() > 0 || root_.find("data.format")->explicitly_set;
    if (definition.is_null() || (!named && !legacy_content)) {
      problems_.add(
          path,
          fmt::format("expected a dataset, since this phase takes {} samples, found none; write "
                      "for example {{type: memmap, path: PREFIX}}",
                      samples));
    } else {
      check_dataset(definition, settings_.data.legacy_definition ? "data" : path,
                    dataset_rules(name),
                    [&](const Node&, const std::string& key, const std::string& sentence) {
                      problems_.add(key, sentence);
                    });
    }
  }

  DatasetRules dataset_rules(const std::string& name) const {
    DatasetRules rules;
    rules.shuffle = settings_.data.shuffle;
    rules.use_loss_masking_spans = settings_.data.use_loss_masking_spans;
    rules.truncate_documents = settings_.data.truncate_documents;
    rules.tokenizer_path = settings_.data.tokenizer_path.value_or("");
    rules.vocab_size = root_.get_optional<int64_t>("model.base_model.vocab_size").value_or(0);
    rules.split_part = split_part(name);
    return rules;
  }

  const Settings& settings_;
  const Node& root_;
  Problems problems_;
};

}  // namespace

void check_supported(const Settings& settings, const Node& root) { Checker(settings, root).run(); }

void check_launch(const Node& root, const Environment& environment) {
  Problems problems(root);
  auto agree = [&](const char* name, const std::string& variable, std::optional<int64_t> told) {
    const std::string path = std::string("model.distributed.") + name;
    const auto value = root.get_optional<int64_t>(path);
    if (told && value && *told != *value)
      problems.add(path,
                   fmt::format("expected {}, as the variable {} says, found {}; leave the key "
                               "out",
                               *told, variable, *value));
  };
  agree("world_size", environment.world_size_name, environment.world_size);
  agree("rank", environment.rank_name, environment.rank);
  agree("local_world_size", environment.local_world_size_name, environment.local_world_size);
  problems.throw_if_any();
}

}  // namespace fastllm::train
