"""What the benchmarks share: which code and machine were measured, the load beside it, and results as JSON lines.

A result line is complete in itself (commit, date, machine, load, figures), so that lines of many days can be put in one file and
plotted.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parent.parent
HOST = SOURCE / "build/release/bin/fastllm-host"


def commit():
    """Short hash of what is checked out, with "+" where files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": model.group(1) if model else platform.processor(), "cores": len(os.sched_getaffinity(0))}


def load():
    """Processes that want a core: the mean of the last minute, as the system tells it."""
    return round(os.getloadavg()[0], 2)


class Results:
    """Prints lines for people, and keeps the same as JSON lines when a file is named."""

    def __init__(self, benchmark, path=None):
        self.path = path
        self.head = {"benchmark": benchmark, "commit": commit(),
                     "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": machine(),
                     "load_before": load()}

    def add(self, text, **figures):
        print(text, flush=True)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                print(json.dumps({**self.head, "load_after": load(), **figures}), file=file)


def add_arguments(parser):
    parser.add_argument("--host", default=HOST, help="the program to measure (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="append the results to it, one JSON object a line")
