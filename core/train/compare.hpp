// What differs between two runs: configuration, data, versions, and above all their losses. Reads
// what runs leave in their folders; a file that is not what it should be is one sentence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/config/node.hpp"

namespace fastllm::train {

struct RecordedRun {
  std::filesystem::path path;
  // (phase, iteration) -> name -> loss or model metric; nan: logged as null.
  std::map<std::pair<std::string, int64_t>, std::map<std::string, double>> losses;
  config::Node config, provenance;  // null: the folder has none
  std::vector<std::string> notes;   // what could not be read, though the rest could
};

// path: a run's folder (runs/3), or an experiment's: then all its runs in order, a step done twice
// as it was done last, with the configuration of the last one.
RecordedRun read_run(const std::filesystem::path& path);

struct KeyDifference {
  std::string key, a, b;  // values as YAML; "absent"
};

struct LossDifference {
  std::string phase, name;
  int64_t iteration = 0;
  double a = 0, b = 0;
  double relative = 0;  // |a - b| / max(|a|, |b|); infinite where one is no number
};

struct Comparison {
  std::vector<KeyDifference> configuration, data, versions;
  bool has_configuration = true, has_provenance = true;  // of both
  int64_t compared = 0;                                  // pairs of losses
  std::vector<LossDifference> beyond;                    // those beyond the tolerance, by iteration
  LossDifference largest;                                // of all pairs; relative 0: none differs
  // Where just one of the two has a line: "validation @ 30". One run may be longer, or was evaluated
  // later: that says nothing of the losses.
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> notes;

  bool losses_agree() const { return beyond.empty(); }  // those that both have
};

// Two losses agree when they are equal, or |a - b| <= tolerance * max(|a|, |b|). Nothing logged by
// both: Error.
Comparison compare_runs(const RecordedRun& a, const RecordedRun& b, double tolerance);

// For people, and as JSON for programs.
std::string comparison_text(const Comparison& comparison, double tolerance);
config::Node comparison_node(const Comparison& comparison);

}  // namespace fastllm::train
