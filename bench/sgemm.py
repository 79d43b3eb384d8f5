#!/usr/bin/env python3
"""What matrix products reach here: the float32 products of a step of a models.py size, one by one, and a large square one.

    OMP_NUM_THREADS=2 PYTHON bench/sgemm.py [--size 13M]

Their sum is the time below which no step of that model can get on this computer with the same library.
"""
import argparse
import time

import torch

from common import Results, add_arguments
from models import SIZES


def fastest(function, seconds=1.0):
    function()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best


def product(m, n, k):
    a, b, out = torch.randn(m, k), torch.randn(n, k), torch.empty(m, n)
    return fastest(lambda: torch.mm(a, b.t(), out=out)), 2 * m * n * k


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--size", choices=SIZES, default="13M")
    options = parser.parse_args()
    results = Results("sgemm", options.json)
    size, total, operations = SIZES[options.size], 0.0, 0
    rows, width = size.batch * size.sequence, size.hidden // size.heads
    shapes = {"query, attention output": (size.hidden, size.hidden, 2 * size.layers),
              "key and value": (2 * size.groups * width, size.hidden, size.layers),
              "gate and up": (2 * size.ffn, size.hidden, size.layers), "down": (size.hidden, size.ffn, size.layers),
              "output": (size.vocabulary, size.hidden, 1)}
    for name, (n, k, count) in shapes.items():
        parts = [product(rows, n, k), product(rows, k, n), product(n, k, rows)]  # forward, gradient of the input, of the weight
        seconds, work = sum(p[0] for p in parts), sum(p[1] for p in parts)
        results.add(f"{name:24} {rows} x {n} x {k}: {work / seconds / 1e9:6.1f} GF/s, {count} times {seconds * 1000:7.2f} ms",
                    product=name, rows=rows, n=n, k=k, gflops=work / seconds / 1e9, ms=seconds * 1000, count=count)
        total, operations = total + count * seconds, operations + count * work
    results.add(f"all products of a step: {total * 1000:.1f} ms, {operations / total / 1e9:.1f} GF/s", product="step",
                ms=total * 1000, gflops=operations / total / 1e9, size=options.size)
    seconds, work = product(2048, 2048, 2048)
    results.add(f"2048 x 2048 x 2048: {work / seconds / 1e9:.1f} GF/s", product="square", gflops=work / seconds / 1e9)


if __name__ == "__main__":
    main()
