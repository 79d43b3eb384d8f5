#include "core/train/tensor_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/base/log.hpp"
#include "core/base/tensor.hpp"
#include "core/base/tensor_values.hpp"
#include "core/base/text.hpp"
#include "core/train/parameter_views.hpp"

namespace fastllm::train {
namespace {

using config::Node;

// 2^(level - 3), which never exceeds what a tensor can hold.
int64_t samples_of(int level) { return int64_t(1) << std::min(level - 3, 40); }

void fill_statistics(TensorRecord& record, const TensorValues& values, int level) {
  const int64_t count = values.size();
  double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    sum += value;
    // What is no number shows in the bounds, too.
    if (!(value >= low)) low = std::isnan(low) ? low : value;
    if (!(value <= high)) high = std::isnan(high) ? high : value;
  }
  const double mean = count > 0 ? sum / double(count) : std::nan("");
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  record.mean = mean;
  record.deviation = count > 1 ? std::sqrt(squares / double(count - 1)) : std::nan("");
  record.stride = values.strides();
  if (level < 3) return;
  record.minimum = count > 0 ? low : std::nan("");
  record.maximum = count > 0 ? high : std::nan("");
  record.step = sample_step(record.shape, samples_of(level));
  const int64_t most = std::min(samples_of(level), count);
  for (int64_t i = 0; i < count && int64_t(record.samples.size()) < most; i += record.step)
    record.samples.push_back(float(values[i]));
}

Node number(double value) { return std::isfinite(value) ? Node::real(value) : Node(); }

Node list_of(const std::vector<int64_t>& values) {
  Node list = Node::list();
  for (int64_t value : values) list.append(Node::integer(value));
  return list;
}

Node to_node(const TensorRecord& r, const std::string& key) {
  Node node = Node::map();
  node.set_child("name", Node::text(r.name));
  node.set_child("shape", list_of(r.shape));
  node.set_child("dtype", Node::text(r.dtype));
  node.set_child("device", Node::text(r.device));
  if (r.mean) {
    node.set_child("mu", number(*r.mean));
    node.set_child("std", number(*r.deviation));
    node.set_child("stride", list_of(r.stride));
  }
  if (r.step > 0) {
    node.set_child("min", number(*r.minimum));
    node.set_child("max", number(*r.maximum));
    node.set_child("step", Node::integer(r.step));
    node.set_child("samples", Node::text(key));  // the tensor's name in this file
  }
  return node;
}

}  // namespace

int64_t sample_step(const std::vector<int64_t>& shape, int64_t samples) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  int64_t step = std::max<int64_t>(count / samples, 1);
  auto divided = [&] {
    return std::any_of(shape.begin(), shape.end(),
                       [&](int64_t dim) { return dim > 1 && step % dim == 0; });
  };
  while (step > 1 && divided()) --step;
  return step;
}

TensorRecord make_record(const std::string& name, const DLTensor& tensor, int level) {
  TensorRecord record;
  record.name = name;
  record.dtype = dtype_text(tensor.dtype);
  record.device = "cpu";
  record.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (level >= 2 && TensorValues::can_read(tensor))
    fill_statistics(record, TensorValues(tensor), level);
  return record;
}

std::string shown(const TensorRecord& r, int64_t max_elements) {
  std::string text = fmt::format("{}: [{}] {}", r.name, fmt::join(r.shape, ", "), r.dtype);
  if (r.mean) text += fmt::format(", mean {:.6g}, std {:.6g}", *r.mean, *r.deviation);
  if (r.step == 0) return text;
  text += fmt::format(", min {:.6g}, max {:.6g}, step {}:", *r.minimum, *r.maximum, r.step);
  const int64_t count = std::min(max_elements, int64_t(r.samples.size()));
  for (int64_t i = 0; i < count; ++i) text += fmt::format(" {:.6g}", r.samples[size_t(i)]);
  if (count < int64_t(r.samples.size())) text += " ...";
  return text;
}

