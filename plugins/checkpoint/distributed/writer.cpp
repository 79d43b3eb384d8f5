// One file a rank, written in any order and counted, so that nothing declared is left out.
#include "writer.hpp"

#include "file.hpp"
#include "metadata.hpp"
#include "text.hpp"

namespace fastllm::distributed {
namespace {

bool same(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

int64_t elements_of(const StoredParameter& parameter) {
  int64_t count = 0;
  for (const Segment& segment : parameter.segments) count += segment.count;
  return count;
}

std::map<std::string, int64_t> elements_of(const StateMap& map) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, parameter] : map.parameters) counts[name] = elements_of(parameter);
  return counts;
}

}  // namespace

DistributedWriter::DistributedWriter(const std::string& directory, sdk::Config metadata, int rank)
    : directory_(directory),
      metadata_(metadata),
      rank_(rank),
      file_(cat(directory, "/rank_", rank, ".safetensors")) {
  for (const auto& [key, text] : metadata_entries(metadata)) file_.set_metadata(key, text);
}

void DistributedWriter::declare(const std::string& state, const sdk::Port& port) {
  auto found = states_.find(state);
  if (port.name.empty()) {
    if (found != states_.end() || port.shape.size() != 1) {
      sdk::fail(FASTLLM_INVALID, cat("expected one flat shard of ", state,
                                     " with 1 dimension, declared twice or otherwise"));
    }
    State& added = states_[state];
    added.dtype = port.dtype;
    added.elements = port.shape[0];
    file_.add(state + "_shard", port.dtype, port.shape);
    return;
  }
  if (found == states_.end()) {
    const auto* stages = sdk::get<fastllm_stages>(FASTLLM_STAGES);
    const fastllm_world* running = stages ? stages->running() : nullptr;
    if (!running)
      sdk::fail(FASTLLM_UNSUPPORTED,
                cat("expected a running layout to place ", port.name, " in, found none"));
    found = states_.try_emplace(state).first;
    State& added = found->second;
    added.dtype = port.dtype;
    added.by_name = true;
    added.map = map_rank(running, rank_, state);
    added.elements = added.map.sizes[rank_];
    // What this rank owns it must write; copies of tied stages if it says so.
    added.expected = elements_of(map_state(running, rank_, rank_ + 1, state));
    file_.add(state + "_shard", port.dtype, {added.elements});
  }
  State& into = found->second;
  auto parameter = into.map.parameters.find(port.name);
  // A parameter of another pipeline rank is not ours to write.
  if (!into.by_name || !same(into.dtype, port.dtype) ||
      (parameter != into.map.parameters.end() && parameter->second.shape != port.shape)) {
    sdk::fail(FASTLLM_INVALID,
              cat("expected ", state, " of ", port.name,
                  " with the shape of the running model and one dtype, declared otherwise"));
  }
  if (parameter != into.map.parameters.end())
    into.expected.try_emplace(port.name, elements_of(parameter->second));
}

DistributedWriter::State& DistributedWriter::declared(const std::string& state, DLDataType dtype) {
  auto found = states_.find(state);
  if (found == states_.end() || !same(found->second.dtype, dtype)) {
    sdk::fail(FASTLLM_INVALID,
              cat("expected ", state,
                  " to be declared with the dtype it is written in, found otherwise"));
  }
  return found->second;
}

void DistributedWriter::write(const std::string& state, const std::string& name,
                              const fastllm_box* box, const DLTensor& from) {
  State& into = declared(state, from.dtype);
  auto found = into.map.parameters.find(name);
  if (found == into.map.parameters.end()) return;  // on another rank
  const StoredParameter& parameter = found->second;
  if (sdk::element_count(from) != check_box(box, parameter.elements)) {
    sdk::fail(FASTLLM_INVALID,
              cat("expected as many elements as the box of ", name, " has, found another number"));
  }
  const char* source = sdk::host_bytes(from);
  const int64_t bytes = from.dtype.bits / 8;
  for_each_row(box, parameter.elements,
               [&](int64_t global, int64_t count, int64_t stride, int64_t position) {
                 const int64_t step = stride == 1 ? count : 1;
                 for (int64_t i = 0; i < count; i += step) {
                   for_each_part(
                       parameter, global + i * stride, step,
                       [&](const Segment& segment, int64_t skip, int64_t offset, int64_t n) {
                         file_.write(state + "_shard", segment.flat + skip, n,
                                     source + (position + i + offset) * bytes);
                         into.expected[name] -= n;
                       });
                 }
               });
}

void DistributedWriter::write_shard(const std::string& state, const DLTensor& from) {
  State& into = declared(state, from.dtype);
  if (into.by_name || sdk::element_count(from) != into.elements) {
    sdk::fail(FASTLLM_INVALID, cat("expected ", into.elements, " elements as declared for ", state,
                                   ", found ", sdk::element_count(from)));
  }
  const char* source = sdk::host_bytes(from);
  const int64_t bytes = from.dtype.bits / 8;
  const int64_t chunk = int64_t(kChunkBytes) / bytes;
  for (int64_t done = 0; done < into.elements; done += chunk) {
    sdk::host().progress("writing checkpoint", uint64_t(done), uint64_t(into.elements));
    file_.write(state + "_shard", done, std::min(chunk, into.elements - done),
                source + done * bytes);
  }
  into.written = into.elements;
}

void DistributedWriter::finish(bool keep) {
  if (!keep) return;
  for (const auto& [state, data] : states_) {
    bool complete = data.by_name || data.written == data.elements;
    for (const auto& [name, left] : data.expected) complete = complete && left == 0;
    if (!complete)
      sdk::fail(FASTLLM_INVALID, cat("expected all declared elements of ", state,
                                     " before the end, found some missing"));
  }
  file_.finish();
  if (rank_ == 0) write_text(directory_ + "/metadata.yaml", metadata_text(metadata_));
}

}  // namespace fastllm::distributed
