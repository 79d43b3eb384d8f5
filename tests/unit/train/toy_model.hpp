// A small language model in plain loops that implements model::Model: for tests of the executor. It counts its calls, reads its
// inputs again in backward (so a released one shows), writes or adds exactly as the overwrite flags say, and can fail on demand.
// Computes in any training type: it reads and writes what its tensors are, in between is double.
//
//   scale (preprocessing): positions -> scale      embed: tokens -> hidden         blocks: hidden -> hidden
//   gate: hidden of embed and the last block, scale -> hidden (a second reader of embed's output)
//   head: hidden, labels -> loss (sum), accuracy (sum), logits (optional); its weight may be the embedding's
#pragma once

#include <cmath>
#include <stdexcept>

#include "core/base/error.hpp"
#include "core/base/half.hpp"
#include "core/model/model.hpp"

struct fastllm_saved {
  int layer = 0;
  std::vector<const DLTensor*> inputs;
  std::vector<float> values;  // what the layer wants to see again
};

namespace fastllm::test {

struct ToyOptions {
  int64_t vocabulary = 11, width = 6;
  int blocks = 2;
  bool tied = true;
  bool auxiliary = true;          // blocks have a mean loss
  float dropout = 0;              // in blocks
  std::vector<int> frozen;        // layers whose parameters are frozen
  bool unused_parameter = false;  // a parameter of a layer that no loss depends on
  bool flag_unused = true;
  int predicted = 1;              // the head's labels: tokens from their position
  std::string hidden = "hidden";  // the blocks' output
};

class ToyModel : public model::Model {
 public:
  enum Kind { kScale, kEmbed, kBlock, kGate, kHead, kDead };
  struct Counts {
    int forward = 0, saves = 0, backward = 0;
    bool wanted_input_gradient = false, had_gradient = false;
    std::vector<uint64_t> seeds;
    uint32_t flags = 0;
  };

  explicit ToyModel(const ToyOptions& options) : o_(options) {
    describe();
    d_.validate();
    weights_.resize(d_.layers.size());
    gradients_.resize(d_.layers.size());
    counts.resize(d_.layers.size());
  }

  const model::Description& description() const override { return d_; }

  void bind(int layer, std::span<const DLTensor* const> weights,
            std::span<DLTensor* const> gradients) override {
    weights_[layer].assign(weights.begin(), weights.end());
    gradients_[layer].assign(gradients.begin(), gradients.end());
  }

  model::Saved forward(int layer, const fastllm_call& call, std::span<const DLTensor* const> in,
                       std::span<DLTensor* const> out) override {
    Counts& c = counts[layer];
    ++c.forward;
    c.seeds.push_back(call.seed);
    c.flags = call.flags;
    if (fail_forward == layer && (fail_at == 0 || fail_at == c.forward))
      throw Error(Status::kInternal, "told to fail");
    auto saved = std::make_unique<fastllm_saved>();
    saved->layer = layer;
    saved->inputs.assign(in.begin(), in.end());
    switch (kinds_[layer]) {
      case kScale:
        scale(in, out);
        break;
      case kEmbed:
        embed(layer, in, out);
        break;
      case kBlock:
        block(layer, call, in, out, *saved);
        break;
      case kGate:
        gate(in, out);
        break;
      case kHead:
        head(layer, in, out, *saved);
        break;
      case kDead:
        for (int64_t i = 0; i < size(in[0]); ++i) put(out[0], i, f(in[0])[i]);
        break;
    }
    if (layer == poison.layer && poisoned(call) && !poison.backward) put(out[0], 1, NAN);
    if (!(call.flags & FASTLLM_SAVE)) return {};
    ++c.saves;
    max_live = std::max(max_live, ++live);
    return {this, saved.release()};
  }

  void backward(int layer, const fastllm_call& call, model::Saved taken,
                std::span<const DLTensor* const> d_out, std::span<DLTensor* const> d_in) override {
    Counts& c = counts[layer];
    ++c.backward;
    c.wanted_input_gradient |= !d_in.empty() && d_in[0];
    for (DLTensor* g : gradients_[layer]) c.had_gradient |= g != nullptr;
    if (!taken) throw std::logic_error("backward without a forward that saved");
    std::unique_ptr<fastllm_saved> saved(taken.release());
    --live;
    if (saved->layer != layer) throw std::logic_error("saved of another layer");
    switch (kinds_[layer]) {
      case kEmbed:
        embed_backward(layer, call, *saved, d_out);
        break;
      case kBlock:
        block_backward(layer, call, *saved, d_out, d_in);
        break;
      case kGate:
        gate_backward(*saved, d_out, d_in);
        break;
      case kHead:
        head_backward(layer, call, *saved, d_out, d_in);
        break;
      default:
        throw std::logic_error("no backward");
    }
    if (layer == poison.layer && poisoned(call) && poison.backward)
      put(gradients_[layer][0], 2, INFINITY);
  }

