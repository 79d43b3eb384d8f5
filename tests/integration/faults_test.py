#!/usr/bin/env python3
"""Faults of runs of several ranks: whatever happens to one of them at whatever time, all end soon, none with code 0, and say why.

The table: what a run is doing x what happens x to which rank x how the ranks share the work x who started them. Rows for every day are
chosen below; FASTLLM_ALL_FAULTS=1 runs them all (some twenty minutes on two cores):

    FASTLLM_ALL_FAULTS=1 python3 tests/integration/faults_test.py FaultTable
"""
import concurrent.futures
import itertools
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
import typing
import unittest
import uuid

from ranks_case import RanksCase
from support import (BUILD, HOST, RANKS_TIMEOUT, HostTest, end_all, free_port, lines_until, read_metrics, run_host, start, start_host,
                     start_rank)

PROGRAM = BUILD / "bin/rank_program"
FAULT, = BUILD.rglob("libfault_at_open.so")  # tests/distributed/fault_at_open.cpp

HEARTBEAT = 3  # seconds: model.distributed.heartbeat_timeout in the table
# Seconds from the fault to the last end: a silence, then what ranks (2) and the launcher (5 and 4) give each other. Four times that,
# since the machine may have much else to do; what a row waits for is told by its sentence.
BOUND = 4 * (HEARTBEAT + 2 + 5 + 4)

LAYOUTS = {
    "dp2": (2, {}),
    "dp2 zero 3": (2, {"model__multi_stage__zero_stage": 3}),
    "dp3": (3, {"model__multi_stage__zero_stage": 2}),
    "pp2": (2, {"model__distributed__pipeline_parallel": 2}),
    "tp2": (2, {"model__distributed__tensor_parallel": 2}),
}
PHASES = ("start", "data", "step", "save", "evaluation", "load")
FAULTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
STARTED_BY = ("nproc", "variables")


class Row(typing.NamedTuple):
    phase: str
    fault: str
    rank: int
    layout: str
    started_by: str

    @property
    def ranks(self):
        return LAYOUTS[self.layout][0]

    @property
    def others(self):
        return [rank for rank in range(self.ranks) if rank != self.rank]


def all_rows():
    for phase, fault, layout, started_by in itertools.product(PHASES, FAULTS, LAYOUTS, STARTED_BY):
        for rank in range(LAYOUTS[layout][0]):
            yield Row(phase, fault, rank, layout, started_by)


CHOSEN = [Row(*row) for row in (
    ("start", "kill", 0, "dp2", "nproc"),
    ("start", "kill", 1, "pp2", "variables"),
    ("start", "stop", 1, "tp2", "nproc"),
    ("data", "kill", 1, "tp2", "variables"),
    ("step", "kill", 0, "dp2 zero 3", "variables"),
    ("step", "kill", 1, "dp3", "nproc"),
    ("step", "stop", 0, "tp2", "nproc"),
    ("step", "stop", 1, "pp2", "variables"),
    ("save", "kill", 0, "dp2", "nproc"),
    ("save", "kill", 2, "dp3", "variables"),
    ("save", "stop", 1, "pp2", "nproc"),
    ("evaluation", "kill", 1, "tp2", "nproc"),
    ("evaluation", "stop", 0, "dp2 zero 3", "variables"),
    ("load", "kill", 1, "dp2 zero 3", "nproc"),
    ("load", "kill", 0, "pp2", "variables"),
    ("load", "stop", 1, "dp2", "nproc"),
)]


def fault_at(file, rank, number, writing=None):
    """Variables by which that rank gets the signal when it opens the file."""
    variables = {"LD_PRELOAD": str(FAULT), "FAULT_FILE": str(file), "FAULT_RANK": str(rank), "FAULT_SIGNAL": str(int(number))}
    return variables if writing is None else {**variables, "FAULT_WRITING": str(int(writing))}


def state_of(process):
    """As /proc says: R, S, T ...; Z: ended. Empty: gone."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def wait_until(condition, what, seconds=RANKS_TIMEOUT):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.01)


def processes_with(mark):
    """Ids of processes that have it among their variables."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # ended, or another user's
    return found


def rank_of(process):
    variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next((int(v[5:]) for v in variables if v.startswith(b"RANK=")), None)


