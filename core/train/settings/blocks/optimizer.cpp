#include <fmt/format.h>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

optim::AdamWOptions read_adamw(Reader& reader) {
  optim::AdamWOptions adamw;
  reader.read("optimizer", {{"weight_decay", adamw.weight_decay},
                            {"beta_1", adamw.beta_1},
                            {"beta_2", adamw.beta_2},
                            {"epsilon", adamw.epsilon},
                            {"gradient_norm_clipping", adamw.gradient_norm_clipping},
                            {"default_learning_rate_scale", adamw.default_learning_rate_scale}});
  for (const char* key : {"optimizer.beta_1", "optimizer.beta_2"}) {
    if (reader.get<double>(key) == 1)
      reader.problems.add(
          key,
          "expected a number below 1, found 1: no gradient would ever count; write for "
          "example 0.9");
  }
  return adamw;
}

optim::ScalerOptions read_scaler(Reader& reader, const std::string& training_dtype) {
  const std::string at = "optimizer.gradient_scaler";
  optim::ScalerOptions scaler;
  std::optional<double> constant;
  reader.read(at, {{"initial", scaler.initial},
                   {"minimum", scaler.minimum},
                   {"window", scaler.window},
                   {"hysteresis", scaler.hysteresis},
                   {"constant", constant}});
  if (training_dtype == "float16") scaler.kind = optim::ScalerKind::kDynamic;
  if (constant && *constant != 0) {
    scaler.kind = optim::ScalerKind::kConstant;
    scaler.constant = *constant;
  }
  for (const char* key : {".constant", ".initial", ".minimum"}) {
    const auto scale = reader.optional<double>(at + key);
    if (scale && *scale > 0x1p100)
      reader.problems.add(
          at + key, fmt::format("expected at most 2^100, since losses and their gradients are "
                                "float32, found {}; write for example 65536",
                                *scale));
  }
  return scaler;
}

// Its rules know the keys of their own block: "decay_iterations: ...".
void check_learning_rate(Reader& reader, const std::string& at, const optim::LearningRate& rate) {
  try {
    rate.validate();
  } catch (const Error& error) {
    const std::string text = error.what();
    const size_t colon = text.find(": ");
    const std::string path = at + "." + text.substr(0, colon);
    if (colon != std::string::npos && reader.root().has(path))
      reader.problems.add(path, text.substr(colon + 2));
    else
      reader.problems.add(at, text);
  }
}

optim::LearningRate read_learning_rate(Reader& reader) {
  const std::string at = "optimizer.learning_rate";
  optim::LearningRate rate;
  using optim::DecayStyle;
  rate.decay_style =
      reader.choice<DecayStyle>(at + ".decay_style", {{"constant", DecayStyle::kConstant},
                                                      {"linear", DecayStyle::kLinear},
                                                      {"power", DecayStyle::kPower},
                                                      {"cosine", DecayStyle::kCosine}});
  reader.read(at, {{"base", rate.base},
                   {"decay_iterations", rate.decay_iterations},
                   {"decay_power", rate.decay_power},
                   {"warmup_iterations", rate.warmup_iterations},
                   {"minimum", rate.minimum}});
  rate.schedule = reader.optional<std::string>(at + ".schedule").value_or("");
  check_learning_rate(reader, at, rate);
  return rate;
}

}  // namespace

OptimizerSettings read_optimizer(Reader& reader, const std::string& training_dtype) {
  OptimizerSettings optimizer;
  optimizer.adamw = read_adamw(reader);
  optimizer.scaler = read_scaler(reader, training_dtype);
  optimizer.learning_rate = read_learning_rate(reader);
  return optimizer;
}

}  // namespace fastllm::train
