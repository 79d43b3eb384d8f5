#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {
namespace {

// A launcher's variable; unset or empty: nullopt. Below `minimum` or no number: a problem.
std::optional<int64_t> read_variable(const char* name, int64_t minimum, std::string& problems) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  std::string_view view(text);
  int64_t value = 0;
  auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error == std::errc{} && end == view.data() + view.size() && value >= minimum) return value;
  problems += fmt::format(
      "{}environment: {}: expected an integer of at least {}, found \"{}\"; unset it, or "
      "start with a launcher that sets it",
      problems.empty() ? "" : "\n", name, minimum, view.substr(0, 60));
  return std::nullopt;
}

}  // namespace

Environment Environment::from_process() {
  Environment environment;
  std::string problems;
  environment.world_size = read_variable("WORLD_SIZE", 1, problems);
  environment.rank = read_variable("RANK", 0, problems);
  environment.local_world_size = read_variable("LOCAL_WORLD_SIZE", 1, problems);
  if (problems.empty() && environment.world_size.value_or(1) > 1 && !environment.rank) {
    problems = fmt::format(
        "environment: RANK: expected the number of this process, since WORLD_SIZE is {}, found "
        "nothing; start with a launcher that sets both, or unset WORLD_SIZE",
        *environment.world_size);
  }
  if (!problems.empty()) throw Error(Status::kInvalid, problems);
  return environment;
}

}  // namespace fastllm::train