class FaultsCase(RanksCase):
    def checkpoints_are_whole(self, experiment):
        """No folder without its mark, and nothing aside but what a save in work had."""
        for checkpoint in (experiment / "checkpoint").glob("*"):
            self.assertTrue((checkpoint / "ok").exists(), checkpoint)
        temporary = [p for p in experiment.rglob("*.tmp.*") if ".saving" not in p.parts]
        self.assertEqual(temporary, [])

    def says(self, output, rank, sentence):
        """That rank ends with this sentence, and with no other. Output of one process, or of the launcher."""
        lines = [line for line in output.splitlines() if re.match(rf"(\[Rank {rank}\] )?error: ", line)]
        self.assertEqual(len(lines), 1, output)
        self.assertRegex(lines[0], sentence)
        self.assertNotRegex(output, r"terminate called|core dumped|frame #|Traceback")


class Outcome(typing.NamedTuple):
    outputs: dict  # by rank; the launcher's under "all"
    codes: dict
    left: list
    experiment: pathlib.Path
    temporary: pathlib.Path


class FaultTable(FaultsCase):
    @classmethod
    def setUpClass(cls):
        rows = list(all_rows()) if os.environ.get("FASTLLM_ALL_FAULTS") else CHOSEN
        cls.rows = {row: None for row in rows}
        tool = cls("runTest")
        tool.setUp()
        cls.tool = tool
        cls.addClassCleanup(tool.doCleanups)
        tool.trained, _ = tool.train("trained", training__train_iters=5)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:  # most of a row is waiting
            for row, outcome in zip(rows, pool.map(tool.run_row, range(len(rows)), rows)):
                cls.rows[row] = outcome

    def runTest(self):
        pass

    def run_row(self, number, row):
        """What came of it; an exception is the outcome, too."""
        try:
            return self.outcome(number, row)
        except Exception as e:  # told by the row's test
            return e

    def changes(self, row):
        changes = {"batch__batch_size": 12, "training__train_iters": 100_000, "training__validation": {"iterations": None},
                   "training__checkpoint__interval": None, "model__distributed__heartbeat_timeout": HEARTBEAT,
                   "model__distributed__timeout": 8, **LAYOUTS[row.layout][1]}
        if row.phase == "save":
            changes["training__checkpoint__interval"] = 5
        if row.phase == "evaluation":
            changes["training__validation"] = {"interval": 2, "iterations": 20_000}
        return changes

    def outcome(self, number, row):
        experiment, temporary = self.folder / f"row-{number}", self.folder / f"tmp-{number}"
        temporary.mkdir()
        if row.phase == "load":
            shutil.copytree(self.trained, experiment)
        mark = f"FAULTS_TEST={uuid.uuid4()}"
        fault = FAULTS[row.fault]
        variables = {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "FAULTS_TEST": mark.partition("=")[2], **{
            "start": lambda: fault_at("libfastllm_gpt.so", row.rank, fault),
            "data": lambda: fault_at("tiny.idx", row.rank, fault),
            "save": lambda: fault_at("checkpoint-5/", row.rank, fault, writing=True),
            "load": lambda: fault_at("checkpoint/5/rank_", row.rank, fault)}.get(row.phase, dict)()}
        arguments = self.arguments(experiment, **self.changes(row))
        try:
            if row.started_by == "nproc":
                processes = {"all": start_host("--nproc", row.ranks, *arguments, **variables)}
            else:
                port = free_port()
                processes = {rank: start_rank(rank, row.ranks, port, HOST, *arguments, **variables) for rank in range(row.ranks)}
            told = self.fault_in(row, processes, mark, fault)
            if row.fault == "stop" and row.started_by == "variables":
                self.end_stopped(row, processes, mark)
            ends = {who: process.communicate(timeout=BOUND)[0] for who, process in processes.items()}
            return Outcome({who: told.get(who, "") + output for who, output in ends.items()},
                           {who: process.returncode for who, process in processes.items()}, processes_with(mark), experiment, temporary)
        finally:
            for left in processes_with(mark):
                os.kill(left, signal.SIGKILL)

    def fault_in(self, row, processes, mark, fault):
        """Sends the signal where no file does; gives what was read of the outputs."""
        line = {"step": r"training @ iteration +3/", "evaluation": r"training @ iteration +2/"}.get(row.phase)
        if not line:
            return {}
        first = "all" if "all" in processes else 0
        told = "\n".join(lines_until(processes[first], line)) + "\n"
        target, = (p for p in processes_with(mark) if rank_of(p) == row.rank)
        os.kill(target, fault)
        return {first: told}

    def end_stopped(self, row, processes, mark):
        """Nobody but its launcher ends a process that stands still: here the test, once the others have ended."""
        for rank in row.others:
            processes[rank].wait(timeout=BOUND)
        os.kill(processes[row.rank].pid, signal.SIGKILL)

    def sentence(self, row):
        """Of the other ranks."""
        if row.phase == "start":
            by_launcher = "|received while waiting for" if row.started_by == "nproc" and row.fault == "kill" else ""
            return rf"rank {row.rank} did not come|expected rank 0 at .* found nothing there{by_launcher}"
        if row.fault == "kill":
            return rf"rank {row.rank} \(.*, process \d+\) failed: it ended without a word"
        return rf"rank {row.rank} \(.*, process \d+\) failed: it .*stands still"

    def check(self, row, outcome):
        if isinstance(outcome, Exception):
            raise outcome
        if row.started_by == "nproc":
            output, code = outcome.outputs["all"], outcome.codes["all"]
            self.assertEqual(code, 128 + signal.SIGKILL if row.fault == "kill" else 1, output)
            if row.fault == "kill":
                self.assertRegex(output, rf"error: rank {row.rank} was ended by signal 9 \(Killed\); ending the others")
        for rank in row.others:
            output = outcome.outputs.get(rank, outcome.outputs.get("all"))
            if row.started_by == "nproc":  # without what the launcher says itself
                output = "\n".join(line for line in output.splitlines() if line.startswith(f"[Rank {rank}]"))
            else:
                self.assertEqual(outcome.codes[rank], 1, output)
            self.says(output, rank, self.sentence(row))
        self.assertEqual(outcome.left, [])
        self.assertEqual(list(outcome.temporary.iterdir()), [])
        self.checkpoints_are_whole(outcome.experiment)
        if row.phase == "save":
            self.assertFalse((outcome.experiment / "checkpoint/5").exists())

    def check_phase(self, phase):
        for row, outcome in self.rows.items():
            if row.phase == phase:
                with self.subTest(row=row):
                    self.check(row, outcome)

    def test_at_start(self):
        self.check_phase("start")

    def test_while_data_sets_are_made(self):
        self.check_phase("data")

    def test_in_a_step(self):
        self.check_phase("step")

    def test_in_a_save(self):
        self.check_phase("save")

    def test_in_an_evaluation(self):
        self.check_phase("evaluation")

    def test_while_a_checkpoint_is_loaded(self):
        self.check_phase("load")