  void discard(fastllm_saved* saved) noexcept override {
    --live;
    delete saved;
  }
  void init(int, int, const fastllm_call& call, DLTensor* weight) override {
    for (int64_t i = 0; i < size(weight); ++i) put(weight, i, float(i % 7) + float(call.seed % 3));
  }
  model::Flops flops(int, int64_t, int64_t) override { return {}; }

  std::vector<Counts> counts;          // by layer
  int live = 0, max_live = 0;          // saved ones
  int fail_forward = -1, fail_at = 0;  // a layer, and which of its forwards fails; 0: each
  // From one step to another, a layer's first output or its first gradient holds no number.
  struct {
    int layer = -1;
    bool backward = false;
    int64_t first_step = 0, last_step = 0, micro_batch = 0;
  } poison;
  bool logits_made = false;

 private:
  bool poisoned(const fastllm_call& call) const {
    return call.step >= poison.first_step && call.step <= poison.last_step &&
           call.micro_batch == poison.micro_batch && !(call.flags & FASTLLM_EVAL);
  }
  // Elements of a float32, bfloat16 or float16 tensor.
  struct Floats {
    const DLTensor* t;
    float operator[](int64_t i) const {
      if (t->dtype.bits == 32) return static_cast<const float*>(t->data)[i];
      const uint16_t stored = static_cast<const uint16_t*>(t->data)[i];
      return t->dtype.code == kDLBfloat ? from_bfloat16(stored) : from_float16(stored);
    }
  };
  static Floats f(const DLTensor* t) { return {t}; }
  static void put(const DLTensor* t, int64_t i, float value) {
    if (t->dtype.bits == 32)
      static_cast<float*>(t->data)[i] = value;
    else
      static_cast<uint16_t*>(t->data)[i] =
          t->dtype.code == kDLBfloat ? to_bfloat16(value) : to_float16(value);
  }
  static void put_all(const DLTensor* t, const std::vector<double>& values) {
    for (size_t i = 0; t && i < values.size(); ++i) put(t, int64_t(i), float(values[i]));
  }
  static const int64_t* ids(const DLTensor* t) { return static_cast<const int64_t*>(t->data); }
  static int64_t size(const DLTensor* t) {
    int64_t n = 1;
    for (int k = 0; k < t->ndim; ++k) n *= t->shape[k];
    return n;
  }

  int layer(const std::string& name, Kind kind, uint32_t flags = 0) {
    model::Layer l;
    l.name = name;
    l.flags = flags;
    l.cost = kind == kEmbed ? 1000 : 1;
    d_.layers.push_back(l);
    kinds_.push_back(kind);
    return int(d_.layers.size()) - 1;
  }
  void input(const std::string& name, bool batch = false) {
    d_.layers.back().inputs.push_back(batch ? model::Port{name,
                                                          FASTLLM_PORT_BATCH,
                                                          {kDLInt, 64, 1},
                                                          {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE}}
                                            : port(name));
  }
  model::Port port(const std::string& name, uint32_t flags = 0) const {
    return {name, flags, {0, 0, 1}, {FASTLLM_DIM_TOKENS, o_.width}};
  }
  void output(model::Port p) { d_.layers.back().outputs.push_back(std::move(p)); }
  void parameter(const std::string& name, std::vector<int64_t> shape, uint32_t flags = 0) {
    const int l = int(d_.layers.size()) - 1;
    model::Parameter p;
    p.name = name;
    p.flags = flags;
    p.shape = std::move(shape);
    p.init = FASTLLM_INIT_NORMAL;
    p.init_b = 0.5;
    if (std::find(o_.frozen.begin(), o_.frozen.end(), l) != o_.frozen.end()) p.lr_scales = {0};
    d_.declare(l, p);
  }

