#!/usr/bin/env python3
"""What calls into a plugin cost, and their share of a step of the 13M model (bench/models.py).

    OMP_NUM_THREADS=2 python3 bench/crossings.py [--step-ms MS]

The step is measured when its time is not given. The share is an upper bound: it is the time of a whole step of a model with as
many layers that computes nothing, the host's own work around the calls included.
"""
import argparse
import json
import statistics
import subprocess

from common import HOST, SOURCE, Results, add_arguments
from models import SIZES
from runner import Runner


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--step-ms", type=float)
    options = parser.parse_args()
    size = SIZES["13M"]
    build = HOST.parent.parent
    output = subprocess.run([build / "bin/bench_crossings", build / "bench/libfastllm_empty.so", str(size.layers + 2)], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(output)
    step = options.step_ms
    if step is None:
        runner = Runner("ours", [options.host, "--plugin", "gpt", SOURCE / "bench/benchmark.yaml", *size.overrides(),
                                 "training.train_iters=8"], 8)
        runner.run()
        step = statistics.median(runner.times)
    share = figures["step_ns"] / 1e6 / step
    Results("crossings", options.json).add(
        f"forward {figures['forward_ns']:.0f} ns, backward {figures['backward_ns']:.0f} ns; {figures['calls']} calls and all work "
        f"around them {figures['step_ns'] / 1000:.1f} us, {100 * share:.4f} % of a step of {step:.0f} ms",
        **figures, step_ms=step, share=share)


if __name__ == "__main__":
    main()
