// The `metadata` block: keys of today written, those of older releases read as well.
#include "core/checkpoint/training_state.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace fastllm::checkpoint {

using config::Node;

Node TrainingState::to_node() const {
  Node node = Node::map();
  node.set("completed_steps", Node::integer(completed_steps));
  node.set("optimizer.current_step", Node::integer(optimizer_step));
  node.set("optimizer.grad_scaler.type", Node::text(scaler.type));
  if (scaler.type != "NoopGradScaler")
    node.set("optimizer.grad_scaler.scale", Node::real(scaler.scale));
  if (scaler.type == "DynamicGradScaler") {
    node.set("optimizer.grad_scaler.growth", Node::integer(scaler.growth));
    node.set("optimizer.grad_scaler.hysteresis", Node::integer(scaler.hysteresis));
  }
  if (metrics.size() > 0) node.set("metrics", metrics);
  return node;
}

TrainingState TrainingState::from_node(const Node& metadata, const std::string& source) {
  TrainingState state;
  auto counter = [&](const char* path) {
    if (!metadata.has(path)) {
      throw Error(
          Status::kDataLoss,
          fmt::format(
              "expected metadata.{} in {}, found none; it holds no training state to go on from: "
              "move it away to go on from an older checkpoint",
              path, source));
    }
    const int64_t value = metadata.get<int64_t>(path);
    if (value < 0)
      throw Error(Status::kDataLoss,
                  fmt::format("expected metadata.{} from 0 in {}, found {}; move it away to go on "
                              "from an older checkpoint",
                              path, source, value));
    return value;
  };
  // An older form, which wins where it is there (later releases write the phase in lower case).
  const char* steps =
      metadata.has("schedules.Training.completed_steps")   ? "schedules.Training.completed_steps"
      : metadata.has("schedules.training.completed_steps") ? "schedules.training.completed_steps"
                                                           : "completed_steps";
  state.completed_steps = counter(steps);
  state.optimizer_step = counter("optimizer.current_step");
  if (state.optimizer_step > state.completed_steps) {
    throw Error(
        Status::kDataLoss,
        fmt::format(
            "expected at most as many optimizer updates as completed steps in {}, found {} and {}; "
            "move it away to go on from an older checkpoint",
            source, state.optimizer_step, state.completed_steps));
  }
  state.scaler.type =
      metadata.get_optional<std::string>("optimizer.grad_scaler.type").value_or(state.scaler.type);
  state.scaler.scale =
      metadata.get_optional<double>("optimizer.grad_scaler.scale").value_or(state.scaler.scale);
  state.scaler.growth = metadata.get_optional<int64_t>("optimizer.grad_scaler.growth").value_or(0);
  state.scaler.hysteresis =
      metadata.get_optional<int64_t>("optimizer.grad_scaler.hysteresis").value_or(0);
  if (const Node* logged = metadata.find("metrics")) state.metrics = *logged;
  return state;
}

}  // namespace fastllm::checkpoint
