#!/usr/bin/python3
"""Tensor logs of runs (docs/users/training.md): read, and compared as the reference's equivalence tests compare theirs.

    tensor_logs.py RUN_A RUN_B [--limits float32] [--scale 1] [--loss-scale 1] [--allow-duplicates NAME ...] [--ignore PATTERN ...]

RUN is the folder of a run (runs/0) or of its artifacts. Exit codes: 0 within the limits, 5 not, 1 an error. Standard library only.
"""
import argparse
import collections
import dataclasses
import json
import math
import pathlib
import re
import struct
import sys


class Bad(Exception):
    """A file that is no tensor log; one sentence."""


@dataclasses.dataclass
class Limits:
    """Of one quantity: differences of samples, absolute and relative to s = sqrt(mean(reference^2) + rms_eps^2)."""
    rms_eps: float = 1e-3
    rms: float = 5e-3
    rms_relative: float = 3e-2
    most: float = 5e-2
    most_relative: float = 0.15

    def scaled(self, factor):
        return Limits(self.rms_eps, self.rms * factor, self.rms_relative * factor, self.most * factor, self.most_relative * factor)


def limits(rms_relative, rms):
    """The largest difference may be ten times the usual one."""
    return Limits(rms / 10, rms, rms_relative, 10 * rms, 10 * rms_relative)


