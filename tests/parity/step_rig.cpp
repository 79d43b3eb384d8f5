#include "tests/parity/step_rig.hpp"

#include <algorithm>
#include <random>

#include "core/model/schedule.hpp"
#include "core/train/executor/initialize.hpp"

namespace fastllm::testing {
namespace {

const Overrides kShape{"vocab_size=53",
                       "max_position_embeddings=32",
                       "transformer.num_layers=2",
                       "transformer.hidden_size=16",
                       "transformer.num_attention_heads=4",
                       "transformer.head_groups=2",
                       "transformer.init_method_std=0.3"};

train::StepInput input(const std::vector<data::Batch>& batches, int64_t step) {
  train::StepInput input;
  input.step = step;
  for (const auto& batch : batches) input.add(batch);
  return input;
}

}  // namespace

StepRig::StepRig(const Overrides& overrides, const StepOptions& options)
    : model(make_gpt(kShape, overrides)),
      layout(model->description(), {}, {}),
      store(layout, 0, options.store),
      executor(*model, store, {.recompute = options.recompute, .seed = 21}) {
  train::initialize(store, *model, options.seed);
}

std::map<std::string, std::span<float>> StepRig::pieces(const std::string& state) {
  std::map<std::string, std::span<float>> result;
  for (const auto& stage : layout.stages()) {
    for (size_t g = 0; g < stage.groups.size(); ++g) {
      if (!layout.state_has(state, stage.groups[g])) continue;
      float* const begin =
          store.flat_data(state) + layout.shard_begin(0, state, stage.index, int(g));
      for (const auto& piece : stage.groups[g].pieces) {
        result[layout.description().parameters[size_t(piece.parameter)].name] =
            std::span(begin + piece.begin, size_t(piece.end - piece.begin));
      }
    }
  }
  return result;
}

std::map<std::string, std::vector<float>> StepRig::copies(const std::string& state) {
  std::map<std::string, std::vector<float>> result;
  for (const auto& [name, values] : pieces(state))
    result[name].assign(values.begin(), values.end());
  return result;
}

train::StepOutput StepRig::train(const std::vector<data::Batch>& batches, int64_t step,
                                 int breadth_first) {
  const int depth_first = int(batches.size()) / breadth_first;
  return executor.train(input(batches, step), model::make_schedule(train::schedule_options(
                                                  store, depth_first, breadth_first, true)));
}

train::StepOutput StepRig::evaluate(const std::vector<data::Batch>& batches) {
  return executor.evaluate(input(batches, 1), model::make_schedule(train::schedule_options(
                                                  store, int(batches.size()), 1, false)));
}

data::Batch batch_of(int64_t first, int64_t count, const std::vector<int64_t>& documents) {
  data::Batch batch;
  batch.samples = count;
  batch.length = kSequence;
  batch.further_labels.resize(2);
  batch.cu_seqlens.push_back(0);
  const auto token = [&](int64_t sample, int64_t position) {
    return int64_t(std::mt19937(uint32_t(sample * 1000 + position))() % kVocabulary);
  };
  for (int64_t sample = first; sample < first + count; ++sample) {
    for (int64_t i = 0; i < kSequence; ++i) {
      const auto label = [&](int64_t distance) {
        const int64_t at = i + distance;
        return at == 7 || at == kSequence - sample ? data::kIgnoredLabel : token(sample, at);
      };
      batch.tokens.push_back(token(sample, i));
      batch.labels.push_back(label(1));
      batch.further_labels[0].labels.push_back(label(2));
      batch.further_labels[1].labels.push_back(label(3));
    }
    for (size_t d = 0; d < documents.size(); ++d) {
      batch.documents.insert(batch.documents.end(), size_t(documents[d]), int64_t(d));
      for (int64_t i = 0; i < documents[d]; ++i) batch.positions.push_back(i);
      batch.cu_seqlens.push_back(int32_t(batch.cu_seqlens.back() + documents[d]));
    }
  }
  const auto valid = [](const std::vector<int64_t>& labels) {
    return std::ranges::count_if(labels, [](int64_t l) { return l != data::kIgnoredLabel; });
  };
  batch.valid_labels = valid(batch.labels);
  for (auto& further : batch.further_labels) further.valid = valid(further.labels);
  return batch;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (float v : values) sum += double(v) * v;
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  const double size = norm(b);
  return norm(difference) / (size > 0 ? size : 1);
}

}  // namespace fastllm::testing
