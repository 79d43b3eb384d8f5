#!/usr/bin/env python3
"""By what share does a step get shorter with the MLP layers frozen: here, and in Transformers with the same parameters frozen.

    OMP_NUM_THREADS=2 "$FASTLLM_JUDGES_PYTHON" bench/frozen_step.py [--host build/release/bin/fastllm-host] [--rounds N]

Runs the four (whole and frozen, ours and theirs) in turn, round after round, so that a computer that gets slower or faster does so
for all; a figure is the median over all settled steps of all rounds.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FROZEN = "model.base_model.transformer.mlp_lr_scale=[0]"


def steps(command, pattern, count):
    """Milliseconds of the settled steps (the first quarter warms up)."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    times = [float(text.replace(",", "")) for text in re.findall(pattern, output)]
    if len(times) != count:
        raise SystemExit(f"expected {count} step times from {' '.join(map(str, command))}, found {len(times)} in\n{output}")
    return times[count // 4:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default=HERE.parent / "build/release/bin/fastllm-host")
    parser.add_argument("--steps", type=int, default=12, help="of one run")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ours = [options.host, "--plugin", "gpt", HERE / "benchmark.yaml", f"training.train_iters={options.steps}"]
    theirs = [sys.executable, HERE / "transformers_step.py", "--steps", str(options.steps)]
    our_pattern, their_pattern = r"step time: ([\d,.]+) ms", r"step +\d+ \| +([\d.]+) ms"
    runs = {("ours", "whole"): (ours, our_pattern), ("ours", "frozen"): (ours + [FROZEN], our_pattern),
            ("transformers", "whole"): (theirs, their_pattern),
            ("transformers", "frozen"): (theirs + ["--freeze-mlp"], their_pattern)}
    times = {key: [] for key in runs}
    for number in range(1, options.rounds + 1):
        for key, (command, pattern) in runs.items():
            times[key] += steps(command, pattern, options.steps)
        print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
    for who in ("ours", "transformers"):
        whole, frozen = (statistics.median(times[who, what]) for what in ("whole", "frozen"))
        print(f"{who:12}  whole {whole:8.1f} ms   frozen {frozen:8.1f} ms   shorter by {100 * (1 - frozen / whole):5.1f} %")


if __name__ == "__main__":
    main()
