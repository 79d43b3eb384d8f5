"""Runs one who takes part and reads its steps: time, processor time, memory."""
import os
import re
import statistics
import subprocess

from common import SOURCE

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """User and system time of all threads so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Runner:
    """One who takes part: a command that prints a line with `step time: N ms` after each step."""

    def __init__(self, name, command, steps):
        self.name, self.command, self.steps = name, [str(part) for part in command], steps
        self.times, self.peak = [], 0  # ms of all settled steps, MiB
        self.rounds, self.cpu = [], []  # ms: the median step of each run, and a step's processor time in each

    def run(self):
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   cwd=SOURCE / "bench")
        times, marks, output = [], [], []
        for line in process.stdout:
            output.append(line)
            if found := re.search(r"step time: ([\d,.]+) ms", line):
                times.append(float(found.group(1).replace(",", "")))
                try:
                    marks.append(cpu_seconds(process.pid))
                except (ProcessLookupError, FileNotFoundError):  # it ended after its last line
                    pass
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or len(times) != self.steps:
            raise SystemExit(f"expected {self.steps} step times and exit code 0 from {' '.join(self.command)}, "
                             f"found {len(times)} and {process.returncode}:\n{''.join(output[-30:])}")
        settled = self.steps // 4
        self.times += times[settled:]
        self.rounds.append(statistics.median(times[settled:]))
        if len(marks) > settled + 1:
            self.cpu.append((marks[-1] - marks[settled]) / (len(marks) - 1 - settled) * 1000)
        self.peak = max(self.peak, usage.ru_maxrss / 1024)

    def median(self):
        return statistics.median(self.times)
