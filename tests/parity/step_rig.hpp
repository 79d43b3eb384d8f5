// A small gpt from the library's file with the host's own parts around it: registry, store, executor.
// Trains whole steps on batches of one fixed stream; shows weights and gradients by name.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/executor.hpp"
#include "tests/parity/gpt_model.hpp"

namespace fastllm::testing {

constexpr int64_t kSequence = 24, kVocabulary = 53;

struct StepOptions {
  bool recompute = false;
  uint64_t seed = 9;  // of the initial weights
  shard::StoreOptions store = {};
};

struct StepRig {
  std::unique_ptr<model::Model> model;
  shard::Layout layout;
  shard::Store store;
  train::Executor executor;

  explicit StepRig(const Overrides& overrides, const StepOptions& options = {});

  // The values of each parameter in a flat state.
  std::map<std::string, std::span<float>> pieces(const std::string& state);
  std::map<std::string, std::vector<float>> copies(const std::string& state);

  // A batch is a micro-batch. breadth_first of them go through a stage together.
  train::StepOutput train(const std::vector<data::Batch>& batches, int64_t step = 1,
                          int breadth_first = 1);
  train::StepOutput evaluate(const std::vector<data::Batch>& batches);
};

// Samples first .. first + count of the stream, with three labels a position, some of them masked.
// documents: lengths of those in each sample, kSequence together.
data::Batch batch_of(int64_t first, int64_t count,
                     const std::vector<int64_t>& documents = {kSequence});

double norm(std::span<const float> values);
// Of a from b, relative to b.
double distance(std::span<const float> a, std::span<const float> b);

}  // namespace fastllm::testing