class FaultsBeforeTheRun(FaultsCase):
    """What keeps ranks from meeting."""

    def ends(self, arguments, variables=({}, {}), port=None, ranks=2):
        port = port or free_port()
        words = arguments if isinstance(arguments[0], list) else [arguments] * ranks
        return end_all(self, *(start_rank(rank, ranks, port, HOST, *words[rank], **variables[rank]) for rank in range(ranks)))

    def test_what_is_wrong_with_all_is_told_once(self):
        wrong = self.arguments(self.folder / "wrong", batch__sequence_length=-1, model__distributed__timeout=20)
        sentence = r"batch\.sequence_length: expected .*-1"
        result = run_host("--nproc", 2, *wrong)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(re.findall(sentence, result.stderr)), 1, result.stderr)
        self.assertEqual(result.stdout.count("TrainerConfig"), 1, result.stdout)
        (first, output), (second, other) = self.ends(wrong)
        self.assertEqual((first, second, other), (1, 1, ""), output)
        self.assertEqual(len(re.findall(sentence, output)), 1, output)

    def test_what_is_wrong_with_one_ends_all(self):
        good = self.arguments(self.folder / "good")
        (first, output), (second, other) = self.ends([good, [*good, "batch.micro_batch_size=nine"]])
        self.assertEqual((first, second), (1, 1))
        self.says(other, 1, r"batch\.micro_batch_size: expected ")
        self.says(output, 0, r"rank 1 \(.*, process \d+\) failed: .*batch\.micro_batch_size: expected ")

    def test_wrong_usage_is_told_once(self):
        result = run_host("--nproc", 2, "train.yaml")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.count("expected --plugin NAME"), 1, result.stderr)

    def test_a_world_size_that_contradicts_the_configuration(self):
        wrong = self.arguments(self.folder / "wrong", model__distributed__world_size=4)
        (first, output), (second, other) = self.ends(wrong)
        self.assertEqual((first, second, other), (1, 1, ""))
        self.says(output, 0, r"model\.distributed\.world_size: .*4")

    def test_an_interface_that_is_not_there(self):
        good = self.arguments(self.folder / "good")
        sentence = r'GLOO_SOCKET_IFNAME: expected an interface of this computer .*\(.*lo.*\), found "none0"; name one'
        (first, output), (second, other) = self.ends(good, [{"GLOO_SOCKET_IFNAME": "none0"}] * 2)
        self.assertEqual((first, second, other), (1, 1, ""))
        self.says(output, 0, sentence)
        (first, output), (second, other) = self.ends(good, [{}, {"GLOO_SOCKET_IFNAME": "none0"}])
        self.assertEqual((first, second), (1, 1))
        self.says(other, 1, sentence)
        self.says(output, 0, r"rank 1 \(.*\) failed: .*" + sentence)

    def test_a_name_that_leads_nowhere(self):
        arguments = self.arguments(self.folder / "alone", model__distributed__timeout=1)
        (code, output), = end_all(self, start_rank(1, 2, free_port(), HOST, *arguments, MASTER_ADDR="nowhere.invalid"))
        self.assertEqual(code, 1)
        self.says(output, 1, r"expected rank 0 at nowhere\.invalid:\d+ within 1 s, found nothing there \(.*\); .*MASTER_ADDR")

    def test_the_port_of_another_run(self):
        """It is left alone, and the ranks that came to it are told."""
        port = free_port()
        running = [start_rank(rank, 2, port, PROGRAM, "steps", "pause=10") for rank in range(2)]
        for process in running:
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            lines_until(process, "running, process")
        arguments = self.arguments(self.folder / "second", model__distributed__timeout=5)
        (first, output), (second, other) = self.ends(arguments, port=port)
        self.assertEqual((first, second), (1, 1))
        self.says(output, 0, rf"expected port {port} to be free .* found it taken by process {running[0].pid} \(rank_program\)")
        self.says(other, 1, rf"expected a run that waits for rank 1, found that the one at that port began without it \(its rank 0 is .*, "
                            rf"process {running[0].pid}\); set MASTER_PORT to another one")
        running[1].send_signal(signal.SIGTERM)  # still at work: both stop at one step
        self.assertEqual([process.wait(RANKS_TIMEOUT) for process in running], [0, 0])


