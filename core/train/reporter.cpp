#include "core/train/reporter.hpp"

#include <cctype>
#include <ctime>

#include "core/base/log.hpp"

namespace fastllm::train {

Metrics Reporter::base(const std::string& phase, int64_t iteration) {
  Metrics m;
  m.phase = phase;
  m.iteration = iteration;
  m.train_iters = settings_.training.train_iters;
  m.batch_size = settings_.batch.batch_size;
  m.sequence_length = settings_.batch.sequence_length;
  m.world_size = int(settings_.distributed.world_size);
  m.memory = memory.read();
  return m;
}

void Reporter::publish(const Metrics& metrics) {
  const std::time_t now = std::time(nullptr);
  log::info(log_line(metrics, now));
  config::Node numbers = to_node(metrics, now);
  std::string key = metrics.phase;
  key[0] = char(std::toupper(static_cast<unsigned char>(key[0])));
  published_.set_child(key, numbers);
  if (!run_ || settings_.distributed.rank != 0) return;
  config::Node line = config::Node::map();
  line.set_child("phase", config::Node::text(metrics.phase));
  for (size_t i = 0; i < numbers.size(); ++i) line.set_child(numbers.key(i), numbers.at(i));
  run_->write_metrics(line);
}

}  // namespace fastllm::train
