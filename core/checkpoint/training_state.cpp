// The `metadata` block: keys of today written, those of older releases read as well.
#include "core/checkpoint/training_state.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.hpp"

namespace fastllm::checkpoint {

using config::Node;

namespace {

Node to_node(const Sums& sums) {
  Node node = Node::map();
  node.set_child("steps", Node::integer(sums.steps));
  Node values = Node::map();
  for (const auto& [name, value] : sums.values) values.set_child(name, Node::real(value));
  if (values.size() > 0) node.set_child("sums", std::move(values));
  return node;
}

Node to_node(const SinceLog& since) {
  Node node = Node::map();
  if (since.losses.steps > 0) node.set_child("losses", to_node(since.losses));
  if (since.metrics.steps > 0) node.set_child("metrics", to_node(since.metrics));
  if (since.skipped_iters > 0) node.set_child("skipped_iters", Node::integer(since.skipped_iters));
  if (since.nan_iters > 0) node.set_child("nan_iters", Node::integer(since.nan_iters));
  return node;
}

}  // namespace

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
  if (!due_evaluations.empty()) {
    Node phases = Node::list();
    for (const std::string& phase : due_evaluations) phases.append(Node::text(phase));
    node.set("due_evaluations", std::move(phases));
  }
  if (Node since = checkpoint::to_node(since_log); since.size() > 0)
    node.set("since_log", std::move(since));
  return node;
}

namespace {

GradientScalerState read_scaler(const Node& metadata, const std::string& source) {
  GradientScalerState scaler;
  const std::string at = "optimizer.grad_scaler.";
  scaler.type = metadata.get_optional<std::string>(at + "type").value_or(scaler.type);
  if (scaler.type == "NoopGradScaler") return scaler;
  const auto scale = metadata.get_optional<double>(at + "scale");
  if (!scale || !std::isfinite(*scale) || *scale <= 0)
    throw Error(Status::kDataLoss,
                fmt::format("expected metadata.{}scale, a number above 0, in {}, found {}; move it "
                            "away to go on from an older checkpoint",
                            at, source, scale ? fmt::format("{}", *scale) : "none"));
  scaler.scale = *scale;
  // The counters of the dynamic scaler; hysteresis goes below 0 while updates keep failing.
  scaler.growth = metadata.get_optional<int64_t>(at + "growth").value_or(0);
  scaler.hysteresis = metadata.get_optional<int64_t>(at + "hysteresis").value_or(0);
  if (scaler.growth < 0)
    throw Error(Status::kDataLoss,
                fmt::format("expected metadata.{}growth from 0 in {}, found {}; move it away to go "
                            "on from an older checkpoint",
                            at, source, scaler.growth));
  return scaler;
}

// An optional count, which cannot be negative.
int64_t read_count(const Node& metadata, const std::string& path, const std::string& source) {
  const int64_t value = metadata.get_optional<int64_t>(path).value_or(0);
  if (value >= 0) return value;
  throw Error(Status::kDataLoss,
              fmt::format("expected metadata.{} from 0 in {}, found {}; move it away to go on from "
                          "an older checkpoint",
                          path, source, value));
}

Sums read_sums(const Node& metadata, const std::string& path, const std::string& source) {
  Sums sums;
  sums.steps = read_count(metadata, path + ".steps", source);
  const Node* values = metadata.find(path + ".sums");
  if (!values || values->kind() != Node::Kind::kMap) return sums;
  for (size_t i = 0; i < values->size(); ++i)
    sums.values[values->key(i)] =
        metadata.get<double>(config::join_path(path + ".sums", values->key(i)));
  return sums;
}

SinceLog read_since_log(const Node& metadata, const std::string& source) {
  const std::string at = "since_log.";
  return {read_sums(metadata, at + "losses", source), read_sums(metadata, at + "metrics", source),
          read_count(metadata, at + "skipped_iters", source),
          read_count(metadata, at + "nan_iters", source)};
}

}  // namespace

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
  state.scaler = read_scaler(metadata, source);
  if (const Node* logged = metadata.find("metrics")) state.metrics = *logged;
  if (metadata.has("due_evaluations"))
    state.due_evaluations = metadata.get_list<std::string>("due_evaluations");
  state.since_log = read_since_log(metadata, source);
  return state;
}

TrainingState state_of(const Node& metadata, const Found& checkpoint) {
  const Node* saved = metadata.find("metadata");
  const TrainingState state =
      TrainingState::from_node(saved ? *saved : Node::map(), checkpoint.path.string());
  if (state.completed_steps != checkpoint.iteration) {
    throw Error(
        Status::kDataLoss,
        fmt::format("expected {} completed steps in {}, as its folder is called, found {}; "
                    "the folder was renamed or its content exchanged: rename it back, or move it "
                    "away to go on from an older one",
                    checkpoint.iteration, checkpoint.path.string(), state.completed_steps));
  }
  return state;
}

}  // namespace fastllm::checkpoint
