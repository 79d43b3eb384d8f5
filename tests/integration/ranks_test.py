#!/usr/bin/env python3
"""Runs of several processes: what they compute together, and how they end when something goes wrong.

The processes are tests/distributed/rank_program.cpp, which does what its command line says through the host's own library.
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

from support import BUILD, HOST, RANKS_TIMEOUT, end_all, environment, free_port, start, start_rank

PROGRAM = BUILD / "bin/rank_program"
def launch(ranks, *words, **env):
    """Through the launcher; returns when all ranks have ended."""
    return subprocess.run([PROGRAM, "--nproc", str(ranks), *words], capture_output=True, text=True, timeout=RANKS_TIMEOUT,
                          env=environment(**{"OMP_NUM_THREADS": "1", **env}))


def processes_of(marker):
    """Ids of processes whose command line holds the marker."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if marker in words:
                found.append(int(entry.name))
    return found


class RanksTest(unittest.TestCase):
    maxDiff = None

    def assert_ends(self, result, code, *parts):
        output = result.stdout + (result.stderr or "")
        self.assertEqual(result.returncode, code, output)
        for part in parts:
            self.assertRegex(output, part)
        self.assertNotRegex(output, r"terminate called|core dumped|frame #|Traceback|/pytorch/")
        return output

    def assert_all_say(self, output, ranks, sentence):
        """Each of the ranks ends with that sentence, once."""
        for rank in ranks:
            lines = [line for line in output.splitlines() if line.startswith(f"[Rank {rank}] error: ")]
            self.assertEqual(len(lines), 1, output)
            self.assertRegex(lines[0], sentence)


class Together(RanksTest):
    def test_collectives_of_all_types_in_all_groups(self):
        for ranks, mesh in ((3, []), (4, ["tensor=2", "pipeline=2"]), (4, ["tensor=2", "sequence_data=2"])):
            with self.subTest(ranks=ranks, mesh=mesh):
                output = self.assert_ends(launch(ranks, "collectives", *mesh), 0)
                self.assertEqual(sorted(output.splitlines()), [f"[Rank {r}] all right" for r in range(ranks)])

    def test_a_signal_on_one_rank_stops_all_at_the_same_step(self):
        output = self.assert_ends(launch(3, "steps", "event=signal", "rank=1", "at=7"), 0)
        self.assertEqual(len(re.findall(r"stopped at step 7 by signal 15", output)), 3, output)

    def test_a_difference_is_named_by_all(self):
        output = self.assert_ends(launch(3, "agree", "rank=1"), 1)
        self.assert_all_say(output, range(3), r'the same configuration .* in line 3: ranks 0, 2 have "  size: 4", rank 1 has "  size: 8"')

    def test_ranks_that_others_started(self):
        """torchrun, if there is one: its agent holds the store."""
        python = os.environ.get("FASTLLM_JUDGES_PYTHON")
        if not python:
            self.skipTest("FASTLLM_JUDGES_PYTHON names no Python with PyTorch")
        result = subprocess.run([python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2", "--master-port",
                                 str(free_port()), PROGRAM, "collectives"], capture_output=True, text=True, timeout=RANKS_TIMEOUT,
                                env=environment())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("all right"), 2, result.stdout + result.stderr)

    def test_ranks_of_a_slurm_step(self):
        def task(rank):
            slurm = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": str(rank), "SLURM_STEP_ID": "0",
                     "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": "1", "MASTER_PORT": port}
            return start(PROGRAM, "collectives", OMP_NUM_THREADS="1", **slurm)
        port = str(free_port())
        for code, output in end_all(self, task(0), task(1)):
            self.assertEqual((code, output), (0, "all right\n"))