std::string tensor_log_file(const std::vector<TensorRecord>& records) {
  Node header = Node::map(), list = Node::list();
  std::map<std::string, int> times;
  std::string data;
  for (const TensorRecord& r : records) {
    const int time = ++times[r.name];
    const std::string key = time == 1 ? r.name : fmt::format("{}#{}", r.name, time);
    list.append(to_node(r, key));
    if (r.step == 0) continue;
    Node tensor = Node::map();
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(r.samples.data()), r.samples.size() * sizeof(float));
    tensor.set_child("dtype", Node::text("F32"));
    tensor.set_child("shape", list_of({int64_t(r.samples.size())}));
    tensor.set_child("data_offsets", list_of({int64_t(begin), int64_t(data.size())}));
    header.set_child(key, std::move(tensor));
  }
  Node metadata = Node::map();
  metadata.set_child("format", Node::text("tensor_log/1"));
  metadata.set_child("records", Node::text(config::to_json(list)));
  header.set_child("__metadata__", std::move(metadata));
  std::string json = config::to_json(header);
  json.resize((json.size() + 7) / 8 * 8, ' ');  // data on an 8-byte border
  uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  for (size_t i = 0; i < sizeof length; ++i) file[i] = char(length >> (8 * i) & 255);
  return file + json + data;
}

TensorLog::TensorLog(const Settings& settings, const model::Description& description,
                     RunDirectory* run)
    : levels_(settings.tensor_logs.levels),
      show_(settings.tensor_logs.show),
      memory_(settings.tensor_logs.activation_memory),
      max_elements_(settings.tensor_logs.max_elements),
      micro_batches_(settings.batch.sequential_micro_batches),
      scope_(settings.tensor_logs.global && settings.distributed.world_size == 1 ? "Global"
                                                                                 : "Local"),
      run_(settings.tensor_logs.save ? run : nullptr),
      description_(description) {
  if (!show_ && !run_) levels_ = {};
}

void TensorLog::add(const std::string& name, const DLTensor& tensor, int64_t level) {
  if (level <= 0) return;
  TensorRecord record = make_record(scope_ + " " + name, tensor, int(std::min<int64_t>(level, 43)));
  if (show_) log::info(shown(record, max_elements_));
  if (run_) records_.push_back(std::move(record));
}

Observer::Wants TensorLog::wants(const Output& what) const {
  const int64_t level = what.gradient ? levels_.layer_gradients : levels_.layer_outputs;
  if (level > 0) return Wants::kAlways;
  return memory_ && !what.gradient ? Wants::kIfMade : Wants::kNothing;
}

void TensorLog::see(const Seen& seen) {
  const auto& [number, output, gradient] = seen.what;
  const model::Layer& layer = description_.layers[size_t(number)];
  const std::string name = layer.name + "." + layer.outputs[size_t(output)].name;
  std::string what = fmt::format("layer {} {}", number, gradient ? "bw" : "fw");
  if (micro_batches_ > 1) what += fmt::format(", mb={}/{}", seen.micro_batch, micro_batches_);
  if (memory_)
    log::info(fmt::format("{}: {}: activations {}", what, name, mib_text(seen.activation_bytes)));
  add(what + ": " + name, seen.tensor, gradient ? levels_.layer_gradients : levels_.layer_outputs);
}

void TensorLog::parameters(shard::Store& store, const std::string& state, const std::string& what,
                           int64_t level) {
  if (level <= 0) return;
  for (const ParameterView& view : parameter_views(store, state))
    add(what + ": " + description_.parameters[size_t(view.parameter)].name, view.tensor, level);
}

void TensorLog::initial_parameters(shard::Store& store) {
  parameters(store, "weights", "param", levels_.param_init);
}

void TensorLog::gradients(shard::Store& store) {
  parameters(store, "grads", "gradient",
             std::max(levels_.param_gradients, levels_.all_param_gradients));
}

void TensorLog::updated_parameters(shard::Store& store) {
  parameters(store, "weights", "param", levels_.param_update);
}

void TensorLog::save(const std::string& step) {
  if (records_.empty()) return;
  run_->write_artifact(fmt::format("tensor_logs_{}.safetensors", step), tensor_log_file(records_));
  records_.clear();
}

}  // namespace fastllm::train
