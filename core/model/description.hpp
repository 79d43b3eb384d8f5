// What the host knows of a model: layers with named inputs and outputs, and parameters. Pushed once
// by the plugin (fastllm_model_api.describe) and equal on every rank. Flag and enumerator values
// are those of <fastllm/model.h>.
#pragma once

#include <fastllm/model.h>

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace fastllm::model {

struct Port {
  std::string name;
  uint32_t flags = 0;          // FASTLLM_PORT_*
  DLDataType dtype{0, 0, 1};   // bits 0: the compute type
  std::vector<int64_t> shape;  // may hold FASTLLM_DIM_*
};

struct Parameter {
  std::string name;    // in full, as in checkpoints: "layers.1.mlp.layer_1.weight"
  uint32_t flags = 0;  // FASTLLM_PARAM_*
  DLDataType dtype{0, 0, 1};
  int init = FASTLLM_INIT_ZEROS;
  std::vector<int64_t> shape;  // global
  std::string shard_group;     // "tensor", "expert" or "": replicated
  int shard_dim = 0;
  int64_t shard_blocks = 1, shard_unit = 1;
  double init_a = 0, init_b = 0;
  double init_min = std::numeric_limits<double>::quiet_NaN(), init_max = init_min;
  double weight_decay = 1;  // multiplies the optimizer's; 0: no decay
  // One per equal chunk of dimension 0; NaN, or none at all: the optimizer's default.
  std::vector<double> lr_scales;
  int first_layer = 0;  // that declared it; another layer that names it is tied to it

  int64_t elements() const;
  bool frozen() const;  // every scale is there and 0
};

struct Layer {
  std::string name;
  uint32_t flags = 0;  // FASTLLM_LAYER_*
  double cost = 1;     // weight in the split into stages
  std::vector<Port> inputs, outputs;
  // Indices into Description::parameters, in order of declaration, tied ones included.
  std::vector<int> parameters;
};

struct Description {
  std::string type;  // "gpt"
  std::vector<Layer> layers;
  std::vector<Parameter> parameters;  // each once, in order of first declaration

  // Gives `layer` a parameter. A name that is there already ties the layer to it: the first
  // declaration rules, another shape throws. Returns the index into parameters.
  int declare(int layer, Parameter parameter);
  // Checks wiring, names, shapes, tied shapes; throws Error(kInternal) that names layer and port,
  // as a plugin's fault.
  void validate() const;
  // One text that is equal exactly when two descriptions are; hashed and compared across ranks and
  // checkpoints.
  std::string fingerprint() const;

 private:
  // Index into parameters by name, of those that declare() has seen: without it, a model of many
  // layers would be compared name by name.
  std::unordered_map<std::string, int> by_name_;
};

// Where an input comes from: the latest earlier output of its name.
struct Wire {
  int layer = -1, output = -1;  // -1: an entry of the batch
  bool from_batch() const { return layer < 0; }
};
// By layer, by input. Throws like validate when an input has no source.
std::vector<std::vector<Wire>> wire(const Description& description);

}  // namespace fastllm::model