class FaultSignals(FaultsCase):
    def waiting(self, process):
        """Once it waits for others: the library for that is loaded."""
        self.addCleanup(process.kill)
        wait_until(lambda: "libfastllm_c10d" in pathlib.Path(f"/proc/{process.pid}/maps").read_text(), "waits for other ranks")
        return process

    def test_one_that_waits_for_rank_0(self):
        arguments = self.arguments(self.folder / "alone", model__distributed__timeout=1000)
        process = self.waiting(start_rank(1, 2, free_port(), HOST, *arguments))
        process.send_signal(signal.SIGTERM)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 3, output)
        self.says(output, 1, r"Interrupt signal SIGTERM received while waiting for rank 0 at 127\.0\.0\.1:\d+: nothing was begun")

    def test_all_that_wait_end_when_one_is_asked_to(self):
        arguments, port = self.arguments(self.folder / "two", batch__batch_size=12, model__distributed__timeout=1000), free_port()
        ranks = [start_rank(rank, 3, port, HOST, *arguments) for rank in (0, 2)]  # rank 1 never comes
        for process in ranks:
            self.waiting(process)
        ranks[1].send_signal(signal.SIGTERM)
        for code, output in end_all(self, *ranks):
            self.assertEqual(code, 3, output)
            self.says(output, 2, r"rank 2 \(.*\) was asked to stop: Interrupt signal SIGTERM received while waiting for the other ranks")

    def test_the_launcher_at_start(self):
        """A rank that stands still takes no signal: it does not keep the others, or the launcher."""
        process = start_host("--nproc", 2, *self.arguments(self.folder / "start", model__distributed__timeout=1000), OMP_NUM_THREADS="1",
                             **fault_at("libfastllm_gpt.so", 1, signal.SIGSTOP))
        self.addCleanup(process.kill)
        wait_until(lambda: len(self.ranks_of(process)) == 2, "two ranks")
        ranks = self.ranks_of(process)
        wait_until(lambda: state_of(ranks[1]) == "T", "rank 1 stands still")
        wait_until(lambda: "libfastllm_c10d" in pathlib.Path(f"/proc/{ranks[0]}/maps").read_text(), "rank 0 waits")
        process.send_signal(signal.SIGTERM)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 3, output)
        self.assertRegex(output, r"\[Rank 0\] error: .*Interrupt signal SIGTERM received while waiting for the other ranks")

    def test_preemption_under_slurm(self):
        """SIGTERM to all tasks of the step, as Slurm sends it: code 3, and the job that is queued again goes on."""
        experiment = self.folder / "preempted"

        def step(iterations):
            port = str(free_port())
            arguments = self.arguments(experiment, training__train_iters=iterations)
            return [start(HOST, *arguments, OMP_NUM_THREADS="1", SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2", SLURM_LOCALID=str(rank),
                          SLURM_NTASKS_PER_NODE="2", SLURM_STEP_ID="0", SLURM_STEP_NODELIST="localhost", SLURM_JOB_ID="7", MASTER_PORT=port)
                    for rank in range(2)]
        tasks = step(1_000_000)
        lines_until(tasks[0], r"training @ iteration +3/")
        for task in tasks:
            task.send_signal(signal.SIGTERM)
        (first, output), (second, other) = end_all(self, *tasks)
        self.assertEqual((first, second), (3, 3), output + other)
        done = int(re.search(r"Interrupt signal SIGTERM received: stopped after iteration (\d+), everything is saved", output)[1])
        (first, output), (second, other) = end_all(self, *step(done + 1))
        self.assertEqual((first, second), (0, 0), output + other)
        self.assertIn(f"Loading checkpoint from iteration {done}", output)
        self.assertEqual([m["iteration"] for m in read_metrics(experiment) if m["phase"] == "training"][-1], done + 1)