class Meeting(RanksTest):
    def test_a_rank_that_does_not_come_is_named(self):
        port = free_port()
        ends = end_all(self, *(start_rank(rank, 3, port, PROGRAM, "meet", "timeout=1500") for rank in (0, 2)))
        for code, output in ends:
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"expected 3 ranks within 1.5 s, found that rank 1 did not come; there are rank 0 \(.*\), rank 2 \(")

    def test_rank_0_that_does_not_come_is_named(self):
        (code, output), = end_all(self, start_rank(1, 2, free_port(), PROGRAM, "meet", "timeout=1000"))
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"expected rank 0 at 127.0.0.1:\d+ within 1 s, found nothing there \(Connection refused\)")

    def test_a_taken_port_is_told_with_its_holder(self):
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = taken.getsockname()[1]
            ends = end_all(self, *(start_rank(rank, 2, port, PROGRAM, "meet", "timeout=1500") for rank in (0, 1)))
        self.assertEqual([code for code, _ in ends], [1, 1], ends)
        self.assertRegex(ends[0][1], rf"expected port {port} to be free for the ranks to meet at, found it taken by process {os.getpid()} "
                                     rf"\(.*\); set MASTER_PORT to another one")
        self.assertRegex(ends[1][1], rf"expected the store of the run at 127.0.0.1:{port}, found none that answers")

    def test_two_ranks_of_one_number(self):
        port = free_port()
        for code, output in end_all(self, *(start_rank(rank, 3, port, PROGRAM, "meet") for rank in (0, 1, 1))):
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"two processes say that they are rank 1: .*, process \d+ and .*, process \d+")

    def test_another_number_of_ranks(self):
        port = free_port()
        for code, output in end_all(self, start_rank(0, 2, port, PROGRAM, "meet"), start_rank(1, 3, port, PROGRAM, "meet")):
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"for 2 ranks, as rank 0 was, found rank 1 \(.*\) started for 3; start all with the same WORLD_SIZE")

    def test_nobody_says_where(self):
        (code, output), = end_all(self, start_rank(0, 2, "", PROGRAM, "meet", MASTER_ADDR=""))
        self.assertEqual(code, 1, output)
        self.assertIn("expected the variables MASTER_ADDR and MASTER_PORT to say where 2 ranks meet, found neither", output)


class Failures(RanksTest):
    """One event on one of three ranks. All runs are started first, a few at a time: most of them is waiting."""
    EVENTS = {
        "error": ["steps", "event=throw", "rank=1"],
        "busy": ["steps", "event=throw", "rank=1", "others=busy"],
        "kill 0": ["steps", "event=kill", "rank=0"],
        "kill 2": ["steps", "event=kill", "rank=2"],
        "freeze 0": ["steps", "event=freeze", "rank=0"],
        "freeze 1": ["steps", "event=freeze", "rank=1"],
        "hang": ["steps", "event=sleep", "rank=1", "timeout=3000"],
        "exit": ["steps", "event=exit", "rank=1"],
        "elsewhere": ["meet", "event=elsewhere", "rank=1"],
    }

    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            runs = {name: pool.submit(launch, 3, *words) for name, words in cls.EVENTS.items()}
            cls.results = {name: run.result() for name, run in runs.items()}

    def test_an_error_of_one_is_the_end_of_all(self):
        output = self.assert_ends(self.results["error"], 1)
        self.assert_all_say(output, [1], "error: the numbers ran out$")
        self.assert_all_say(output, [0, 2], "rank 1 failed: the numbers ran out$")

    def test_also_of_those_that_are_busy(self):
        output = self.assert_ends(self.results["busy"], 1)
        self.assert_all_say(output, [0, 2], "rank 1 failed: the numbers ran out$")

    def test_a_killed_rank(self):
        for rank in (0, 2):
            output = self.assert_ends(self.results[f"kill {rank}"], 128 + signal.SIGKILL,
                                      rf"error: rank {rank} was ended by signal 9 \(Killed\); ending the others")
            self.assert_all_say(output, {0, 1, 2} - {rank}, rf"rank {rank} \(.*, process \d+\) failed: it ended without a word")

    def test_a_rank_that_stands_still(self):
        for rank in (0, 1):
            output = self.assert_ends(self.results[f"freeze {rank}"], 1)
            self.assert_all_say(output, {0, 1, 2} - {rank}, rf"rank {rank} \(.*, process \d+\) failed: it .*stands still")

    def test_a_rank_whose_thread_hangs(self):
        output = self.assert_ends(self.results["hang"], 1)
        self.assert_all_say(output, range(3), r"rank 1 failed: it did not come to all_reduce number 6 over group world while "
                            r"rank \d waited \(Timed out waiting 3000ms .*\); the last it began was all_reduce number 5 over group world")

    def test_a_rank_that_leaves_early(self):
        output = self.assert_ends(self.results["exit"], 1)
        self.assert_all_say(output, [0, 2], r"rank 1 \(.*\) failed: it ended without a word, as a process does that is killed")

    def test_ranks_at_different_places(self):
        output = self.assert_ends(self.results["elsewhere"], 1)
        self.assert_all_say(output, range(3), 'ranks 0, 2 are at "evaluation 10", rank 1 is at "save 10"')


