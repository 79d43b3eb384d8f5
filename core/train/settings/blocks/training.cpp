#include <fmt/format.h>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

using config::Node;

SaveSettings read_save(Reader& reader, const std::string& at) {
  SaveSettings save;
  save.when = reader.read_interval(at);
  reader.read(at, {{"keep", save.keep}, {"keep_every", save.keep_every}});
  save.callback.script = reader.root().get_list<std::string>(at + ".callback.script");
  const Node& variables = reader.node(at + ".callback.environment");
  for (size_t i = 0; i < variables.size(); ++i)
    save.callback.environment.emplace_back(variables.key(i), variables.at(i).as_text());
  if (save.when.enabled())
    reader.require_folder(at + (save.when.interval ? ".interval" : ".seconds"));
  if (save.keep_every && save.when.seconds && !save.when.interval) {
    reader.problems.add(
        at + ".keep_every",
        fmt::format("expected {0}.interval to be set too, since saves by time have no "
                    "count, found null; write {0}.interval, or leave this out",
                    at));
  }
  return save;
}

void check_set_name(Reader& reader, const ValidationSet& set) {
  for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest}) {
    if (set.name == phase_name(phase))
      reader.problems.add(set.key(),
                          fmt::format("expected a name of your own, found {}, whose dataset "
                                      "belongs to a phase; give the set and its dataset another "
                                      "name",
                                      set.name));
  }
}

ValidationSet read_validation_set(Reader& reader, const std::string& name) {
  ValidationSet set{name, {}, 0};
  const std::string at = set.key();
  check_set_name(reader, set);
  set.when = reader.read_interval(at);
  set.iterations = reader.optional<int64_t>(at + ".iterations").value_or(0);
  if (set.when.enabled() && set.iterations == 0) {
    reader.problems.add(
        at + ".iterations",
        fmt::format("expected a number of steps, since {}.{} is set, found null; write "
                    "for example 10",
                    at, set.when.interval ? "interval" : "seconds"));
  }
  if (set.when.interval && set.when.seconds) {
    reader.problems.add(
        at + ".seconds",
        fmt::format("expected null, since {}.interval is set, found {}: an evaluation "
                    "by iterations goes on in its data, one by time begins again; "
                    "leave one of them out",
                    at, *set.when.seconds));
  }
  return set;
}

// The set that needs no name, and the named ones.
std::vector<ValidationSet> read_validation(Reader& reader) {
  std::vector<ValidationSet> sets = {read_validation_set(reader, "")};
  const Node& block = reader.node("training.validation");
  for (size_t i = 0; i < block.size(); ++i)
    if (block.at(i).kind() == Node::Kind::kMap)
      sets.push_back(read_validation_set(reader, block.key(i)));
  std::erase_if(sets, [](const ValidationSet& set) { return set.iterations == 0; });
  return sets;
}

DivergenceSettings read_divergence(Reader& reader) {
  DivergenceSettings divergence;
  using Policy = DivergenceSettings::Policy;
  divergence.policy = reader.choice<Policy>(
      "training.divergence.policy",
      {{"stop", Policy::kStop}, {"skip", Policy::kSkip}, {"continue", Policy::kContinue}});
  reader.read("training.divergence", {{"max_skipped", divergence.max_skipped},
                                      {"loss_threshold", divergence.loss_threshold},
                                      {"loss_factor", divergence.loss_factor}});
  return divergence;
}

}  // namespace

TrainingSettings read_training(Reader& reader) {
  TrainingSettings training;
  reader.read("training", {{"train_iters", training.train_iters},
                           {"test_iters", training.test_iters},
                           {"num_workers", training.num_workers},
                           {"wall_clock_limit", training.wall_clock_limit},
                           {"timeout", training.timeout_s},
                           {"export.format", training.export_format},
                           {"recompute_activations", training.recompute_activations}});
  if (auto ahead = reader.optional<int64_t>("training.prefetch_factor"))
    training.prefetch_factor = int(*ahead);
  training.divergence = read_divergence(reader);
  training.logs = reader.read_interval("training.logs");
  training.checkpoint = read_save(reader, "training.checkpoint");
  training.exports = read_save(reader, "training.export");
  training.shutdown = reader.read_interval("training.shutdown");
  training.validation = read_validation(reader);
  return training;
}

}  // namespace fastllm::train
