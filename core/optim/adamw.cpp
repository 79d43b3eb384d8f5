// Two passes over the shards: the norm of the gradients, which also tells whether all are finite,
// then everything else in one go, so that each array is read and written once.
#include "core/optim/adamw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/distributed/sums.hpp"

namespace fastllm::optim {
namespace {

constexpr int64_t kChunk = int64_t(1)
                           << 15;  // elements: 512 KiB of weight, two moments and gradient
std::string group_name(double weight_decay, const std::optional<double>& scale) {
  const std::string decay = weight_decay == 1   ? "True"
                            : weight_decay == 0 ? "False"
                                                : float_text(weight_decay);
  return fmt::format("wd_{}_lr_scale_{}", decay, scale ? float_text(*scale) : "None");
}

}  // namespace

std::vector<ParameterGroup> make_parameter_groups(const shard::Layout& layout, int rank) {
  const shard::World& world = layout.world();
  const int data_rank = world.data_rank(rank);
  std::vector<ParameterGroup> result;
  auto add = [&](double weight_decay, std::optional<double> scale, const Slice& slice) {
    auto group = std::find_if(result.begin(), result.end(), [&](const ParameterGroup& g) {
      return g.weight_decay == weight_decay && g.lr_scale == scale;
    });
    if (group == result.end())
      group = result.insert(group, {group_name(weight_decay, scale), weight_decay, scale, {}});
    if (!group->slices.empty()) {
      Slice& last = group->slices.back();
      if (last.weights_begin + last.elements == slice.weights_begin &&
          last.state_begin + last.elements == slice.state_begin && last.in_norm == slice.in_norm) {
        last.elements += slice.elements;
        return;
      }
    }
    group->slices.push_back(slice);
  };
  for (const shard::Placed& placed : layout.on_device(rank)) {
    const std::vector<shard::Group>& groups = layout.stages()[placed.stage].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      const shard::Group& group = groups[g];
      const int64_t state_begin = layout.shard_begin(rank, "grads", placed.stage, g);
      if (group.frozen || state_begin < 0) continue;
      const int64_t weights_begin = layout.shard_begin(rank, "weights", placed.stage, g);
      for (const shard::Piece& piece : group.pieces) {
        const model::Parameter& p = layout.description().parameters[piece.parameter];
        const bool in_norm =
            !placed.copy && (world.tensor_rank(rank) == 0 || shard::is_split(p, world));
        const std::vector<double> unset{std::nan("")};
        const std::vector<double>& scales = p.lr_scales.empty() ? unset : p.lr_scales;
        const int64_t chunk = (piece.end - piece.begin) / int64_t(scales.size());
        for (size_t c = 0; c < scales.size(); ++c) {
          const int64_t begin =
              group.to_shard(piece.begin + int64_t(c) * chunk, data_rank, world.data);
          const int64_t end =
              group.to_shard(piece.begin + int64_t(c + 1) * chunk, data_rank, world.data);
          if (scales[c] == 0 || begin == end) continue;
          const std::optional<double> scale =
              std::isnan(scales[c]) ? std::nullopt : std::optional(scales[c]);
          add(p.weight_decay, scale,
              {weights_begin + begin, state_begin + begin, end - begin, in_norm});
        }
      }
    }
  }
  return result;
}

AdamW::AdamW(shard::Store& store, const AdamWOptions& options, distributed::Communicator* world)
    : store_(store),
      options_(options),
      world_(world),
      groups_(make_parameter_groups(store.layout(), store.rank())) {
  FASTLLM_ASSERT(store.layout().world().size() == (world ? world->size() : 1));
  for (size_t g = 0; g < groups_.size(); ++g)
    for (const Slice& s : groups_[g].slices) {
      // Trainable groups side by side in the state are so in memory, whatever frozen ones are kept.
      auto* const weights = reinterpret_cast<float*>(
          shard::part_of(store_.parts("weights"), s.weights_begin).at(s.weights_begin));
      for (int64_t begin = 0; begin < s.elements; begin += kChunk)
        chunks_.push_back({weights + begin, s.state_begin + begin,
                           std::min(kChunk, s.elements - begin), int32_t(g), s.in_norm});
    }
}

// Squares of floats cannot overflow in double, nor can a sum of 2^63 of them: the sum is finite
// exactly when every gradient is.
AdamW::Norm AdamW::norm() const {
  std::vector<double> sums(chunks_.size(), 0);
  sum_of_squares(chunks_, store_.flat_data("grads"), sums.data());
  double totals[] = {0, 0};  // squares; chunks with a gradient that is no number
  for (size_t c = 0; c < chunks_.size(); ++c) {
    totals[1] += !std::isfinite(sums[c]);
    if (chunks_[c].in_norm) totals[0] += sums[c];
  }
  distributed::sum_over(world_, totals);
  return {std::sqrt(totals[0]), totals[1] == 0};
}

StepReport AdamW::step(double learning_rate, const Unscaling& unscaling) {
  const Norm scaled = norm();
  StepReport report;
  report.gradient_norm = scaled.value / unscaling.scale;
  if (unscaling.skip_non_finite && !scaled.finite) {
    report.skipped = true;
    return report;
  }
  ++current_step;
  const double bias_1 = 1 - std::pow(options_.beta_1, double(current_step));
  const double bias_2 = 1 - std::pow(options_.beta_2, double(current_step));
  std::vector<AdamWFactors> factors;
  for (const ParameterGroup& group : groups_) {
    const double rate =
        learning_rate * group.lr_scale.value_or(options_.default_learning_rate_scale);
    AdamWFactors f{};
    f.clip = float(std::min(1.0, options_.gradient_norm_clipping / (report.gradient_norm + 1e-6)) /
                   unscaling.scale);
    f.beta_1 = float(options_.beta_1);
    f.one_minus_beta_1 = float(1 - options_.beta_1);
    f.beta_2 = float(options_.beta_2);
    f.one_minus_beta_2 = float(1 - options_.beta_2);
    f.keep = float(1 - rate * options_.weight_decay * group.weight_decay);
    f.step = float(rate / bias_1);
    f.root = float(1 / std::sqrt(bias_2));
    f.epsilon = float(options_.epsilon);
    factors.push_back(f);
  }
  adamw_update(
      chunks_, factors,
      {store_.flat_data("exp_avgs"), store_.flat_data("exp_avgs_sq"), store_.flat_data("grads")});
  store_.invalidate_trainable();
  return report;
}

}  // namespace fastllm::optim
