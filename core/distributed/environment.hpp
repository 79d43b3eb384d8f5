// What a launcher says of this process: the variables of torchrun (and of --nproc, which sets the
// same), or those of a Slurm step. Read once, before anything of the run is there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace fastllm::distributed {

struct LaunchEnvironment {
  // nullopt: nobody said. Names are those of the variables that said so, for messages.
  std::optional<int64_t> world_size = {}, rank = {}, local_world_size = {}, local_rank = {};
  std::string world_size_name = "WORLD_SIZE", rank_name = "RANK",
              local_world_size_name = "LOCAL_WORLD_SIZE", local_rank_name = "LOCAL_RANK";

  // Where rank 0, or the launcher, is to be met; empty, 0: nobody said.
  std::string master_host = {};
  int master_port = 0;
  std::optional<int> listening_socket =
      {};                        // handed down by --nproc to rank 0: the port is its own
  bool launcher_serves = false;  // torchrun: its agent holds the store
  std::string prefix = {};       // of keys in that store: one for each restart

  using Getter = std::function<const char*(const char* name)>;
  // One Error for all that is no number, missing, or contradicts another.
  static LaunchEnvironment read(const Getter& get);
  static LaunchEnvironment from_process();
};

// The variable by which --nproc hands its socket to rank 0.
inline constexpr const char* kListeningVariable = "FASTLLM_LISTENING_SOCKET";

}  // namespace fastllm::distributed
