// Numbers in bytes, operations and seconds; docs/users/planning.md tells what they are.
#include "core/distributed/groups.hpp"
#include "core/plan/report.hpp"

namespace fastllm::plan {
namespace {

using config::Node;

class Map {
 public:
  Map& add(const char* key, int64_t value) { return put(key, Node::integer(value)); }
  Map& add(const char* key, int value) { return put(key, Node::integer(value)); }
  Map& add(const char* key, double value) { return put(key, Node::real(value)); }
  Map& add(const char* key, const std::string& value) { return put(key, Node::text(value)); }
  template <class T>
  Map& add(const char* key, const std::optional<T>& value) {
    return value ? add(key, *value) : put(key, Node());
  }
  Map& put(const char* key, Node value) {
    node.set_child(key, std::move(value));
    return *this;
  }
  Node node = Node::map();
};

template <class Items, class Make>
Node list(const Items& items, Make&& make) {
  Node result = Node::list();
  for (const auto& item : items) result.append(make(item));
  return result;
}

Node split_node(const Split& split) {
  return Map().add("trainable", split.trainable).add("frozen", split.frozen).node;
}

Node line_node(const TrafficLine& line) {
  return Map()
      .add("group", line.group)
      .add("communicator", line.communicator)
      .add("ranks", line.ranks)
      .add("operation", std::string(distributed::operation_name(line.operation)))
      .add("what", line.what)
      .add("calls", line.calls)
      .add("bytes", line.bytes)
      .node;
}

Node kind_node(const KindPlan& kind, bool kept_known) {
  const shard::AllocationTable& t = kind.memory.table;
  Node shards = Node::map();
  for (const NamedShard& shard : kind.memory.shards)
    shards.set_child(shard.state, split_node(shard.bytes));
  const Node memory =
      Map()
          .add("weight_buffers", t.weight_buffer_bytes)
          .add("gradient_buffers", t.gradient_buffer_bytes)
          .add("shards", t.shard_bytes)
          .add("allocated", t.total_bytes())
          .add("activations", kind.activations)
          .add("kept_in_layers", kept_known ? std::optional(kind.kept) : std::nullopt)
          .add("activations_with_recomputation", kind.with_recomputation)
          .add("activations_without_recomputation", kind.without_recomputation)
          .put("weight_buffers_split", split_node(kind.memory.weight_buffers))
          .put("gradient_buffers_split", split_node(kind.memory.gradient_buffers))
          .put("shards_split", std::move(shards))
          .put("lines", list(t.lines(), [](const std::string& line) { return Node::text(line); }))
          .node;
  return Map()
      .add("ranks", distributed::ranks_text(kind.ranks.ranks))
      .add("pipeline_rank", kind.ranks.pipeline_rank)
      .add("count", int64_t(kind.ranks.ranks.size()))
      .put("memory", memory)
      .put("traffic", list(kind.traffic.lines, line_node))
      .add("bytes_sent", kind.traffic.bytes())
      .add("bytes_sent_first_step", kind.traffic.bytes() + kind.traffic.first_step_bytes)
      .add("flops", kind.flops)
      .node;
}

Node stage_node(const StageCompute& stage) {
  return Map()
      .add("pipeline_rank", stage.pipeline_rank)
      .add("first_layer", stage.first_layer)
      .add("layers", stage.layers)
      .add("parameters", stage.parameters)
      .add("trainable", stage.trainable)
      .add("forward_flops", stage.forward)
      .add("backward_flops", stage.backward)
      .add("recomputed_flops", stage.again)
      .node;
}

Node saves_node(const Saves& saves) {
  return Map().add("bytes", saves.bytes).add("kept", saves.kept).add("most", saves.most).node;
}

Node time_node(const StepTime& time) {
  Node parts = Node::map();
  for (const Part& part : time.parts) parts.set_child(part.name, Node::real(part.seconds));
  Map map;
  map.add("seconds", time.seconds).put("parts", std::move(parts));
  if (time.seconds)
    map.add("bound_by", time.bound_by)
        .add("tokens_per_second", time.tokens_per_second)
        .add("days", time.days)
        .add("utilization", time.utilization);
  return map
      .put("left_out", list(time.left_out, [](const std::string& s) { return Node::text(s); }))
      .node;
}

}  // namespace

Node report_node(const Plan& plan, const Hardware& hardware) {
  const shard::World& w = plan.world;
  const int64_t most = plan.largest().bytes();
  Map map;
  map.put("world", Map()
                       .add("ranks", w.size())
                       .add("data", w.data)
                       .add("pipeline", w.pipeline)
                       .add("tensor", w.tensor)
                       .add("sequence_data", w.sequence_data)
                       .add("ranks_per_computer", w.local_world_size)
                       .node)
      .add("parameters", plan.parameters)
      .add("trainable", plan.trainable)
      .add("tokens", plan.tokens)
      .add("micro_batches", plan.micro_batches)
      .put("kinds",
           list(plan.kinds, [&](const KindPlan& kind) { return kind_node(kind, plan.kept_known); }))
      .add("largest_bytes", most)
      .put("stages", list(plan.stages, stage_node))
      .add("flops", plan.flops)
      .add("model_flops", plan.model_flops)
      .add("bubble", plan.bubble)
      .put("checkpoints", saves_node(plan.disk.checkpoints))
      .put("exports", saves_node(plan.disk.exports))
      .put("time", time_node(plan.time))
      .put("smaller_with", list(plan.alternatives, [](const Alternative& a) {
             return Map().add("change", a.change).add("why", a.why).add("bytes", a.bytes).node;
           }));
  map.put("hardware", Map()
                          .add("peak", hardware.peak)
                          .add("memory_bandwidth", hardware.memory_bandwidth)
                          .add("intra", hardware.intra)
                          .add("inter", hardware.inter)
                          .add("overlap", hardware.overlap)
                          .node);
  if (hardware.memory) map.put("fits", Node::boolean(double(most) <= *hardware.memory));
  return map.node;
}

}  // namespace fastllm::plan
