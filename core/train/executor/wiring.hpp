// What the executor knows of a model before any data: numbers instead of names, who reads what, and
// where gradients flow. Pure; made once from a valid description.
#pragma once

#include <string>
#include <vector>

#include "core/model/description.hpp"

namespace fastllm::train {

// Entries of data::Batch, in the order of the executor's tensors: these, then labels_2, labels_3 ..
enum BatchEntry { kTokens, kLabels, kPositions, kDocuments, kCuSeqlens, kFurtherLabels };
std::string batch_entry_name(int entry);

// How many labels a position needs: 1, or the largest k of the entries labels_k that the model
// reads. Throws as make_wiring does.
int predicted_tokens(const model::Description& description);

struct Value {  // one output of one layer
  int layer = 0, output = 0;
  const model::Port* port = nullptr;
  std::string name;            // "layer.output"
  int readers = 0;             // inputs that are wired to it
  bool gradient = false;       // a gradient arrives for it
  bool asked = true;           // false: optional and without a reader (made for an observer alone)
  int loss = -1, metric = -1;  // numbers of its name among the reported ones
};

struct Input {
  int value = -1;         // -1: from the batch
  int entry = 0;          // BatchEntry, or kFurtherLabels + k - 2 for labels_k
  bool gradient = false;  // backward is asked for its gradient
};

struct WiredLayer {
  bool every_stage = false;
  // Its backward runs: it has a trainable parameter or one below it, and a loss above it. Otherwise
  // nothing is kept for it.
  bool backward = false;
  std::vector<Input> inputs;
  int first_value = 0, values = 0;  // its outputs are consecutive
};

struct Reported {  // a loss or metric by name
  std::string name;
  bool sum = false;   // PORT_SUM
  int layers = 0;     // that have it
  int predicted = 1;  // the labels that a sum is over: tokens from their position
};

struct Wiring {
  std::vector<WiredLayer> layers;
  std::vector<Value> values;
  std::vector<Reported> losses, metrics;
  int predicted_tokens = 1;  // labels that a position needs
};

// Throws Error(kUnsupported) for a batch entry or a type that this host cannot deliver, and
// Error(kInvalid) for a loss or metric whose name belongs to another number.
Wiring make_wiring(const model::Description& description);

}  // namespace fastllm::train
