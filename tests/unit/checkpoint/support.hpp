// What the checkpoint tests share: the real plugin through the registry, a GPT description made in
// C++ from a checkpoint's metadata, a job of any world with its stores, and the values that the
// fixtures were filled with.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/checkpoint/flat_states.hpp"
#include "core/checkpoint/format.hpp"
#include "core/checkpoint/loader.hpp"
#include "core/config/node.hpp"
#include "core/model/description.hpp"
#include "core/shard/store.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/names_in.hpp"

namespace fastllm::test {

using config::Node;

std::filesystem::path fixture(const std::string& name);
nlohmann::json expected_of(const std::string& fixture_name);  // its expected.json
std::vector<std::string> states();                            // weights, exp_avgs, exp_avgs_sq

// The plugin that is tested, loaded once, with the host's tables offered and describe_gpt as
// describer.
checkpoint::Format& distributed();

// The reference's GPT as of E1, from metadata.config.base_model (defaults filled in).
model::Description describe_gpt(const Node& metadata);
// The metadata of a fixture, or a base_model of our own put into one.
Node metadata_of(const std::string& fixture_name);
Node small_metadata(const std::string& base_model_yaml = "",
                    const std::string& distributed_yaml = "");

// One rank's share of a run of any world, and the running job as plugins see it while the object
// lives. A world of one rank has a real store; others have flat states alone.
struct Job {
  // options: of the store, where there is one.
  explicit Job(const Node& metadata, int rank = 0, const shard::StoreOptions& options = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  void run() const;  // makes this the running job again
  checkpoint::FlatStates flat_states(bool optimizer_state = true);
  // Fills every state with numbers that tell parameter, state and position; padding zero.
  void fill(float salt = 0);
  // One parameter of one state put together from this rank's share; elements of other ranks stay
  // NaN.
  std::vector<float> gather(const std::string& state, const std::string& parameter);
  std::vector<float> flat(const std::string& state);
  float* data(const std::string& state);
  DLTensor* tensor(const std::string& state);

  Node metadata;
  model::Description description;
  shard::Layout layout;
  int rank;
  std::unique_ptr<shard::Store> store;  // null: several ranks
  checkpoint::ModelIdentity identity;

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<int64_t> sizes_;
  std::vector<DLTensor> tensors_;
};

// float32(scale * (ordinal + i / 4096)): the fixtures' formula.
float fixture_value(const std::string& state, int ordinal, int64_t i);

void write_file(const std::filesystem::path& path, const std::string& content);
void copy_tree(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fastllm::test