  void describe() {
    const model::Port scale_port{"scale", FASTLLM_PORT_NO_GRAD, {0, 0, 1}, {FASTLLM_DIM_TOKENS}};
    const model::Port scalar{"", 0, {0, 0, 1}, {}};
    d_.type = "toy";
    layer("scale", kScale, FASTLLM_LAYER_EVERY_STAGE);
    input("positions", true);
    output(scale_port);
    layer("embed", kEmbed);
    input("tokens", true);
    output(port("embedded"));
    parameter("embed.weight", {o_.vocabulary, o_.width});
    std::string hidden = "embedded";
    for (int b = 0; b < o_.blocks; ++b) {
      const std::string name = "block_" + std::to_string(b);
      layer(name, kBlock);
      input(hidden);
      hidden = o_.hidden;
      output(port(hidden, FASTLLM_PORT_KEEP));
      if (o_.auxiliary) {
        model::Port loss = scalar;
        loss.name = "energy";
        loss.flags = FASTLLM_PORT_LOSS;
        output(loss);
      }
      parameter(name + ".weight", {o_.width, o_.width});
      parameter(name + ".bias", {o_.width});
    }
    if (o_.unused_parameter) {
      layer("dead", kDead);
      input(hidden);
      output(port("ignored"));
      parameter("dead.weight", {3}, o_.flag_unused ? uint32_t(FASTLLM_PARAM_UNUSED) : 0u);
    }
    layer("gate", kGate);
    input("embedded");
    if (o_.blocks) input(hidden);
    d_.layers.back().inputs.push_back(scale_port);
    output(port("gated"));
    layer("head", kHead);
    input("gated");
    input(o_.predicted > 1 ? "labels_" + std::to_string(o_.predicted) : "labels", true);
    model::Port p = scalar;
    p.name = "loss";
    p.flags = FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM;
    output(p);
    p.name = "accuracy";
    p.flags = FASTLLM_PORT_METRIC | FASTLLM_PORT_SUM;
    output(p);
    output({"logits",
            FASTLLM_PORT_OPTIONAL | FASTLLM_PORT_NO_GRAD,
            {0, 0, 1},
            {FASTLLM_DIM_TOKENS, o_.vocabulary}});
    parameter(o_.tied ? "embed.weight" : "head.weight", {o_.vocabulary, o_.width});
  }

  // Writes or adds, as the contract says.
  void give(int layer, int p, const fastllm_call& call, const std::vector<double>& gradient) {
    DLTensor* g = gradients_[layer][p];
    if (!g) return;
    for (size_t i = 0; i < gradient.size(); ++i)
      put(g, int64_t(i), (call.overwrite[p] ? 0 : f(g)[int64_t(i)]) + float(gradient[i]));
  }

  void scale(std::span<const DLTensor* const> in, std::span<DLTensor* const> out) {
    for (int64_t t = 0; t < size(in[0]); ++t) put(out[0], t, 1 + 0.1f * float(ids(in[0])[t]));
  }

  void embed(int layer, std::span<const DLTensor* const> in, std::span<DLTensor* const> out) {
    for (int64_t t = 0; t < size(in[0]); ++t)
      for (int64_t k = 0; k < o_.width; ++k)
        put(out[0], t * o_.width + k, f(weights_[layer][0])[ids(in[0])[t] * o_.width + k]);
  }
  void embed_backward(int layer, const fastllm_call& call, const fastllm_saved& saved,
                      std::span<const DLTensor* const> d_out) {
    std::vector<double> g(size_t(o_.vocabulary * o_.width), 0);
    for (int64_t t = 0; t < size(saved.inputs[0]); ++t)
      for (int64_t k = 0; k < o_.width; ++k)
        g[ids(saved.inputs[0])[t] * o_.width + k] += f(d_out[0])[t * o_.width + k];
    give(layer, 0, call, g);
  }

