#!/usr/bin/env python3
"""What several ranks of one computer cost: a training step of one process with N threads, and of N ranks with one each, in turn.

    python3 bench/ranks.py [--ranks 2] [--batch 8] [--size 13M] [--zero 1 2 3] [--steps N] [--rounds N]

The whole batch is the same for all. A step counts when a quarter of its run is over.
"""
import argparse
import os

from common import SOURCE, Results, add_arguments, load
from models import SIZES
from runner import Runner


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, over all ranks")
    parser.add_argument("--size", choices=SIZES, default="13M")
    parser.add_argument("--zero", nargs="*", type=int, choices=(1, 2, 3), default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=12, help="of one run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for all")
    options = parser.parse_args()
    size = SIZES[options.size]
    train = ["--plugin", "gpt", SOURCE / "bench/benchmark.yaml", f"training.train_iters={options.steps}", *size.overrides(),
             f"batch.batch_size={options.batch}", *options.overrides]
    # One variable for all, so that the launcher shares the cores out.
    os.environ.pop("OMP_NUM_THREADS", None)
    runners = [Runner("one process", [options.host, *train, f"run.threads={options.ranks}"], options.steps)]
    for zero in options.zero:
        runners.append(Runner(f"{options.ranks} ranks, ZeRO {zero}", [
            options.host, "--nproc", options.ranks, *train, f"model.multi_stage.zero_stage={zero}", "run.threads=1"], options.steps))
    results = Results("ranks", options.json)
    tokens = options.batch * size.sequence
    for number in range(1, options.rounds + 1):
        for runner in runners:
            runner.run()
        print(f"round {number} of {options.rounds}, load {load()}", flush=True)
    first = runners[0]
    for runner in runners:
        results.add(f"{runner.name:20} median {runner.median():8.1f} ms  fastest {min(runner.times):8.1f} ms  "
                    f"{tokens / runner.median() * 1000:8.0f} tokens/s  time / one process {runner.median() / first.median():.3f}, "
                    f"fastest {min(runner.times) / min(first.times):.3f}",
                    who=runner.name, size=options.size, ranks=options.ranks, tokens=tokens, steps=len(runner.times),
                    median_ms=runner.median(), fastest_ms=min(runner.times), median_ratio=runner.median() / first.median())


if __name__ == "__main__":
    main()
