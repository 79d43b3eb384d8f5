// One load: checks what the checkpoint says of itself, then fills shards, whole or by name. By
// name, NaN marks what is not filled yet, and intervals prove that every element was.
#include "core/checkpoint/loader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/checkpoint/convert.hpp"
#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/manifest.hpp"
#include "core/checkpoint/placement.hpp"
#include "core/checkpoint/tensor_view.hpp"
#include "core/distributed/failure.hpp"
#include "core/shard/elements.hpp"

namespace fastllm::checkpoint {
namespace {

using config::Node;
using Stored = std::map<std::pair<std::string, std::string>, model::Port>;  // (state, parameter)

std::string shortened(const std::vector<std::string>& items, const char* separator = ", ") {
  const size_t shown = std::min<size_t>(items.size(), 4);
  std::string text =
      fmt::format("{}", fmt::join(items.begin(), items.begin() + ptrdiff_t(shown), separator));
  return items.size() > shown ? fmt::format("{} and {} more", text, items.size() - shown) : text;
}

void check_model(const LoadRequest& request, const Node& metadata) {
  const std::string path = request.path.string();
  const std::string type = metadata.get_optional<std::string>("model").value_or("");
  if (type != request.model.type) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected a checkpoint of model {} in {}, found one of {}; load it with that model",
            request.model.type, path, type.empty() ? "none" : type));
  }
  const Node* base_model = metadata.find("config.base_model");
  const std::vector<std::string> differ =
      architecture_differences(request.model, base_model ? *base_model : Node::map());
  if (differ.empty()) return;
  throw Error(
      Status::kInvalid,
      fmt::format(
          "expected the architecture of this run in {}, found another: {}; set these keys of "
          "model.base_model as they are there, or choose another run.experiment_dir",
          path, fmt::join(differ, "; ")));
}

// All states to fill must be in the files.
void check_states(const LoadRequest& request, const Node& metadata) {
  const std::vector<std::string> held = metadata.get_list<std::string>("shards");
  for (const FlatState& state : request.states.states) {
    if (std::find(held.begin(), held.end(), state.name) != held.end()) continue;
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected {} in {}, found only {}; no run can go on from it: move this checkpoint away "
            "to go on from an older one, or start anew in another run.experiment_dir",
            state.name, request.path.string(), fmt::join(held, ", ")));
  }
}

// What the checkpoint's files and this rank have in common, compared line by line.
bool same_layout(const LoadRequest& request, const fastllm_world* world, const std::string& state) {
  const shard::Layout& layout = *request.states.layout;
  const fastllm_stages& stages = *request.stages;
  if (stages.ranks(world) != layout.world().size()) return false;
  LayoutText text;
  fastllm_stage_visitor visitor{};
  visitor.size = sizeof visitor;
  visitor.user = &text;
  visitor.stage = [](void* user, const fastllm_stage* stage) {
    static_cast<LayoutText*>(user)->stage(stage->index);
    return fastllm_status(FASTLLM_OK);
  };
  visitor.group = [](void* user, const fastllm_group* group) {
    static_cast<LayoutText*>(user)->group(group->name, group->shard_elements, group->shard_padding,
                                          group->shard_begin);
    return fastllm_status(FASTLLM_OK);
  };
  visitor.piece = [](void* user, const fastllm_piece* piece) {
    static_cast<LayoutText*>(user)->piece(piece->parameter,
                                          {piece->shape, piece->shape + piece->ndim});
    return fastllm_status(FASTLLM_OK);
  };
  visitor.run = [](void* user, const fastllm_box* box, int64_t flat) {
    static_cast<LayoutText*>(user)->run(*box, flat);
    return fastllm_status(FASTLLM_OK);
  };
  return stages.visit(world, request.states.rank, state.c_str(), &visitor) == FASTLLM_OK &&
         text.text() == layout_text(layout, request.states.rank, state);
}

// body(begin, end, group) for what a rank holds of each group in a state.
template <class Body>
void for_each_group(const FlatStates& states, const std::string& state, Body&& body) {
  const shard::Layout& layout = *states.layout;
  for (const shard::Placed& placed : layout.on_device(states.rank)) {
    const auto& groups = layout.stages()[size_t(placed.stage)].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      const int64_t begin = layout.shard_begin(states.rank, state, placed.stage, g);
      if (begin >= 0) body(begin, begin + groups[size_t(g)].shard_elements, groups[size_t(g)]);
    }
  }
}

