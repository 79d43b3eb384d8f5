#!/usr/bin/env python3
"""Time, processor time and memory of a training step: ours and others', in turn.

    OMP_NUM_THREADS=2 PYTHON bench/step.py [--size 13M] [--peers transformers-sdpa ...] [--rounds N] [--frozen]

PYTHON is one that has the peers: the tests' judges have transformers; `scripts/setup.sh --bench` makes one with litgpt.
Everyone runs in turn, round after round, so that a computer that gets slower or faster does so for all. A step counts when a
quarter of its run is over. `--frozen` measures everyone a second time with the MLP layers frozen, and prints by what share the
step gets shorter.
"""
import argparse
import os
import statistics
import sys

from common import SOURCE, Results, add_arguments, load
from models import PEERS, SIZES
from runner import Runner

FROZEN = "model.base_model.transformer.mlp_lr_scale=[0]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--size", choices=SIZES, default="13M")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["transformers-sdpa", "transformers-eager"])
    parser.add_argument("--steps", type=int, default=12, help="of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for ours, as for fastllm-host")
    options = parser.parse_args()
    size = SIZES[options.size]
    tokens = size.batch * size.sequence
    ours = [options.host, "--plugin", "gpt", SOURCE / "bench/benchmark.yaml", f"training.train_iters={options.steps}",
            *size.overrides(), *options.overrides]
    runners = [Runner("ours", ours, options.steps)]
    for peer in options.peers:
        runners.append(Runner(peer, [sys.executable, SOURCE / "bench/peer_step.py", peer, "--size", options.size, "--steps",
                                     options.steps], options.steps))
    whole = list(runners)
    if options.frozen:
        runners += [Runner(f"{r.name}, MLP frozen", [*r.command, FROZEN if r.name == "ours" else "--freeze-mlp"],
                           options.steps) for r in whole]
    results = Results("step", options.json)
    print(f"{size.parameters:,} parameters, {tokens} tokens a step, {os.environ.get('OMP_NUM_THREADS', 'all')} threads")
    for number in range(1, options.rounds + 1):
        for runner in runners:
            runner.run()
        print(f"round {number} of {options.rounds}, load {load()}", file=sys.stderr, flush=True)
    first = runners[0]
    for runner in runners:
        cpu = statistics.median(runner.cpu) if runner.cpu else float("nan")
        results.add(
            f"{runner.name:34} median {runner.median():8.1f} ms  fastest {min(runner.times):8.1f} ms  processor {cpu:8.1f} ms  "
            f"{tokens / runner.median() * 1000:8.0f} tokens/s  peak {runner.peak:7.0f} MiB  "
            f"time / ours {runner.median() / first.median():.3f}, fastest {min(runner.times) / min(first.times):.3f}",
            who=runner.name, size=options.size, parameters=size.parameters, tokens=tokens, steps=len(runner.times),
            threads=os.environ.get("OMP_NUM_THREADS"), median_ms=runner.median(), fastest_ms=min(runner.times), cpu_ms=cpu,
            tokens_per_second=tokens / runner.median() * 1000, peak_mib=runner.peak,
            median_ratio=runner.median() / first.median(), fastest_ratio=min(runner.times) / min(first.times))
    if options.frozen:
        for plain, frozen in zip(whole, runners[len(whole):]):
            share = 1 - frozen.median() / plain.median()
            fastest = 1 - min(frozen.times) / min(plain.times)
            results.add(f"{plain.name:34} shorter by {100 * share:5.1f} % (median), {100 * fastest:5.1f} % (fastest)",
                        who=plain.name, size=options.size, shorter_by=share, shorter_by_fastest=fastest)


if __name__ == "__main__":
    main()
