// What the executor knows of a model before any data: numbers instead of names, who reads what, and
// where gradients flow. Pure; made once from a valid description.
#pragma once

#include <string>
#include <vector>

#include "core/model/description.hpp"

namespace fastllm::train {

// Entries of data::Batch, in the order of the executor's tensors.
enum BatchEntry { kTokens, kLabels, kPositions, kDocuments, kCuSeqlens, kBatchEntries };
const char* batch_entry_name(int entry);

struct Value {  // one output of one layer
  int layer = 0, output = 0;
  const model::Port* port = nullptr;
  std::string name;            // "layer.output"
  int readers = 0;             // inputs that are wired to it
  bool gradient = false;       // a gradient arrives for it
  bool asked = true;           // false: optional and without a reader
  int loss = -1, metric = -1;  // numbers of its name among the reported ones
};

struct Input {
  int value = -1;         // -1: from the batch
  int entry = 0;          // BatchEntry
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
  bool sum = false;  // PORT_SUM
  int layers = 0;    // that have it
};

struct Wiring {
  std::vector<WiredLayer> layers;
  std::vector<Value> values;
  std::vector<Reported> losses, metrics;
};

// Throws Error(kUnsupported) for a batch entry or a type that this host cannot deliver.
Wiring make_wiring(const model::Description& description);

}  // namespace fastllm::train
