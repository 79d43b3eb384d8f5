// The keep rule in numbers, and deleting by way of a folder that no finder looks into.
#include "core/checkpoint/retention.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/checkpoint/finder.hpp"

namespace fastllm::checkpoint {

namespace fs = std::filesystem;

int64_t Retention::count(int64_t iteration) const {
  return when.enabled(iteration) ? when.count(iteration) : 0;
}

std::vector<int64_t> to_delete(const Retention& retention, std::vector<int64_t> saved) {
  for (const auto& [name, value] :
       {std::pair("keep", retention.keep), std::pair("keep_every", retention.keep_every)}) {
    if (value && *value < 1) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected {} to be at least 1, or null to {}, found {}", name,
                      std::string(name) == "keep" ? "keep all" : "keep none for good", *value));
    }
  }
  if (!retention.keep) return {};
  std::erase_if(saved, [&](int64_t iteration) {
    if (!retention.when.enabled(iteration)) return !retention.when.seconds;
    return retention.keep_every && retention.count(iteration) % *retention.keep_every == 0;
  });
  std::sort(saved.begin(), saved.end());
  saved.resize(saved.size() - std::min(saved.size(), size_t(*retention.keep)));
  return saved;
}

void apply(const Retention& retention, const fs::path& base, const fs::path& aside) noexcept {
  try {
    std::vector<int64_t> saved;
    for (const Found& found : scan(base).complete) saved.push_back(found.iteration);
    for (int64_t iteration : to_delete(retention, saved)) {
      const fs::path path = base / std::to_string(iteration);
      log::info(fmt::format("Deleting {} at {}", base.filename().string(), path.string()));
      std::error_code code;
      make_directories(aside);
      const fs::path doomed = aside / fmt::format("deleting-{}", iteration);
      fs::remove_all(doomed, code);
      fs::rename(path, doomed, code);
      if (!code) fs::remove_all(doomed, code);
      if (code) log::warning(fmt::format("Could not delete {}: {}", path.string(), code.message()));
    }
  } catch (const std::exception& e) {
    log::warning(fmt::format("Could not delete old saves in {}: {}", base.string(), e.what()));
  }
}

}  // namespace fastllm::checkpoint