// [begin, end) of each group's part in a state that holds no parameter.
std::vector<std::pair<int64_t, int64_t>> paddings(const FlatStates& states,
                                                  const std::string& state) {
  std::vector<std::pair<int64_t, int64_t>> result;
  const shard::World& world = states.layout->world();
  for_each_group(states, state, [&](int64_t, int64_t end, const shard::Group& group) {
    result.emplace_back(end - group.shard_padding(world.data_rank(states.rank), world.data), end);
  });
  return result;
}

constexpr int64_t kChunk = 1 << 20;  // elements on their way from one type to another

// Fills one state by parameter name.
class NamedLoad {
 public:
  NamedLoad(const LoadRequest& request, Reader& reader, const Stored& stored,
            const FlatState& state)
      : request_(request), reader_(reader), stored_(stored), state_(state) {
    if (!same_dtype(state.file_type(), kFloat32)) {
      throw Error(Status::kUnsupported,
                  fmt::format("expected shards in float32 to load by parameter name, found {} bits",
                              int(state.file_type().bits)));
    }
  }

  void run(LoadResult& result) {
    mark_unfilled();
    for_each_piece(request_.states, [&](const shard::Placed& placed, int group, int piece,
                                        const model::Parameter& parameter) {
      if (stop_requested()) throw Error(Status::kCancelled, "stopped while loading a checkpoint");
      const auto runs = runs_of(*request_.states.layout, request_.states.rank, state_.name,
                                placed.stage, group, piece);
      if (!runs.empty()) fill(parameter, runs, result);
    });
    for (const auto& [begin, end] : paddings(request_.states, state_.name))
      fill_zero(begin, end - begin);
    check_coverage();
  }

 private:
  int64_t elements() const {
    return request_.states.layout->state_elements(request_.states.rank, state_.name);
  }

  void mark_unfilled() {
    const std::vector<float> marks(1 << 12, std::numeric_limits<float>::quiet_NaN());
    for_each_group(request_.states, state_.name, [&](int64_t begin, int64_t end, const auto&) {
      for (int64_t at = begin; at < end; at += int64_t(marks.size()))
        shard::copy(state_.at(at), state_.type_at(at), marks.data(), kFloat32,
                    std::min(int64_t(marks.size()), end - at));
    });
  }

  void fill_zero(int64_t begin, int64_t count) {
    if (count > 0) shard::fill_zero(state_.at(begin), state_.type_at(begin), count);
    filled(begin, count);
  }

  // Numbers of a stored type, into the state from `position` on.
  void put(int64_t position, const char* from, DLDataType from_type, int64_t count) {
    const DLDataType type = state_.type_at(position);
    if (is_float32(type))
      return convert_to_float32(from, from_type, count,
                                reinterpret_cast<float*>(state_.at(position)));
    wide_.resize(size_t(std::min(count, kChunk)));
    for (int64_t at = 0; at < count; at += kChunk) {
      const int64_t n = std::min(kChunk, count - at);
      convert_to_float32(from + at * (from_type.bits / 8), from_type, n, wide_.data());
      shard::copy(state_.at(position + at), type, wide_.data(), kFloat32, n);
    }
  }

  void filled(int64_t begin, int64_t count) {
    if (count > 0) intervals_.emplace_back(begin, begin + count);
  }

  void fill(const model::Parameter& parameter, const std::vector<Run>& runs, LoadResult& result) {
    const auto found = stored_.find({state_.name, parameter.name});
    if (found == stored_.end()) {  // frozen when the checkpoint was made: nothing was kept
      for (const Run& run : runs) fill_zero(run.flat, run.count());
      auto& names = result.started_at_zero;
      if (std::find(names.begin(), names.end(), parameter.name) == names.end())
        names.push_back(parameter.name);
      return;
    }
    const model::Port& port = found->second;
    std::vector<char> whole;  // of a format that reads whole tensors only
    if (!runs.empty() && !(request_.format.caps() & FASTLLM_CAN_SLICE)) {
      whole.resize(size_t(parameter.elements() * (port.dtype.bits / 8)));
      TensorView view(whole.data(), port.dtype, parameter.shape);
      reader_.read(state_.name, parameter.name, nullptr, view.get());
    }
    for (const Run& run : runs) {
      if (whole.empty()) {
        read_run(parameter, port.dtype, run);
      } else {
        copy_run(whole.data(), port.dtype, run);
      }
      filled(run.flat, run.count());
    }
  }