class FaultFiles(FaultsCase):
    """A disk that fails one rank."""

    def stopped_rank(self, process, rank):
        self.addCleanup(process.kill)
        wait_until(lambda: state_of(self.ranks_of(process).get(rank)) == "T", f"rank {rank} stands still")
        return self.ranks_of(process)[rank]

    def test_a_file_that_may_not_grow_so_large(self):
        experiment = self.folder / "large"
        process = start_host("--nproc", 2, *self.arguments(experiment), OMP_NUM_THREADS="1",
                             **fault_at("checkpoint-5/", 1, signal.SIGSTOP, writing=True))
        rank = self.stopped_rank(process, 1)
        resource.prlimit(rank, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # its log fits, its part of the states does not
        os.kill(rank, signal.SIGCONT)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 1, output)
        sentence = (r"saving iteration 5 in .*: File too large; raise the limit on the size of files \(ulimit -f\), or choose another "
                    r"run\.experiment_dir; the next start removes what is left of this save")
        self.assertRegex(output, r"\[Rank 1\] error: " + sentence)
        self.assertRegex(output, r"\[Rank 0\] error: rank 1 failed: " + sentence)
        self.checkpoints_are_whole(experiment)
        again = self.assert_ok(run_host("--nproc", 2, *self.arguments(experiment), OMP_NUM_THREADS="1"))
        self.assertRegex(again.stdout, r"Removing .*\.saving/checkpoint-5, left by a save that did not finish")
        self.assertEqual(list((experiment / ".saving").iterdir()), [])

    def test_a_folder_that_may_not_be_written(self):
        experiment = self.folder / "closed"
        (experiment / ".saving").mkdir(parents=True)
        (experiment / ".saving").chmod(0o555)
        self.addCleanup((experiment / ".saving").chmod, 0o755)
        # Permissions bind the superuser, too, once without this right.
        bound = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
        (code, output), = end_all(self, start(*bound, HOST, "--nproc", 2, *self.arguments(experiment), OMP_NUM_THREADS="1"))
        self.assertEqual(code, 1, output)
        sentence = r"saving iteration 5 in .*: Permission denied; give this user the permission to write there, or choose another "
        self.assertRegex(output, r"\[Rank 0\] error: " + sentence)
        self.assertRegex(output, r"\[Rank 1\] error: rank 0 failed: " + sentence)
        self.checkpoints_are_whole(experiment)

    def test_a_checkpoint_that_is_deleted_while_an_evaluation_loads_it(self):
        experiment, _ = self.train("trained", training__train_iters=5)
        process = start_host("evaluate", "--nproc", 2, "--plugin", "gpt", experiment, OMP_NUM_THREADS="1",
                             **fault_at("checkpoint/5/rank_0", 1, signal.SIGSTOP))
        rank = self.stopped_rank(process, 1)
        shutil.rmtree(experiment / "checkpoint/5")
        os.kill(rank, signal.SIGCONT)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 1, output)
        sentence = (r"cannot read .*checkpoint/5/rank_0\.safetensors: No such file or directory; expected .*checkpoint/5 to stay while it "
                    r"is loaded, found that it is no longer whole")
        self.assertRegex(output, r"\[Rank 1\] error: .*" + sentence)
        self.assertRegex(output, r"\[Rank 0\] error: rank 1 failed: .*" + sentence)


if __name__ == "__main__":
    unittest.main()
