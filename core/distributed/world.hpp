// Sizes of the mesh of ranks, and the place of a rank in it. Arithmetic alone.
#pragma once

namespace fastllm::distributed {

struct World {
  int tensor = 1, pipeline = 1, data = 1;
  bool pipeline_first = false;  // neighbouring ranks are pipeline neighbours instead of data ones
  int sequence_data = 1;        // of the data ranks, those that share one sample; divides data
  int local_world_size = 1;     // ranks on one computer

  int size() const { return tensor * pipeline * data; }
  int batch_data() const { return data / sequence_data; }
  int nodes() const { return size() / local_world_size; }

  int tensor_rank(int rank) const { return rank % tensor; }
  int data_rank(int rank) const {
    return pipeline_first ? rank / tensor / pipeline : rank / tensor % data;
  }
  int pipeline_rank(int rank) const {
    return pipeline_first ? rank / tensor % pipeline : rank / tensor / data;
  }
  int sequence_data_rank(int rank) const { return data_rank(rank) % sequence_data; }
  int batch_data_rank(int rank) const { return data_rank(rank) / sequence_data; }
  int local_rank(int rank) const { return rank % local_world_size; }

  int rank_at(int tensor_rank, int data_rank, int pipeline_rank) const {
    const int block =
        pipeline_first ? data_rank * pipeline + pipeline_rank : pipeline_rank * data + data_rank;
    return block * tensor + tensor_rank;
  }
};

}  // namespace fastllm::distributed
