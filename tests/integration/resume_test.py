#!/usr/bin/python3
"""A run that is stopped and started again gives the same bits as one that never stopped; signals end it as documented."""
import json
import random
import re
import signal
import unittest

from support import HostTest, losses_of, read_metrics, run_host, start_host, training_losses

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

    def arguments(self, experiment):
        return self.tiny_arguments(experiment, ITERATIONS, **self.changes)

    def run_whole(self):
        experiment = self.folder / "whole"
        self.assert_ok(run_host(*self.arguments(experiment)))
        return experiment

    def expected(self):
        """Of an uninterrupted run; made once for all tests."""
        if Resume.reference is None:
            Resume.reference = self.outcome(self.run_whole())
            self.assertEqual(len(Resume.reference), ITERATIONS + 4)
        return Resume.reference

    reference = None

    def outcome(self, experiment):
        """(phase, iteration) -> losses, learning rate, gradient norm; a step done twice must have come out the same."""
        result = {}
        for metrics in read_metrics(experiment):
            key = (metrics["phase"], metrics["iteration"])
            value = (losses_of(metrics), metrics.get("learning_rate"), metrics.get("grad_norm"))
            self.assertEqual(result.setdefault(key, value), value, key)
        return result

    def stop_at(self, experiment, step, number, twice=False, more=()):
        """Starts a run and sends the signal when the log line of the step appears. Returns exit code and output."""
        output = []
        with start_host(*self.arguments(experiment), *more) as process:
            for line in process.stdout:
                output.append(line)
                if re.search(rf"training @ iteration\s+{step}/", line):
                    process.send_signal(number)
                    if twice:
                        process.send_signal(number)
        return process.returncode, "".join(output)

    def finish(self, experiment):
        """Runs to the end and compares all that was logged: a validation that a signal cut short was done by the next start."""
        result = self.assert_ok(run_host(*self.arguments(experiment)))
        self.assertEqual(self.outcome(experiment), self.expected())
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
        stops = sorted(source.sample(range(2, ITERATIONS - 6), 3))
        for step in stops:
            code, output = self.stop_at(experiment, step, signal.SIGTERM)
            self.assertEqual(code, 3, output[-3000:])
            saved = max(int(p.name) for p in (experiment / "checkpoint").iterdir() if p.name.isdigit())
            self.assertIn(saved, (step, step + 1))  # the next step may have begun
        self.finish(experiment)

    def test_interrupt_saves(self):
        experiment = self.folder / "interrupted"
        code, output = self.stop_at(experiment, 5, signal.SIGINT)
        self.assertEqual(code, 3, output[-3000:])
        self.assertTrue(any((p / "ok").exists() for p in (experiment / "checkpoint").iterdir()))
        self.finish(experiment)

    def test_terminate_in_a_validation(self):
        # So many steps that the signal, sent when the line before the validation is out, comes in its middle.
        self.changes["training.validation"] = {"interval": 3, "iterations": 80}
        whole, experiment, short = self.folder / "whole", self.folder / "validating", "training.train_iters=4"
        self.assert_ok(run_host(*self.arguments(whole), short))
        self.assertEqual(self.stop_at(experiment, 3, signal.SIGTERM, more=[short])[0], 3)
        self.assert_ok(run_host(*self.arguments(experiment), short))
        self.assertEqual(self.outcome(experiment), self.outcome(whole))
        self.assert_ok(run_host("compare", whole, experiment))

    def test_a_log_line_tells_of_the_steps_before_a_stop_too(self):
        self.changes["training.logs.interval"] = 2
        self.changes["training.checkpoint.interval"] = 3
        whole, experiment, short = self.folder / "whole", self.folder / "between", "training.train_iters=4"
        self.assert_ok(run_host(*self.arguments(whole), short))
        self.assert_ok(run_host(*self.arguments(experiment), short, "training.shutdown.interval=3"))
        self.assert_ok(run_host(*self.arguments(experiment), short))
        self.assertEqual(self.outcome(experiment), self.outcome(whole))

    def test_second_interrupt_ends_at_once_and_leaves_nothing_half_done(self):
        experiment = self.folder / "twice"
        code, _ = self.stop_at(experiment, 5, signal.SIGINT, twice=True)
        self.assertIn(code, (-signal.SIGINT, 3))  # 3: both signals arrived before the handler ran once
        for folder in (experiment / "checkpoint").glob("[0-9]*"):
            self.assertTrue((folder / "ok").exists(), folder)
        self.finish(experiment)

    def test_finished_run_has_nothing_to_do_and_a_longer_one_goes_on(self):
        experiment = self.run_whole()
        result = self.assert_ok(run_host(*self.arguments(experiment)))
        self.assertIn("Training already completed", result.stdout)
        result = self.assert_ok(run_host(*self.arguments(experiment), "training.train_iters=43"))
        self.assertIn(f"Loading checkpoint from iteration {ITERATIONS}", result.stdout)
        self.assertEqual(max(training_losses(read_metrics(experiment))), 43)

    def test_start_up_is_told_in_order_and_the_test_phase_never_left_out(self):
        experiment = self.folder / "tested"
        batch, iterations = 4, 4
        arguments = [*self.tiny_arguments(experiment, iterations, training__checkpoint__interval=iterations, training__test_iters=1,
                                          batch__batch_size=batch),
                     "data.datasets.Test=" + json.dumps({"type": "memmap", "path": str(self.tiny_data("other", seed=3))})]

        def run(*more):
            output = self.assert_ok(run_host(*arguments, *more)).stdout
            self.assertEqual(output.count("test @ iteration"), 1)
            return output

        def assert_order(output, *lines):
            at = -1
            for line in lines:
                found = output.find(line, at + 1)
                self.assertGreater(found, at, line)
                at = found

        sample = "Initializing PhaseType.training data iterator from sample {}..."
        first = run()
        assert_order(first, "Command run:", "Creating model...", "Preparing datasets...", "Initializing training state from scratch...",
                     "done with setup ...", "After initial setup:", sample.format(0), "Training ...", "training @ iteration",
                     "Running test phase ...", "test @ iteration")
        done = run()
        assert_order(done, "Preparing datasets...", f"Loading checkpoint from iteration {iterations}...", "done with setup ...",
                     "Training already completed, nothing to do ...", "Running test phase ...", "test @ iteration")
        self.assertNotIn("data iterator", done)
        self.assertNotIn("training @ iteration", done)
        tests = [losses_of(m) for m in read_metrics(experiment) if m["phase"] == "test"]
        self.assertEqual(len(tests), 2)
        self.assertEqual(tests[0], tests[1])  # of the same weights
        longer = run(f"training.train_iters={iterations + 1}")
        assert_order(longer, f"Loading checkpoint from iteration {iterations}...", sample.format(iterations * batch), "Training ...",
                     "training @ iteration", "test @ iteration")

    def test_what_changed_is_told(self):
        experiment = self.folder / "changed"
        code, _ = self.stop_at(experiment, 9, signal.SIGTERM)
        self.assertEqual(code, 3)
        result = self.assert_ok(run_host(*self.arguments(experiment), "optimizer.weight_decay=0.5"))
        self.assertRegex(result.stdout, r"optimizer\.weight_decay: 0\.01 .*0\.5")

    def test_one_run_at_a_time(self):
        experiment = self.folder / "busy"
        with start_host(*self.arguments(experiment)) as first:
            next(line for line in first.stdout if "training @ iteration" in line)
            first.send_signal(signal.SIGSTOP)  # alive, and not done before the other looks
            self.assert_error(run_host(*self.arguments(experiment)), str(experiment), str(first.pid))
            first.kill()
            first.stdout.read()

if __name__ == "__main__":
    unittest.main()
