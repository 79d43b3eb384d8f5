#include <fmt/format.h>

#include <algorithm>

#include "core/config/suggest.hpp"
#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

using config::Node;

// Each is a phase's or a named set's; a misspelt one would otherwise go unseen.
void check_dataset_names(Reader& reader, const Node& datasets) {
  std::vector<std::string> known;
  for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest})
    known.push_back(phase_name(phase));
  const Node& sets = reader.node("training.validation");
  for (size_t i = 0; i < sets.size(); ++i)
    if (sets.at(i).kind() == Node::Kind::kMap) known.push_back(sets.key(i));
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string& name = datasets.key(i);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = config::nearest(name, known);
    reader.problems.add(
        config::join_path("data.datasets", name),
        fmt::format(
            "unknown key; {}",
            meant.empty()
                ? fmt::format("the dataset of a set of its own needs training.validation.{} too",
                              name)
                : fmt::format("did you mean data.datasets.{}?", meant)));
  }
}

// The same for each phase; its part of the split differs (dataset_checks.hpp).
void use_legacy_definition(Reader& reader, Node& datasets) {
  Node legacy = Node::map();
  for (const char* key : {"split", "format", "path", "fim"})
    legacy.set_child(key, reader.node(std::string("data.") + key));
  legacy.set_child("type", Node::text("legacy"));
  for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest})
    datasets.set_child(phase_name(phase), legacy);
  datasets.explicitly_set = false;
  if (reader.node("data.path").size() > 0)
    reader.note("data.path", "defines the datasets of all phases, since data.datasets is empty");
}

void note_unused_legacy_keys(Reader& reader) {
  for (const char* key : {"data.split", "data.format", "data.path", "data.fim"})
    if (reader.given(key)) reader.note(key, "no effect, since data.datasets is set");
}

}  // namespace

DataSettings read_data(Reader& reader) {
  DataSettings data;
  reader.read("data", {{"sampling.seed", data.seed},
                       {"sampling.shuffle", data.shuffle},
                       {"sampling.use_loss_masking_spans", data.use_loss_masking_spans},
                       {"sampling.truncate_documents", data.truncate_documents},
                       {"sampling.maximum_document_length", data.maximum_document_length},
                       {"tokenizer.path", data.tokenizer_path},
                       {"data_sample_warn_time_ms", data.sample_warn_ms}});
  reader.read("schedule", {{"data_batch_warn_time_ms", data.batch_warn_ms}});
  // Its default says the opposite of what happens, so whoever writes it is told.
  if (reader.given("data.sampling.gpu") && reader.get<bool>("data.sampling.gpu"))
    reader.note("data.sampling.gpu", "no effect here: the order is always the CPU's");
  if (const size_t parts = reader.node("data.split").size(); parts > 3) {
    reader.problems.add(
        "data.split",
        fmt::format("expected at most 3 numbers (training, validation, test), found {}", parts));
  }
  Node& datasets = *reader.root().find("data.datasets");
  data.legacy_definition = datasets.size() == 0;
  if (data.legacy_definition)
    use_legacy_definition(reader, datasets);
  else
    note_unused_legacy_keys(reader);
  check_dataset_names(reader, datasets);
  data.datasets = datasets;
  return data;
}

}  // namespace fastllm::train