  // y = tanh(W x + b), with dropout from the call's seed; energy: the mean of y^2.
  void block(int layer, const fastllm_call& call, std::span<const DLTensor* const> in,
             std::span<DLTensor* const> out, fastllm_saved& saved) {
    const int64_t w = o_.width, tokens = size(in[0]) / w;
    double energy = 0;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < w; ++i) {
        double sum = f(weights_[layer][1])[i];
        for (int64_t j = 0; j < w; ++j)
          sum += double(f(weights_[layer][0])[i * w + j]) * f(in[0])[t * w + j];
        const double y = std::tanh(sum);
        const uint64_t draw = (call.seed + uint64_t(t * w + i)) * 0x9e3779b97f4a7c15;
        const bool drop = !(call.flags & FASTLLM_EVAL) && double(draw >> 40) < o_.dropout * 0x1p24;
        const double keep = drop ? 0 : (call.flags & FASTLLM_EVAL) ? 1 : 1 / (1 - o_.dropout);
        put(out[0], t * w + i, float(y * keep));
        saved.values.push_back(float(y));
        saved.values.push_back(float(keep));
        energy += y * y;
      }
    if (o_.auxiliary) put(out[1], 0, float(energy / double(tokens * w)));
  }
  void block_backward(int layer, const fastllm_call& call, const fastllm_saved& saved,
                      std::span<const DLTensor* const> d_out, std::span<DLTensor* const> d_in) {
    const int64_t w = o_.width, tokens = size(saved.inputs[0]) / w;
    std::vector<double> dw(size_t(w * w), 0), db(size_t(w), 0), dx(size_t(w * tokens), 0);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < w; ++i) {
        const double y = saved.values[2 * (t * w + i)], keep = saved.values[2 * (t * w + i) + 1];
        double dy = d_out[0] ? f(d_out[0])[t * w + i] * keep : 0;
        if (o_.auxiliary) dy += f(d_out[1])[0] * 2 * y / double(tokens * w);
        const double ds = dy * (1 - y * y);
        db[i] += ds;
        for (int64_t j = 0; j < w; ++j) {
          dw[i * w + j] += ds * f(saved.inputs[0])[t * w + j];
          dx[t * w + j] += ds * f(weights_[layer][0])[i * w + j];
        }
      }
    give(layer, 0, call, dw);
    give(layer, 1, call, db);
    put_all(d_in[0], dx);
  }

  // out = scale * a * (1 + b)
  void gate(std::span<const DLTensor* const> in, std::span<DLTensor* const> out) {
    const DLTensor* s = in.back();
    for (int64_t i = 0; i < size(in[0]); ++i)
      put(out[0], i, f(s)[i / o_.width] * f(in[0])[i] * (1 + (o_.blocks ? f(in[1])[i] : 0)));
  }
  void gate_backward(const fastllm_saved& saved, std::span<const DLTensor* const> d_out,
                     std::span<DLTensor* const> d_in) {
    const DLTensor *a = saved.inputs[0], *b = o_.blocks ? saved.inputs[1] : nullptr,
                   *s = saved.inputs.back();
    for (int64_t i = 0; i < size(a); ++i) {
      const float d = f(d_out[0])[i] * f(s)[i / o_.width];
      if (d_in[0]) put(d_in[0], i, d * (1 + (b ? f(b)[i] : 0)));
      if (b && d_in[1]) put(d_in[1], i, d * f(a)[i]);
    }
  }

  // Softmax cross-entropy, summed over labels that are not -100. Saves the probabilities.
  void head(int layer, std::span<const DLTensor* const> in, std::span<DLTensor* const> out,
            fastllm_saved& saved) {
    const int64_t w = o_.width, v = o_.vocabulary, tokens = size(in[1]);
    double loss = 0, right = 0;
    std::vector<double> logits(static_cast<size_t>(v));
    logits_made = out[2] != nullptr;
    for (int64_t t = 0; t < tokens; ++t) {
      double sum = 0;
      int64_t best = 0;
      for (int64_t c = 0; c < v; ++c) {
        logits[c] = 0;
        for (int64_t k = 0; k < w; ++k)
          logits[c] += double(f(weights_[layer][0])[c * w + k]) * f(in[0])[t * w + k];
        sum += std::exp(logits[c]);
        if (logits[c] > logits[best]) best = c;
        if (out[2]) put(out[2], t * v + c, float(logits[c]));
      }
      for (int64_t c = 0; c < v; ++c) saved.values.push_back(float(std::exp(logits[c]) / sum));
      const int64_t label = ids(in[1])[t];
      if (label < 0) continue;
      loss += std::log(sum) - logits[label];
      right += best == label;
    }
    put(out[0], 0, float(loss));
    put(out[1], 0, float(right));
  }
  void head_backward(int layer, const fastllm_call& call, const fastllm_saved& saved,
                     std::span<const DLTensor* const> d_out, std::span<DLTensor* const> d_in) {
    const int64_t w = o_.width, v = o_.vocabulary, tokens = size(saved.inputs[1]);
    if (d_out[1] || d_out[2])
      throw std::logic_error("a metric and a NO_GRAD output have no gradient");
    std::vector<double> dw(size_t(v * w), 0), dx(size_t(tokens * w), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t label = ids(saved.inputs[1])[t];
      if (label < 0) continue;
      for (int64_t c = 0; c < v; ++c) {
        const double d = f(d_out[0])[0] * (saved.values[t * v + c] - (c == label));
        for (int64_t k = 0; k < w; ++k) {
          dw[c * w + k] += d * f(saved.inputs[0])[t * w + k];
          dx[t * w + k] += d * f(weights_[layer][0])[c * w + k];
        }
      }
    }
    give(layer, 0, call, dw);
    put_all(d_in[0], dx);
  }

  const ToyOptions o_;
  model::Description d_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<const DLTensor*>> weights_;
  std::vector<std::vector<DLTensor*>> gradients_;
};

}  // namespace fastllm::test
