#include "core/distributed/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"

namespace fastllm::distributed {
namespace {

class Reader {
 public:
  explicit Reader(const LaunchEnvironment::Getter& get) : get_(get) {}

  std::string text(const char* name) const {
    const char* value = get_(name);
    return value ? value : "";
  }
  // Unset or empty: nullopt. No number of at least `minimum`: a problem.
  std::optional<int64_t> integer(const char* name, int64_t minimum) {
    const std::string written = text(name);
    if (written.empty()) return std::nullopt;
    int64_t value = 0;
    auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
    if (error == std::errc{} && end == written.data() + written.size() && value >= minimum)
      return value;
    problem(name, fmt::format("expected an integer of at least {}, found \"{}\"; unset it, or "
                              "start with a launcher that sets it",
                              minimum, std::string_view(written).substr(0, 60)));
    return std::nullopt;
  }
  void problem(const std::string& name, const std::string& sentence) {
    problems_ +=
        fmt::format("{}environment: {}: {}", problems_.empty() ? "" : "\n", name, sentence);
  }
  bool good() const { return problems_.empty(); }
  void throw_if_any() const {
    if (!problems_.empty()) throw Error(Status::kInvalid, problems_);
  }

 private:
  const LaunchEnvironment::Getter& get_;
  std::string problems_;
};

// "node[03-05,9],other" -> "node03": the computer of rank 0.
std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", bracket);
  const size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return "";
  const size_t rest = list.find(',', close);  // what follows the bracket belongs to every name
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, rest == std::string::npos ? rest : rest - close - 1);
}

// srun sets the variables of a step. A batch script sees those of its job, but it is one process.
void read_slurm(Reader& read, LaunchEnvironment& result) {
  result.world_size_name =
      read.text("SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  result.rank_name = "SLURM_PROCID";
  result.local_rank_name = "SLURM_LOCALID";
  result.local_world_size_name = "SLURM_NTASKS_PER_NODE";
  result.world_size = read.integer(result.world_size_name.c_str(), 1);
  result.rank = read.integer("SLURM_PROCID", 0);
  result.local_rank = read.integer("SLURM_LOCALID", 0);
  result.local_world_size = read.integer("SLURM_NTASKS_PER_NODE", 1);
  if (result.master_host.empty()) {
    std::string nodes = read.text("SLURM_STEP_NODELIST");
    if (nodes.empty()) nodes = read.text("SLURM_JOB_NODELIST");
    result.master_host = first_host(nodes);
  }
  // Equal for all tasks of a step, different for those that may share a computer.
  if (result.master_port == 0) {
    const int64_t job = read.integer("SLURM_JOB_ID", 0).value_or(0);
    const int64_t step = read.integer("SLURM_STEP_ID", 0).value_or(0);
    result.master_port = int(20000 + (job * 7 + step) % 10000);
  }
}

void check_place(Reader& read, const std::string& rank_name, std::optional<int64_t> rank,
                 const std::string& size_name, std::optional<int64_t> size) {
  if (!rank || !size || *rank < *size) return;
  read.problem(rank_name, fmt::format("expected less than {} ({}), found {}; start with a launcher "
                                      "that sets both",
                                      size_name, *size, *rank));
}

}  // namespace

LaunchEnvironment LaunchEnvironment::read(const Getter& get) {
  Reader read(get);
  LaunchEnvironment result;
  result.master_host = read.text("MASTER_ADDR");
  result.master_port = int(std::min<int64_t>(read.integer("MASTER_PORT", 1).value_or(0), 65536));
  if (result.master_port > 65535)
    read.problem("MASTER_PORT", "expected at most 65535, found more; give a free port");
  const bool slurm = read.text("WORLD_SIZE").empty() && read.text("RANK").empty() &&
                     !read.text("SLURM_PROCID").empty() && !read.text("SLURM_STEP_ID").empty();
  if (slurm) {
    read_slurm(read, result);
  } else {
    result.world_size = read.integer("WORLD_SIZE", 1);
    result.rank = read.integer("RANK", 0);
    result.local_world_size = read.integer("LOCAL_WORLD_SIZE", 1);
    result.local_rank = read.integer("LOCAL_RANK", 0);
    if (auto socket = read.integer(kListeningVariable, 0)) result.listening_socket = int(*socket);
    result.launcher_serves = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (result.launcher_serves)
      result.prefix =
          read.text("TORCHELASTIC_RUN_ID") + "/" + read.text("TORCHELASTIC_RESTART_COUNT");
  }
  const bool several = result.world_size.value_or(1) > 1;
  if (read.good() && several && !result.rank) {
    read.problem(result.rank_name,
                 fmt::format("expected the number of this process, since {} is {}, found nothing; "
                             "start with a launcher that sets both, or unset {}",
                             result.world_size_name, *result.world_size, result.world_size_name));
  }
  if (read.good()) {
    check_place(read, result.rank_name, result.rank, result.world_size_name, result.world_size);
    check_place(read, result.local_rank_name, result.local_rank, result.local_world_size_name,
                result.local_world_size);
  }
  read.throw_if_any();
  return result;
}

LaunchEnvironment LaunchEnvironment::from_process() {
  return read([](const char* name) { return std::getenv(name); });
}

}  // namespace fastllm::distributed
