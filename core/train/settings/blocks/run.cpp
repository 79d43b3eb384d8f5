// `run`, with its tensor logs, whose levels stand in `model.multi_stage`.
#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {

RunSettings read_run(Reader& reader) {
  RunSettings run;
  reader.read("run", {{"experiment_dir", run.experiment_dir},
                      {"structured_logs", run.structured_logs},
                      {"log_timestamps", run.log_timestamps},
                      {"threads", run.threads}});
  if (reader.get<bool>("run.tensor_logs.save")) reader.require_folder("run.tensor_logs.save");
  return run;
}

TensorLogSettings read_tensor_logs(Reader& reader) {
  TensorLogSettings logs;
  reader.read("run.tensor_logs",
              {{"save", logs.save}, {"show", logs.show}, {"max_elements", logs.max_elements}});
  reader.read("model.multi_stage", {{"debug_global_tensors", logs.global},
                                    {"debug_activation_memory", logs.activation_memory},
                                    {"debug_layer_outputs", logs.levels.layer_outputs},
                                    {"debug_layer_gradients", logs.levels.layer_gradients},
                                    {"debug_param_init", logs.levels.param_init},
                                    {"debug_param_gradients", logs.levels.param_gradients},
                                    {"debug_all_param_gradients", logs.levels.all_param_gradients},
                                    {"debug_param_update", logs.levels.param_update}});
  return logs;
}

}  // namespace fastllm::train
