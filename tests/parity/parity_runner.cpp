// One training step of a plugin's model through the host's own parts, for comparison with other
// systems.
//
//   parity_runner PLUGIN FOLDER
//
// FOLDER/job.json: {"base_model": {..}, "samples": B, "sequence": S, "micro_batch": samples in one,
// "recompute": bool, "predictions": labels a position has, 1 if missing; and where other than
// float32, true and 1: "training_dtype", "full_precision_gradients", "loss_scale", which stays in
// the gradients}
// FOLDER/{tokens,labels,labels_2 ..}.i64, FOLDER/weights/NAME.f32: raw little-endian, row-major.
// Writes FOLDER/losses.json (means over valid labels), logits.f32 (head by head), gradients/NAME.f32
// of trainable parameters, frozen.txt. NAME of a weight that is missing, or of another size, is an
// error that names it.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/config/resolve.hpp"
#include "core/model/schedule.hpp"
#include "core/plugin/registry.hpp"
#include "core/shard/elements.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/executor.hpp"

namespace fastllm {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<T> read_array(const fs::path& path, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  const auto bytes = values.size() * sizeof(T);
  std::ifstream file(path, std::ios::binary);
  if (!file || fs::file_size(path) != bytes) {
    throw Error(Status::kInvalid, "expected " + std::to_string(bytes) + " bytes in " +
                                      path.string() + ", found " +
                                      (file ? std::to_string(fs::file_size(path)) : "no file"));
  }
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  return values;
}

template <class T>
void write_array(const fs::path& path, const T* values, int64_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values),
             static_cast<std::streamsize>(sizeof(T)) * count);
  if (!file) throw Error(Status::kUnavailable, "cannot write " + path.string());
}

std::vector<data::Batch> make_batches(const fs::path& folder, const nlohmann::json& job) {
  const int64_t samples = job["samples"], sequence = job["sequence"], size = job["micro_batch"];
  const auto tokens = read_array<int64_t>(folder / "tokens.i64", samples * sequence);
  const auto labels = read_array<int64_t>(folder / "labels.i64", samples * sequence);
  std::vector<std::vector<int64_t>> further;
  for (int k = 2; k <= job.value("predictions", 1); ++k)
    further.push_back(
        read_array<int64_t>(folder / ("labels_" + std::to_string(k) + ".i64"), samples * sequence));
  const auto count_valid = [](const std::vector<int64_t>& values) {
    return std::ranges::count_if(values, [](int64_t l) { return l != data::kIgnoredLabel; });
  };
  const auto lengths = job.value("documents", std::vector<int64_t>{sequence});
  std::vector<data::Batch> batches;
  for (int64_t begin = 0; begin < samples; begin += size) {
    data::Batch& batch = batches.emplace_back();
    batch.samples = std::min(size, samples - begin);
    batch.length = sequence;
    const auto from = begin * sequence, to = from + batch.samples * sequence;
    batch.tokens.assign(tokens.begin() + from, tokens.begin() + to);
    batch.labels.assign(labels.begin() + from, labels.begin() + to);
    batch.cu_seqlens.push_back(0);
    for (int64_t sample = 0; sample < batch.samples; ++sample) {
      for (size_t document = 0; document < lengths.size(); ++document) {
        batch.documents.insert(batch.documents.end(), size_t(lengths[document]), int64_t(document));
        for (int64_t i = 0; i < lengths[document]; ++i) batch.positions.push_back(i);
        batch.cu_seqlens.push_back(int32_t(batch.cu_seqlens.back() + lengths[document]));
      }
    }
    batch.valid_labels = count_valid(batch.labels);
    for (const auto& values : further) {
      auto& own = batch.further_labels.emplace_back();
      own.labels.assign(values.begin() + from, values.begin() + to);
      own.valid = count_valid(own.labels);
    }
  }
  return batches;
}

