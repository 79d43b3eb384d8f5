// Who looks at the outputs of layers, and at their gradients, while the executor makes them.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>

namespace fastllm::train {

class Observer {
 public:
  enum class Wants {
    kNothing,
    kIfMade,  // not for its own sake: an OPTIONAL output that no layer reads stays unmade
    kAlways,  // such an output is made for it, with the memory and the time that costs
  };
  struct Output {
    int layer = 0, output = 0;  // numbers in the model's description
    bool gradient = false;      // its gradient, in backward; never made for an observer's sake
  };
  struct Seen {
    Output what;
    int64_t micro_batch = 0;
    const DLTensor& tensor;        // complete; lives as long as the call
    int64_t activation_bytes = 0;  // in use now
  };

  virtual ~Observer() = default;
  // Asked for all outputs and gradients once a step, before its first layer.
  virtual Wants wants(const Output& what) const = 0;
  // Each once a micro-batch. What this throws ends the step.
  virtual void see(const Seen& seen) = 0;
};

}  // namespace fastllm::train
