#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {

void read_schedule(Reader& reader, Settings& settings) {
  reader.read("schedule", {{"debug_schedule", settings.debug_schedule},
                           {"profile_schedule", settings.profile_schedule},
                           {"skip_step", settings.skip_step}});
  if (settings.profile_schedule) reader.require_folder("schedule.profile_schedule");
  if (settings.skip_step) reader.note("schedule.skip_step", "no update of the weights takes place");
}

}  // namespace fastllm::train
