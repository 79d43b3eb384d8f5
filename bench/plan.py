#!/usr/bin/env python3
"""What `fastllm-host plan` foretells of a step of several ranks of this computer, and what it takes: measured in turn.

    python3 bench/plan.py [--ranks 2] [--batch 8] [--size 13M] [--zero 1 3] [--steps N] [--rounds N]

The plan measures peak, memory and network by as many ranks at once (--measure). A step counts when a quarter of its run is over.
"""
import argparse
import json
import os
import statistics
import subprocess

from common import SOURCE, Results, add_arguments, load
from models import SIZES
from runner import Runner


def foretold(command):
    """Seconds, of the rank that tells."""
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SOURCE / "bench").stdout
    line, = (line for line in output.splitlines() if "{" in line)
    return json.loads(line[line.index("{"):])["time"]["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, over all ranks")
    parser.add_argument("--size", choices=SIZES, default="13M")
    parser.add_argument("--zero", nargs="*", type=int, choices=(1, 2, 3), default=[1, 3])
    parser.add_argument("--steps", type=int, default=8, help="of one run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for all")
    options = parser.parse_args()
    size = SIZES[options.size]
    os.environ.pop("OMP_NUM_THREADS", None)
    for zero in options.zero:
        arguments = ["--nproc", options.ranks, "--plugin", "gpt", SOURCE / "bench/benchmark.yaml", *size.overrides(),
                     f"training.train_iters={options.steps}", f"batch.batch_size={options.batch}",
                     f"model.multi_stage.zero_stage={zero}", "run.threads=1", *options.overrides]
        arguments = list(map(str, arguments))
        runner = Runner(f"{options.ranks} ranks, ZeRO {zero}", [options.host, *arguments], options.steps)
        results, plans = Results("plan", options.json), []
        for number in range(1, options.rounds + 1):
            plans.append(1000 * foretold([str(options.host), "plan", "--measure", "--json", *arguments]))
            runner.run()
            print(f"round {number} of {options.rounds}, load {load()}", flush=True)
        plan, step = statistics.median(plans), runner.median()
        results.add(f"{runner.name:20} foretold {plan:8.1f} ms  took {step:8.1f} ms (fastest {min(runner.times):.1f})  "
                    f"foretold / took {plan / step:.3f}",
                    who=runner.name, size=options.size, ranks=options.ranks, zero=zero, foretold_ms=plan, median_ms=step,
                    fastest_ms=min(runner.times), ratio=plan / step)


if __name__ == "__main__":
    main()