# By the kind of record; the first pattern that is found in "step: name" counts.
FLOAT32 = [
    (r" fw", limits(1e-3, 1e-4)),
    (r" bw", limits(3e-3, 1e-5)),
    (r"gradient: .*bias", limits(3e-3, 5e-5)),
    (r"gradient: ", limits(3e-3, 3e-5)),
    (r"^init: ", Limits(1e-3, 0, 0, 0, 0)),
    (r"param: ", limits(3e-3, 3e-5)),
]
# A run in bfloat16 beside the same one in float32.
BFLOAT16 = [
    (r" fw", limits(1.5e-2, 1.5e-3)),
    (r" bw", limits(1.5e-2, 1e-5)),
    (r"gradient: .*embeddings", limits(5e-2, 1e-4)),
    (r"gradient: .*bias", limits(2e-2, 1e-3)),
    (r"gradient: ", limits(2e-2, 5e-5)),
    (r"^init: ", Limits(1e-3, 0, 0, 0, 0)),
]
# The same of float16, its gradients divided by the loss scale (unscaled below).
FLOAT16 = [
    (r" fw", limits(1.2e-3, 3e-4)),
    (r" bw", limits(3e-3, 1e-5)),
    (r"gradient: .*bias", limits(3e-3, 1e-4)),
    (r"gradient: ", limits(3e-3, 5e-5)),
    (r"^init: ", Limits(1e-3, 0, 0, 0, 0)),
]
DEFAULT = [(r"", Limits())]
LIMITS = {"default": DEFAULT, "float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}


def read_log(path):
    """Records of one file in order; each a dictionary whose samples are a list of numbers (absent below level 3)."""
    content = pathlib.Path(path).read_bytes()
    if len(content) < 8:
        raise Bad(f"{path}: expected a tensor log, found {len(content)} bytes")
    length, = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise Bad(f"{path}: expected a header of at most {len(content) - 8} bytes, found {length}")
    try:
        header = json.loads(content[8:8 + length])
        records = json.loads(header["__metadata__"]["records"])
    except (ValueError, KeyError, TypeError) as error:
        raise Bad(f"{path}: expected the records of a tensor log in its header, found none ({error})") from None
    body = content[8 + length:]
    for record in records:
        if "samples" not in record:
            continue
        begin, end = header[record["samples"]]["data_offsets"]
        if not 0 <= begin <= end <= len(body) or (end - begin) % 4:
            raise Bad(f"{path}: expected samples of {record['name']} inside the file, found bytes {begin} to {end} of {len(body)}")
        record["samples"] = list(struct.unpack(f"<{(end - begin) // 4}f", body[begin:end]))
    return records


def read_run(folder, rank=0):
    """Step -> records. folder: of a run, or of its artifacts."""
    folder = pathlib.Path(folder)
    artifacts = folder / "artifacts" / str(rank)
    found = sorted((artifacts if artifacts.is_dir() else folder).glob("tensor_logs_*.safetensors"))
    if not found:
        raise Bad(f"expected tensor logs in {artifacts}, found none; train with run.tensor_logs.save=true and model.multi_stage.debug_*")
    return {path.name[len("tensor_logs_"):-len(".safetensors")]: read_log(path) for path in found}


def unscaled(run, loss_scale):
    """The run with its gradients, of layers and of parameters, divided by the scale of its loss."""
    divided = lambda record: {**record, "samples": [x / loss_scale for x in record["samples"]]}
    return {step: [divided(r) if "samples" in r and re.search(" bw: |gradient: ", r["name"]) else r for r in records]
            for step, records in run.items()}


def by_name(records, where, allow_duplicates=()):
    names = collections.Counter(record["name"] for record in records)
    problems = [f"{where}: {name} is there {count} times" for name, count in names.items()
                if count > 1 and not any(re.search(pattern, name) for pattern in allow_duplicates)]
    return {record["name"]: record for record in records}, problems  # of several the last


def differences(reference, other, limits):
    """What is wrong between two records with samples; empty: nothing."""
    for key in ("shape", "step"):
        if reference.get(key) != other.get(key):
            return [f"{key} {reference.get(key)} != {other.get(key)}"]
    a, b = reference.get("samples"), other.get("samples")
    if not a or not b:
        return []
    deltas = [abs(x - y) for x, y in zip(a, b, strict=True)]
    if any(map(math.isnan, deltas)):
        return ["samples that are no numbers"]
    scale = math.sqrt(sum(x * x for x in a) / len(a) + limits.rms_eps ** 2)
    rms, most = math.sqrt(sum(d * d for d in deltas) / len(a)), max(deltas)
    # A difference counts when it is too large both in itself and beside the reference: large values carry large errors.
    checks = [("rms", rms, limits.rms, limits.rms_relative), ("largest", most, limits.most, limits.most_relative)]
    return [f"{what} difference {value:.3g} (limit {limit:.3g}), relative {value / scale:.3g} (limit {relative:.3g})"
            for what, value, limit, relative in checks if value > limit and value / scale > relative]


def compare(run_a, run_b, limits=None, scale=1.0, allow_duplicates=(), ignore=()):
    """Lines that say what differs beyond the limits: steps, names, shapes, samples. run_a is the reference."""
    problems = []
    if set(run_a) != set(run_b):
        problems.append(f"steps: {sorted(set(run_a) ^ set(run_b))} only in one of the runs")
    for step in sorted(set(run_a) & set(run_b)):
        a, twice_a = by_name(run_a[step], f"{step}, first run", allow_duplicates)
        b, twice_b = by_name(run_b[step], f"{step}, second run", allow_duplicates)
        problems += twice_a + twice_b
        kept = [name for name in a.keys() | b.keys() if not any(re.search(pattern, name) for pattern in ignore)]
        for name in sorted(kept):
            if name not in a or name not in b:
                problems.append(f"{step}: {name} only in the {'second' if name in b else 'first'} run")
                continue
            found = next((limit for pattern, limit in limits or DEFAULT if re.search(pattern, f"{step}: {name}")), Limits())
            problems += [f"{step}: {name}: {line}" for line in differences(a[name], b[name], found.scaled(scale))]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies all limits")
    parser.add_argument("--loss-scale", type=float, default=1.0, help="of the second run; its gradients are divided by it")
    parser.add_argument("--limits", choices=LIMITS, default="default", help="of runs in that type instead of the default ones")
    parser.add_argument("--allow-duplicates", nargs="*", default=[], metavar="PATTERN")
    parser.add_argument("--ignore", nargs="*", default=[], metavar="PATTERN")
    arguments = parser.parse_args()
    try:
        first, second = map(read_run, arguments.runs)
    except (Bad, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    second = unscaled(second, arguments.loss_scale)
    problems = compare(first, second, LIMITS[arguments.limits], arguments.scale, arguments.allow_duplicates, arguments.ignore)
    print("\n".join(problems) or "within the limits")
    return 5 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
