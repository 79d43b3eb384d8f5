// fastllm-host schema --plugin gpt: JSON Schema of train.yaml for an editor; with --markdown the reference page of docs/.
#include <cstdio>

#include "apps/host/commands/commands.hpp"
#include "apps/host/job.hpp"
#include "core/config/resolve.hpp"

namespace fastllm::host {

int run_schema(const Options& options) {
  Job job(options);
  std::string text =
      options.markdown
          ? config::markdown_reference(job.schema())
          : config::json_schema(job.schema(),
                                "fastllm-host --plugin " + options.plugin +
                                    (options.model.empty() ? "" : " --model " + options.model));
  if (text.empty() || text.back() != '\n') text += '\n';
  std::fputs(text.c_str(), stdout);
  return kDone;
}

}  // namespace fastllm::host
