// Checks that metadata, host layout and rank files agree before the first element is handed out.
// Scattered elements go through one window, long rows straight into the target.
#include "reader.hpp"

#include <cstring>

#include "text.hpp"

namespace fastllm::distributed {
namespace {

constexpr size_t kOpenFiles = 64;
constexpr int64_t kWindowElements = 1 << 14;
constexpr const char* kLegacyTensor = "state_shard";

std::string shard_tensor(const std::string& state) { return state + "_shard"; }

}  // namespace

DistributedReader::DistributedReader(const std::string& path, sdk::Config metadata)
    : path_(path), metadata_(metadata), header_(read_metadata(path, metadata)) {
  check_ranks_present();
  const bool legacy = file(0).find(kLegacyTensor) != nullptr;
  age_ = header_.later_names ? 2 : legacy ? 0 : 1;
  for (const std::string& state : header_.shards) flat(0, state);
}

std::string DistributedReader::rank_path(int rank) const {
  return cat(path_, "/rank_", rank, ".safetensors");
}

void DistributedReader::check_ranks_present() const {
  std::string missing;
  int count = 0;
  for (int rank = 0; rank < header_.ranks; ++rank) {
    if (file_exists(rank_path(rank))) continue;
    if (++count <= 8) missing += cat(count > 1 ? ", " : "", "rank_", rank, ".safetensors");
  }
  if (count > 8) missing += cat(" and ", count - 8, " more");
  if (count == 0) return;
  sdk::fail(FASTLLM_DATA_LOSS,
            cat("expected the files of ", header_.ranks, " ranks in ", path_, ", found none of ",
                missing, "; copy the whole checkpoint again"));
}

const SafetensorsReader& DistributedReader::file(int rank) {
  if (rank < 0 || rank >= header_.ranks) {
    sdk::fail(FASTLLM_INVALID, cat("expected a rank from 0 to ", header_.ranks - 1, " of ", path_,
                                   ", asked for ", rank));
  }
  if (files_.size() >= kOpenFiles && !files_.contains(rank)) files_.clear();
  auto& slot = files_[rank];
  if (!slot) slot = std::make_unique<SafetensorsReader>(rank_path(rank));
  return *slot;
}

DistributedReader::Flat DistributedReader::flat(int rank, const std::string& state) {
  auto row = std::find(header_.shards.begin(), header_.shards.end(), state);
  if (row == header_.shards.end()) {
    sdk::fail(FASTLLM_NOT_FOUND, cat("expected state ", state, " in ", path_,
                                     ", found only those its metadata.yaml lists"));
  }
  const SafetensorsReader& from = file(rank);
  const std::string name = age_ == 0 ? kLegacyTensor : shard_tensor(state);
  const TensorEntry* tensor = from.find(name);
  if (!tensor) {
    sdk::fail(FASTLLM_DATA_LOSS, cat("expected tensor ", name, " in ", from.path(),
                                     " as metadata.yaml's `shards` says, found none"));
  }
  if (age_ != 0) {
    if (tensor->shape.size() != 1) {
      sdk::fail(FASTLLM_DATA_LOSS, cat("expected ", name, " in ", from.path(),
                                       " to have 1 dimension, found ", tensor->shape.size()));
    }
    return {&from, tensor, 0, tensor->elements()};
  }
  if (tensor->shape.size() != 2 || tensor->shape[0] != int64_t(header_.shards.size())) {
    sdk::fail(FASTLLM_DATA_LOSS,
              cat("expected ", name, " in ", from.path(), " to have a row for each of ",
                  header_.shards.size(), " states, found another shape"));
  }
  return {&from, tensor, tensor->shape[1] * (row - header_.shards.begin()), tensor->shape[1]};
}

const fastllm_world* DistributedReader::world() {
  if (world_) return world_->get_world();
  try {
    world_ = std::make_unique<sdk::DescribedWorld>(metadata_, age_);
    if (age_ == 0) {  // the rules of age 1 tell trainable and frozen apart
      sdk::DescribedWorld apart(metadata_, 1);
      frozen_ = frozen_parameters(apart.get_world(), apart.ranks());
    }
  } catch (const sdk::HostFailure&) {
    world_.reset();
    if (age_ != 2) throw;
    sdk::fail(
        FASTLLM_UNSUPPORTED,
        cat("expected a checkpoint of release 0.0 to 0.2 in ", path_, ", found ", header_.version,
            " with the parameter names of that release, for which no converter is loaded; export "
            "it to a "
            "Hugging Face format with the release that wrote it and load that"));
  }
  return world_->get_world();
}

const StateMap& DistributedReader::map(const std::string& state) {
  auto found = maps_.find(state);
  if (found != maps_.end()) return found->second;
  const fastllm_world* described = world();
  StateMap built = map_state(described, 0, header_.ranks, state, frozen_);
  // One type for all ranks: targets are sized by rank 0's.
  const DtypeName* const type = flat(0, state).tensor->dtype;
  for (const auto& [rank, size] : built.sizes) {
    const Flat here = flat(rank, state);
    if (here.tensor->dtype != type) {
      sdk::fail(FASTLLM_DATA_LOSS,
                cat("expected ", state, " in ", here.file->path(), " to be ", type->name,
                    " as in rank_0.safetensors, found ", here.tensor->dtype->name,
                    "; the files are of different checkpoints: copy the whole checkpoint again"));
    }
    if (here.count == size) continue;
    sdk::fail(
        FASTLLM_DATA_LOSS,
        cat("expected ", grouped(uint64_t(size)), " elements of ", state, " in ", here.file->path(),
            " as the configuration in metadata.yaml says, found ", grouped(uint64_t(here.count))));
  }
  return maps_.emplace(state, std::move(built)).first->second;
}

void DistributedReader::list(const sdk::Sink& sink) {
  for (const std::string& state : header_.shards) {
    const StateMap& states = map(state);
    const DLDataType dtype = flat(0, state).tensor->dtype->type;
    for (const std::string& name : states.names) {
      sink.tensor(state.c_str(),
                  {.name = name, .shape = states.parameters.at(name).shape, .dtype = dtype});
    }
  }
}

void DistributedReader::read_flat(int rank, const std::string& state, int64_t first, int64_t count,
                                  const DtypeName* type, char* to) {
  const Flat from = flat(rank, state);
  // map() has seen to both, but a file that was closed meanwhile is opened anew.
  if (from.tensor->dtype != type || first > from.count - count) {
    sdk::fail(FASTLLM_DATA_LOSS,
              cat("expected ", state, " in ", from.file->path(), " to be ", type->name,
                  " with at least ", first + count, " elements, found ", from.tensor->dtype->name,
                  " with ", from.count, "; the file was changed while it was read: try again"));
  }
  const auto bytes = int64_t(from.tensor->element_bytes());
  if (count >= kWindowElements / 4)
    return from.file->read(*from.tensor, from.first + first, count, to);
  const bool inside = window_.rank == rank && window_.state == state && first >= window_.first &&
                      first + count <= window_.first + window_.count;
  if (!inside) {
    window_ = {rank, state, first, std::min(kWindowElements, from.count - first), {}};
    window_.bytes.resize(size_t(window_.count * bytes));
    from.file->read(*from.tensor, from.first + first, window_.count, window_.bytes.data());
  }
  std::memcpy(to, window_.bytes.data() + (first - window_.first) * bytes, size_t(count * bytes));
}

void DistributedReader::read(const std::string& state, const std::string& name,
                             const fastllm_box* box, const DLTensor& into) {
  const StateMap& states = map(state);
  auto found = states.parameters.find(name);
  if (found == states.parameters.end()) {
    sdk::fail(FASTLLM_NOT_FOUND,
              cat("expected ", state, " of parameter ", name, " in ", path_, ", found none"));
  }
  const StoredParameter& parameter = found->second;
  const DtypeName* const type = flat(0, state).tensor->dtype;
  const int64_t wanted = check_box(box, parameter.elements);
  if (find_dtype(into.dtype) != type || sdk::element_count(into) != wanted) {
    sdk::fail(FASTLLM_INVALID, cat("expected room for ", wanted, " elements of ", type->name,
                                   " of ", name, ", found another"));
  }
  char* target = sdk::host_bytes(into);
  const int64_t bytes = type->type.bits / 8;
  for_each_row(box, parameter.elements,
               [&](int64_t global, int64_t count, int64_t stride, int64_t position) {
                 // Elements that are not side by side come one at a time, out of the window.
                 const int64_t step = stride == 1 ? count : 1;
                 for (int64_t i = 0; i < count; i += step) {
                   const int64_t got = for_each_part(
                       parameter, global + i * stride, step,
                       [&](const Segment& segment, int64_t skip, int64_t offset, int64_t n) {
                         read_flat(segment.rank, state, segment.flat + skip, n, type,
                                   target + (position + i + offset) * bytes);
                       });
                   if (got != step) {
                     sdk::fail(FASTLLM_DATA_LOSS,
                               cat("expected all elements of ", state, " of ", name, " in ", path_,
                                   ", found ", got, " of ", step, " from ", global, " on"));
                   }
                 }
               });
}

void DistributedReader::read_shard(int rank, const std::string& state, const DLTensor& into) {
  const Flat from = flat(rank, state);
  if (find_dtype(into.dtype) != from.tensor->dtype || sdk::element_count(into) != from.count) {
    sdk::fail(FASTLLM_DATA_LOSS,
              cat("expected ", grouped(uint64_t(sdk::element_count(into))), " elements of ", state,
                  " in ", from.file->path(), ", found ", grouped(uint64_t(from.count)), " of ",
                  from.tensor->dtype->name));
  }
  char* target = sdk::host_bytes(into);
  const auto bytes = int64_t(from.tensor->element_bytes());
  const int64_t chunk = int64_t(kChunkBytes) / bytes;
  for (int64_t done = 0; done < from.count; done += chunk) {
    sdk::throw_if_cancelled();
    sdk::host().progress("reading checkpoint", uint64_t(done), uint64_t(from.count));
    from.file->read(*from.tensor, from.first + done, std::min(chunk, from.count - done),
                    target + done * bytes);
  }
}

}  // namespace fastllm::distributed
