#include <fmt/format.h>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

const std::string kAt = "model.distributed.";

// An integer of any size modulo 2^64, two's complement.
uint64_t modulo_2_64(const std::string& digits) {
  uint64_t value = 0;
  for (char c : digits)
    if (c != '-') value = value * 10 + uint64_t(c - '0');
  return digits[0] == '-' ? 0 - value : value;
}

// How many data-parallel ranks the others leave. Bounds of the three sizes are 2^20, so products
// fit. False: they do not divide the ranks.
bool divide_ranks(Reader& reader, DistributedSettings& ranks) {
  const int64_t model_parallel = ranks.tensor_parallel * ranks.pipeline_parallel;
  if (ranks.world_size % model_parallel != 0) {
    reader.problems.add(
        kAt + "world_size",
        fmt::format("expected a multiple of tensor_parallel times pipeline_parallel = {}, found {}",
                    model_parallel, ranks.world_size));
    return false;
  }
  ranks.data_parallel = ranks.world_size / model_parallel;
  if (ranks.data_parallel % ranks.sequence_data_parallel != 0) {
    reader.problems.add(kAt + "sequence_data_parallel",
                        fmt::format("expected a divisor of the {} data-parallel ranks, found {}",
                                    ranks.data_parallel, ranks.sequence_data_parallel));
    return false;
  }
  ranks.batch_data_parallel = ranks.data_parallel / ranks.sequence_data_parallel;
  return true;
}

void check_ranks(Reader& reader, DistributedSettings& ranks) {
  if (ranks.rank >= ranks.world_size) {
    reader.problems.add(
        kAt + "rank", fmt::format("expected less than model.distributed.world_size ({}), found {}",
                                  ranks.world_size, ranks.rank));
  }
  if (!divide_ranks(reader, ranks)) return;
  if (ranks.local_world_size > ranks.world_size) {
    reader.problems.add(kAt + "local_world_size",
                        fmt::format("expected at most model.distributed.world_size ({}), found {}",
                                    ranks.world_size, ranks.local_world_size));
  } else if (ranks.local_world_size % ranks.tensor_parallel != 0) {
    reader.problems.add(kAt + "local_world_size",
                        fmt::format("expected a multiple of tensor_parallel ({}), found {}",
                                    ranks.tensor_parallel, ranks.local_world_size));
  }
}

// One generator here where the reference has one for numbers equal on tensor ranks and one for the
// others.
void read_seeds(Reader& reader, DistributedSettings& ranks) {
  auto shift = [&](const char* name) { return modulo_2_64(reader.node(kAt + name).scalar_text()); };
  ranks.seed = uint64_t(reader.get<int64_t>(kAt + "seed"));
  ranks.initialization_seed =
      ranks.seed + shift("pp_gen_init_seed_shift") + shift("tp_gen_init_seed_shift");
  ranks.training_seed = ranks.seed + shift("pp_gen_seed_shift") + shift("tp_gen_seed_shift") +
                        shift("train_seed_shift");
}

}  // namespace

DistributedSettings read_distributed(Reader& reader, const Environment& environment) {
  DistributedSettings ranks;
  ranks.world_size = reader.get_or_fill(kAt + "world_size", environment.world_size.value_or(1));
  ranks.rank = reader.get_or_fill(kAt + "rank", environment.rank.value_or(0));
  ranks.local_world_size =
      reader.get_or_fill(kAt + "local_world_size", environment.local_world_size.value_or(1));
  reader.read("model.distributed", {{"timeout", ranks.timeout_s},
                                    {"heartbeat_timeout", ranks.heartbeat_timeout_s},
                                    {"tensor_parallel", ranks.tensor_parallel},
                                    {"pipeline_parallel", ranks.pipeline_parallel},
                                    {"sequence_data_parallel", ranks.sequence_data_parallel},
                                    {"sequence_tensor_parallel", ranks.sequence_tensor_parallel},
                                    {"pipeline_first", ranks.pipeline_first},
                                    {"training_dtype", ranks.training_dtype},
                                    {"optimization_dtype", ranks.optimization_dtype}});
  if (ranks.sequence_tensor_parallel && ranks.tensor_parallel == 1) {
    reader.note(kAt + "sequence_tensor_parallel",
                "true is replaced by false, since there is one tensor-parallel rank");
    ranks.sequence_tensor_parallel = false;
    reader.fill(kAt + "sequence_tensor_parallel", config::Node::boolean(false));
  }
  check_ranks(reader, ranks);
  read_seeds(reader, ranks);
  return ranks;
}

}  // namespace fastllm::train