class Launcher(RanksTest):
    def start(self, *words):
        marker = f"marker={os.getpid()}-{time.monotonic_ns()}"
        process = start(PROGRAM, "--nproc", 3, "steps", marker, *words)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for _ in range(3):  # all are under way
            self.assertIn("running, process", process.stdout.readline())
        self.assertEqual(len(processes_of(marker)), 4)
        return process, marker

    def assert_gone(self, marker):
        deadline = time.monotonic() + RANKS_TIMEOUT
        while processes_of(marker):
            self.assertLess(time.monotonic(), deadline, "ranks were left behind")
            time.sleep(0.02)

    def test_a_signal_is_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, marker = self.start()
            process.send_signal(number)
            output = process.stdout.read()
            self.assertEqual(process.wait(RANKS_TIMEOUT), 0, output)
            steps = re.findall(rf"stopped at step (\d+) by signal {number:d}", output)
            self.assertEqual((len(steps), len(set(steps))), (3, 1), output)
            self.assert_gone(marker)

    def test_killed_itself_it_leaves_nobody_behind(self):
        process, marker = self.start()
        process.kill()
        process.wait(RANKS_TIMEOUT)
        self.assert_gone(marker)

    def test_a_rank_that_stays_behind_an_orderly_end_is_ended(self):
        result = subprocess.run([PROGRAM, "--nproc", "2", "stay", "after_end=300"], capture_output=True, text=True,
                                timeout=RANKS_TIMEOUT, env=environment())
        self.assertIn("rank 0 ended with code 0, rank 1 did not end after it; ending it", result.stderr)

    def test_lines_that_cannot_be_written_are_no_success(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "--nproc", "2", "threads"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=RANKS_TIMEOUT, env=environment())
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write what the ranks print: No space left on device; free space, or send it somewhere else", result.stderr)

    def test_of_the_host(self):
        def host(*words, **env):
            return subprocess.run([HOST, *words], capture_output=True, text=True, timeout=RANKS_TIMEOUT, env=environment(**env))
        result = host("--nproc", "2", "--plugin", "none-such")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(re.findall(r"\[Rank (\d+)\] error: ", result.stderr), ["0"], result.stderr)
        for words, env, sentence in (
                (["--nproc", "0", "--plugin", "gpt"], {}, "--nproc: expected a number of ranks from 1 to 1024, found 0"),
                (["plugins", "--nproc", "2"], {}, "--nproc: expected with evaluate, train only, found with plugins"),
                (["--nproc=2", "--plugin", "gpt"], {"RANK": "0", "WORLD_SIZE": "4"},
                 "expected either --nproc or a launcher, found both (WORLD_SIZE is 4)")):
            result = host(*words, **env)
            self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
            self.assertIn(sentence, result.stderr)

    def test_cores_are_divided(self):
        """Each rank computes with its share, unless the user says how many threads."""
        cores = len(os.sched_getaffinity(0))
        for given, expected in (({}, max(1, cores // 2)), ({"OMP_NUM_THREADS": "7"}, 7)):
            env = {name: value for name, value in environment().items() if name != "OMP_NUM_THREADS"}
            result = subprocess.run([PROGRAM, "--nproc", "2", "threads"], capture_output=True, text=True, timeout=RANKS_TIMEOUT,
                                    env={**env, **given})
            self.assertEqual(sorted(result.stdout.splitlines()), [f"[Rank {rank}] {expected} threads" for rank in range(2)])


if __name__ == "__main__":
    sys.exit(unittest.main())
