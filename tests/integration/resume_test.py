#!/usr/bin/python3
"""A run that is stopped and started again gives the same bits as one that never stopped; signals end it as documented."""
import random
import re
import signal
import unittest

from support import HostTest, read_metrics, run_host, start_host, training_losses

ITERATIONS = 40


class Resume(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()
        # Everything that could go out of step: several micro-batches, a moving learning rate, validation.
        self.changes = {
            "batch.micro_batch_size": 2, "training.checkpoint.interval": 7, "training.checkpoint.keep": 20,
            "training.validation": {"interval": 10, "iterations": 2},
            "data.datasets.Validation": {"type": "memmap", "path": str(self.tiny_data("held_out", seed=2))},
            "optimizer.learning_rate.decay_style": "cosine", "optimizer.learning_rate.decay_iterations": ITERATIONS,
            "optimizer.learning_rate.warmup_iterations": 5,
        }
        self.whole = self.folder / "whole"
        self.assert_ok(run_host(*self.arguments(self.whole)))
        self.expected = self.outcome(self.whole)
        self.assertEqual(len(self.expected), ITERATIONS + 4)

    def arguments(self, experiment, **changes):
        return self.tiny_arguments(experiment, ITERATIONS, **self.changes, **changes)

    def outcome(self, experiment):
        """(phase, iteration) -> losses, learning rate, gradient norm; a step done twice must have come out the same."""
        result = {}
        for metrics in read_metrics(experiment):
            key = (metrics["phase"], metrics["iteration"])
            value = (metrics["losses"], metrics.get("learning_rate"), metrics.get("grad_norm"))
            self.assertEqual(result.setdefault(key, value), value, key)
        return result

    def stop_at(self, experiment, step, number, twice=False):
        """Starts a run and sends the signal when the log line of the step appears. Returns exit code and output."""
        process = start_host(*self.arguments(experiment))
        output = []
        for line in process.stdout:
            output.append(line)
            if re.search(rf"training @ iteration\s+{step}/", line):
                process.send_signal(number)
                if twice:
                    process.send_signal(number)
        return process.wait(), "".join(output)

    def finish(self, experiment):
        result = self.assert_ok(run_host(*self.arguments(experiment)))
        self.assertEqual(self.outcome(experiment), self.expected)
        return result.stdout

    def test_kill_between_checkpoints(self):
        for step in (10, 20):
            with self.subTest(step):
                experiment = self.folder / f"killed-{step}"
                code, _ = self.stop_at(experiment, step, signal.SIGKILL)
                self.assertEqual(code, -signal.SIGKILL)
                output = self.finish(experiment)
                self.assertRegex(output, r"Loading checkpoint from iteration \d+")

    def test_kill_before_the_first_checkpoint(self):
        experiment = self.folder / "early"
        code, _ = self.stop_at(experiment, 3, signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.finish(experiment)

    def test_terminate_at_any_step(self):
        source = random.Random(3)
        experiment = self.folder / "terminated"
        # Several stops in one experiment, at steps that are no multiple of anything.
        for step in sorted(source.sample(range(2, ITERATIONS - 6), 3)):
            code, output = self.stop_at(experiment, step, signal.SIGTERM)
            self.assertEqual(code, 3, output[-3000:])
            saved = max(int(p.name) for p in (experiment / "checkpoint").iterdir() if p.name.isdigit())
            self.assertGreaterEqual(saved, step)
        self.finish(experiment)

    def test_interrupt_saves(self):
        experiment = self.folder / "interrupted"
        code, output = self.stop_at(experiment, 5, signal.SIGINT)
        self.assertEqual(code, 3, output[-3000:])
        self.assertTrue(any((p / "ok").exists() for p in (experiment / "checkpoint").iterdir()))
        self.finish(experiment)

    def test_second_interrupt_ends_at_once_and_leaves_nothing_half_done(self):
        experiment = self.folder / "twice"
        code, _ = self.stop_at(experiment, 5, signal.SIGINT, twice=True)
        self.assertIn(code, (-signal.SIGINT, 3))  # 3: both signals arrived before the handler ran once
        for folder in (experiment / "checkpoint").glob("[0-9]*"):
            self.assertTrue((folder / "ok").exists(), folder)
        self.finish(experiment)

    def test_finished_run_has_nothing_to_do(self):
        result = self.assert_ok(run_host(*self.arguments(self.whole)))
        self.assertIn("Training already completed", result.stdout)

    def test_longer_run_goes_on(self):
        output = self.assert_ok(run_host(*self.arguments(self.whole), "training.train_iters=43")).stdout
        self.assertIn(f"Loading checkpoint from iteration {ITERATIONS}", output)
        self.assertEqual(max(training_losses(read_metrics(self.whole))), 43)


if __name__ == "__main__":
    unittest.main()