// Where each parameter lies in the flat state of the only rank.
template <class Visit>
void for_each_piece(const shard::Layout& layout, const std::string& state, Visit&& visit) {
  for (size_t stage = 0; stage < layout.stages().size(); ++stage) {
    const auto& groups = layout.stages()[stage].groups;
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!layout.state_has(state, groups[group])) continue;
      const int64_t begin = layout.shard_begin(0, state, int(stage), int(group));
      for (const auto& piece : groups[group].pieces) {
        visit(layout.description().parameters[size_t(piece.parameter)].name, begin + piece.begin,
              piece.end - piece.begin);
      }
    }
  }
}

// The logits of each head, by its layer's number; micro-batches one after the other.
class Logits : public train::Observer {
 public:
  explicit Logits(const model::Description& description) : description_(description) {}
  Wants wants(const Output& what) const override {
    const auto& layer = description_.layers[size_t(what.layer)];
    const bool logits = layer.outputs[size_t(what.output)].name == "logits";
    return logits && !what.gradient ? Wants::kAlways : Wants::kNothing;
  }
  void see(const Seen& seen) override {
    const DLTensor& tensor = seen.tensor;
    const int64_t count =
        std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
    std::vector<float>& values = by_layer[seen.what.layer];
    values.resize(values.size() + size_t(count));
    shard::copy(values.data() + values.size() - count, kFloat32,
                static_cast<const char*>(tensor.data) + tensor.byte_offset, tensor.dtype, count);
  }

  std::map<int, std::vector<float>> by_layer;

 private:
  const model::Description& description_;
};

void run(const std::string& plugin_path, const fs::path& folder) {
  std::ifstream job_file(folder / "job.json");
  const auto job = nlohmann::json::parse(job_file);
  plugin::Registry registry({.paths = {}, .allow_insecure = true});
  registry.load(plugin_path);
  plugin::ModelFactory& factory = registry.model("gpt");

  config::Schema schema;
  schema.add("base_model", factory.fields());
  config::Node user =
      config::parse_yaml(nlohmann::json{{"base_model", job["base_model"]}}.dump(), "job.json");
  config::Node resolved = config::resolve(schema, user).root;
  auto model = factory.create(*resolved.find("base_model"));

  const shard::Layout layout(model->description(), {}, {});
  shard::StoreOptions options;
  const auto training = compute_dtype(job.value("training_dtype", "float32"));
  if (!training) throw Error(Status::kInvalid, "job.json: training_dtype is no type to train in");
  options.training = *training;
  options.full_precision_gradients = job.value("full_precision_gradients", true);
  shard::Store store(layout, 0, options);
  for_each_piece(layout, "weights", [&](const std::string& name, int64_t begin, int64_t count) {
    const auto values = read_array<float>(folder / "weights" / (name + ".f32"), count);
    std::ranges::copy(values, store.flat_data("weights") + begin);
  });
  store.invalidate();

  train::Executor executor(*model, store, {.recompute = job["recompute"], .seed = 1});
  Logits logits(model->description());
  const auto batches = make_batches(folder, job);
  train::StepInput input;
  for (const auto& batch : batches) input.add(batch);
  input.loss_scale = job.value("loss_scale", 1.0);
  const auto schedule =
      model::make_schedule(train::schedule_options(store, int(batches.size()), 1, true));
  const auto output = executor.train(input, schedule, &logits);

  std::ofstream(folder / "losses.json") << nlohmann::json(output.losses).dump() << '\n';
  std::vector<float> all_logits;
  for (const auto& [layer, values] : logits.by_layer)
    all_logits.insert(all_logits.end(), values.begin(), values.end());
  write_array(folder / "logits.f32", all_logits.data(), int64_t(all_logits.size()));
  fs::create_directories(folder / "gradients");
  for_each_piece(layout, "grads", [&](const std::string& name, int64_t begin, int64_t count) {
    write_array(folder / "gradients" / (name + ".f32"), store.flat_data("grads") + begin, count);
  });
  std::ofstream frozen(folder / "frozen.txt");
  for (const auto& parameter : model->description().parameters) {
    if (parameter.frozen()) frozen << parameter.name << '\n';
  }
}

}  // namespace
}  // namespace fastllm

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: parity_runner PLUGIN FOLDER\n");
    return 2;
  }
  try {
    fastllm::run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
