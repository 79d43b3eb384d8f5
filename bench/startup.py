#!/usr/bin/env python3
"""How long it takes from the start of the program to its answer, and to the first training step.

    python3 bench/startup.py [--rounds N]
"""
import argparse
import re
import subprocess
import time

from common import SOURCE, Results, add_arguments
from models import SIZES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    results = Results("startup", options.json)
    train = ["--plugin", "gpt", str(SOURCE / "bench/benchmark.yaml"), *SIZES["13M"].overrides()]
    commands = {"--version": ["--version"], "--help": ["--help"], "plugins": ["plugins"],
                "schema": ["schema", "--plugin", "gpt"], "--validate": [*train, "--validate"],
                "first step begins": [*train, "training.train_iters=1"]}
    for name, arguments in commands.items():
        seconds = []
        for _ in range(options.rounds):
            begin = time.perf_counter()
            process = subprocess.Popen([str(options.host), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            took = None
            for line in process.stdout:
                if name == "first step begins" and re.search(r" Training \.\.\.", line):
                    took = time.perf_counter() - begin
            if process.wait() != 0:
                raise SystemExit(f"expected exit code 0 from {options.host} {' '.join(arguments)}, found {process.returncode}")
            seconds.append(took or time.perf_counter() - begin)
        seconds.sort()
        results.add(f"{name:18} fastest {seconds[0] * 1000:8.1f} ms  median {seconds[len(seconds) // 2] * 1000:8.1f} ms",
                    what=name, fastest_ms=seconds[0] * 1000, median_ms=seconds[len(seconds) // 2] * 1000)


if __name__ == "__main__":
    main()