  // Straight into the shard, or by way of a small buffer when the stored type is another.
  void read_run(const model::Parameter& parameter, DLDataType dtype, const Run& run) {
    if (is_float32(dtype) && is_float32(state_.type_at(run.flat))) {
      TensorView view(state_.at(run.flat), dtype, run.shape);
      const fastllm_box box = run.box();
      return reader_.read(state_.name, parameter.name, &box, view.get());
    }
    const int64_t length = run.shape.back(), rows = run.count() / length;
    std::vector<char> staging(size_t(std::min(length, kChunk) * (dtype.bits / 8)));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t at = 0; at < length; at += kChunk) {
        const int64_t count = std::min(kChunk, length - at);
        const int64_t shape[] = {count}, strides[] = {1};
        const fastllm_box box{1, run.offset + row * (rows > 1 ? run.strides[0] : 0) + at, shape,
                              strides};
        TensorView view(staging.data(), dtype, {count});
        reader_.read(state_.name, parameter.name, &box, view.get());
        put(run.flat + row * length + at, staging.data(), dtype, count);
      }
    }
  }

  void copy_run(const char* whole, DLDataType dtype, const Run& run) {
    const int64_t length = run.shape.back(), rows = run.count() / length;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = run.offset + row * (rows > 1 ? run.strides[0] : 0);
      put(run.flat + row * length, whole + from * (dtype.bits / 8), dtype, length);
    }
  }

  // Side by side from 0 to the end: each element once, none left out.
  void check_coverage() {
    std::sort(intervals_.begin(), intervals_.end());
    int64_t position = 0;
    for (const auto& [begin, end] : intervals_) {
      FASTLLM_ASSERT(begin == position);
      position = end;
    }
    FASTLLM_ASSERT(position == elements());
  }

  const LoadRequest& request_;
  Reader& reader_;
  const Stored& stored_;
  const FlatState& state_;
  std::vector<std::pair<int64_t, int64_t>> intervals_;
  std::vector<float> wide_;  // on the way to a narrower type
};

int64_t count_nan(const char* data, DLDataType type, int64_t count) {
  const auto count_wide = [](const float* values, int64_t n) {
    return std::count_if(values, values + n, [](float v) { return std::isnan(v); });
  };
  if (is_float32(type)) return count_wide(reinterpret_cast<const float*>(data), count);
  std::vector<float> wide(size_t(std::min(count, kChunk)));
  int64_t bad = 0;
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t n = std::min(kChunk, count - at);
    shard::copy(wide.data(), kFloat32, data + at * (type.bits / 8), type, n);
    bad += count_wide(wide.data(), n);
  }
  return bad;
}

// NaN is what a reader left out, or what a run that had gone wrong saved; neither can be trained
// on.
void check_numbers(const LoadRequest& request, const FlatState& state) {
  if (!same_dtype(state.file_type(), kFloat32)) return;
  for_each_piece(request.states, [&](const shard::Placed& placed, int group, int piece,
                                     const model::Parameter& parameter) {
    int64_t bad = 0;
    for (const Run& run : runs_of(*request.states.layout, request.states.rank, state.name,
                                  placed.stage, group, piece)) {
      bad += count_nan(state.at(run.flat), state.type_at(run.flat), run.count());
    }
    if (bad == 0) return;
    throw Error(
        Status::kDataLoss,
        fmt::format("expected numbers in {} of {} in {}, found {} NaN; move this checkpoint away "
                    "to go on from an older one",
                    state.name, parameter.name, request.path.string(), bad));
  });
}

// Files of the reference may hold anything there.
void clear_padding(const LoadRequest& request, const FlatState& state) {
  for (const auto& [begin, end] : paddings(request.states, state.name))
    if (begin < end) shard::fill_zero(state.at(begin), state.type_at(begin), end - begin);
}

