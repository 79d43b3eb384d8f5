#!/usr/bin/env python3
"""Time, processor time and memory of a training step: ours and others', in turn.

    OMP_NUM_THREADS=2 PYTHON bench/step.py [--size 13M] [--peers transformers-sdpa ...] [--rounds N] [--frozen]

PYTHON is one that has the peers: the tests' judges have transformers; `scripts/setup.sh --bench` makes one with litgpt.
Everyone runs in turn, round after round, so that a computer that gets slower or faster does so for all. A step counts when a
quarter of its run is over. `--frozen` measures everyone also with the MLP layers frozen, next to the run without, and prints by
what share the step gets shorter: a share a round, of times close to each other, and the median of the shares.
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
    whole = [Runner("ours", ours, options.steps)]
    for peer in options.peers:
        whole.append(Runner(peer, [sys.executable, SOURCE / "bench/peer_step.py", peer, "--size", options.size, "--steps",
                                   options.steps], options.steps))
    frozen = [Runner(f"{runner.name}, MLP frozen", [*runner.command, FROZEN if runner.name == "ours" else "--freeze-mlp"],
                     options.steps) for runner in whole] if options.frozen else []
    runners = whole + frozen
    results = Results("step", options.json)
    print(f"{size.parameters:,} parameters, {tokens} tokens a step, {os.environ.get('OMP_NUM_THREADS', 'all')} threads")
    for number in range(1, options.rounds + 1):
        for neighbours in zip(whole, frozen) if frozen else zip(whole):
            for runner in neighbours if number % 2 else reversed(neighbours):  # who goes first changes
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
    for plain, part in zip(whole, frozen):
        shares = shorter_by(plain.rounds, part.rounds)
        cpu = shorter_by(plain.cpu, part.cpu)
        results.add(
            f"{plain.name:34} shorter by {100 * statistics.median(shares):5.1f} % (rounds: "
            f"{', '.join(f'{100 * share:.1f}' for share in shares)}), processor {100 * statistics.median(cpu):5.1f} % (rounds: "
            f"{', '.join(f'{100 * share:.1f}' for share in cpu)})",
            who=plain.name, size=options.size, shorter_by=statistics.median(shares), shorter_by_rounds=shares,
            shorter_by_cpu=statistics.median(cpu), shorter_by_cpu_rounds=cpu)


def shorter_by(plain, frozen):
    """Share of the time that is saved, round by round."""
    return [1 - after / before for before, after in zip(plain, frozen)]


if __name__ == "__main__":
    main()