// Names, shapes and types of everything that will be read, before anything is: all problems in one
// sentence.
void check_parameters(const LoadRequest& request, const Stored& stored, LoadResult& result) {
  std::map<std::string, const model::Parameter*> known;
  std::vector<std::string> problems;
  for (const model::Parameter& parameter : request.states.layout->description().parameters) {
    known[parameter.name] = &parameter;
    if (!stored.contains({"weights", parameter.name}))
      problems.push_back(parameter.name + " is missing");
  }
  std::set<std::string> dropped;
  for (const auto& [key, port] : stored) {
    const auto& [state, name] = key;
    const auto found = known.find(name);
    if (found == known.end()) {
      problems.push_back(name + " is no parameter of this model");
    } else if (port.shape != found->second->shape) {
      problems.push_back(fmt::format("{} has shape [{}] there and [{}] here", name,
                                     fmt::join(port.shape, ", "),
                                     fmt::join(found->second->shape, ", ")));
    } else if (!can_convert_to_float32(port.dtype)) {
      problems.push_back(fmt::format(
          "{} is none of float64, float32, float16 and bfloat16 (type code {}, {} bits)", name,
          int(port.dtype.code), int(port.dtype.bits)));
    } else if (state != "weights" && found->second->frozen()) {
      dropped.insert(name);
    }
  }
  if (!problems.empty()) {
    throw Error(Status::kInvalid,
                fmt::format("expected the parameters of this model in {}, found others: {}",
                            request.path.string(), shortened(problems, "; ")));
  }
  if (request.states.states.size() > 1) result.dropped.assign(dropped.begin(), dropped.end());
}

}  // namespace

namespace {

bool is_whole(const std::filesystem::path& path) {
  try {
    return what_it_lacks(path).empty();
  } catch (const Error&) {  // not even a folder
    return false;
  }
}

LoadResult load_all(const LoadRequest& request) {
  if (request.verify_checksums) {
    if (const auto manifest = read_manifest(request.path))
      verify_checksums(request.path, *manifest, request.meet ? request.states.rank : 0,
                       request.meet ? request.states.layout->world().size() : 1);
    else if (request.states.rank == 0)
      log::warning(fmt::format("{} has no {}: its content cannot be verified",
                               request.path.string(), kManifestName));
  }
  if (request.meet)
    request.meet(fmt::format("loading {}: its files are whole", request.path.string()));
  const std::unique_ptr<Reader> reader = request.format.open(request.path);
  LoadResult result;
  result.metadata = reader->metadata();
  check_model(request, result.metadata);
  check_states(request, result.metadata);

  Stored stored;
  for (const StoredTensor& tensor : reader->list())
    stored[{tensor.state, tensor.tensor.name}] = tensor.tensor;
  check_parameters(request, stored, result);

  const bool shards = request.stages && (request.format.caps() & FASTLLM_CAN_SHARDS);
  const fastllm_world* world = shards ? reader->world() : nullptr;
  const auto& states = request.states.states;
  result.whole_shards =
      world && std::all_of(states.begin(), states.end(), [&](const FlatState& state) {
        return state.flat && same_layout(request, world, state.name) &&
               std::all_of(stored.begin(), stored.end(), [&](const auto& entry) {
                 return entry.first.first != state.name ||
                        same_dtype(entry.second.dtype, state.flat->dtype);
               });
      });
  for (const FlatState& state : states) {
    if (result.whole_shards) {
      reader->read_shard(request.states.rank, state.name, state.flat);
      clear_padding(request, state);
    } else {
      NamedLoad(request, *reader, stored, state).run(result);
    }
    check_numbers(request, state);
  }
  if (!result.started_at_zero.empty()) {
    log::info(
        fmt::format("Optimizer state starts at zero for {} parameters without any in the "
                    "checkpoint (frozen then): {}",
                    result.started_at_zero.size(), shortened(result.started_at_zero)));
  }
  if (!result.dropped.empty()) {
    log::info(fmt::format(
        "Optimizer state of {} parameters in the checkpoint is not used (frozen now): {}",
        result.dropped.size(), shortened(result.dropped)));
  }
  // Ranks read for unlike times, and the next collective waits less long than a meeting.
  if (request.meet) request.meet(fmt::format("loading {}: all is read", request.path.string()));
  return result;
}

}  // namespace

LoadResult load(const LoadRequest& request) {
  const bool whole = is_whole(request.path);
  try {
    return load_all(request);
  } catch (const distributed::PeerFailure&) {
    throw;  // not ours
  } catch (const Error& e) {
    if (!whole || is_whole(request.path)) throw;
    throw Error(
        e.status(),
        fmt::format("{}; expected {} to stay while it is loaded, found that it is no longer "
                    "whole, as when a training deletes it that keeps newer ones: start "
                    "again, or load one that training.checkpoint.keep or keep_every keeps",
                    e.what(), request.path.string()));
  }
}

}  // namespace fastllm::checkpoint
