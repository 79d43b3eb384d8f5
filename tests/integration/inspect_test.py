#!/usr/bin/python3
"""Looking at runs: evaluation without training, comparison of runs, tensor logs, profiles, what follows divergence, limits of time."""
import json
import math
import signal
import sys
import unittest

from support import SOURCE, HostTest, losses_of, read_metrics, run_host, start_host, training_losses

sys.path.insert(0, str(SOURCE / "tests/support"))
import tensor_logs  # noqa: E402

LEVELS = {f"model.multi_stage.debug_{name}": 13 for name in
          ("layer_outputs", "layer_gradients", "param_init", "all_param_gradients", "param_update")}


class InspectTest(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, name, iterations=6, code=0, **changes):
        experiment = self.folder / name
        result = self.assert_ok(run_host(*self.tiny_arguments(experiment, iterations, **changes)), code)
        return experiment, result.stdout


class Evaluate(InspectTest):
    def setUp(self):
        super().setUp()
        self.changes = {
            "data.datasets.Validation": {"type": "memmap", "path": str(self.tiny_data("other", seed=2))},
            "data.datasets.code": {"type": "memmap", "path": str(self.tiny_data("code", seed=3))},
            "data.datasets.Test": {"type": "memmap", "path": str(self.tiny_data("test", seed=4))},
            "training.validation": {"interval": 3, "iterations": 2, "code": {"interval": 2, "iterations": 1}},
            "training.test_iters": 2, "training.checkpoint.interval": 2,
        }

    def losses(self, experiment, run=None):
        return {(m["phase"], m["iteration"]): losses_of(m) for m in read_metrics(experiment, run) if m["phase"] != "training"}

    def evaluate(self, *arguments, code=0):
        return self.assert_ok(run_host("evaluate", "--plugin", "gpt", *arguments), code).stdout

    def test_gives_what_training_gave_at_that_iteration(self):
        experiment, output = self.train("run", **self.changes)
        trained = self.losses(experiment)
        self.assertEqual(sorted(trained), [("test", 6), ("validation", 3), ("validation", 6), ("validation/code", 2), ("validation/code", 4),
                                           ("validation/code", 6)])
        self.assertIn("validation/code @ iteration      2/     6", output)
        before = (experiment / "config.yaml").read_bytes()
        # The newest checkpoint of an experiment, named in three ways; each is a run of its own.
        for run, what in enumerate((experiment, experiment / "checkpoint/6", experiment / "runs/0"), 1):
            with self.subTest(what):
                output = self.evaluate(what)
                self.assertIn("Loading checkpoint from iteration 6", output)
                self.assertEqual(self.losses(experiment, run), {k: v for k, v in trained.items() if k[1] == 6})
                self.assertTrue((experiment / f"runs/{run}/provenance.yaml").is_file())
        # An older checkpoint: what training logged there for the set that was due.
        self.evaluate(experiment / "checkpoint/4")
        self.assertEqual(self.losses(experiment, 4)["validation/code", 4], trained["validation/code", 4])
        self.assertEqual((experiment / "config.yaml").read_bytes(), before)

    def test_takes_a_configuration_and_overrides(self):
        experiment, _ = self.train("run", **self.changes)
        changes = {**self.changes, "training.validation": {"iterations": 3}, "training.test_iters": 0}
        del changes["data.datasets.code"]
        arguments = self.tiny_arguments(experiment, 6, **changes)
        self.assert_ok(run_host("evaluate", *arguments))
        self.assertEqual(list(self.losses(experiment, 1)), [("validation", 6)])

    def test_moved_experiment(self):
        experiment, _ = self.train("run", **self.changes)
        moved = self.folder / "moved"
        experiment.rename(moved)
        self.evaluate(moved)
        self.assertTrue((moved / "runs/1/metrics.jsonl").is_file())
        self.assertFalse(experiment.exists())

    def test_while_training_goes_on(self):
        experiment, _ = self.train("run", **self.changes)
        with start_host(*self.tiny_arguments(experiment, 2000, **{**self.changes, "training.checkpoint.interval": 1000})) as training:
            next(line for line in training.stdout if "training @ iteration" in line)
            training.send_signal(signal.SIGSTOP)
            self.evaluate(experiment)
            training.kill()
            training.stdout.read()

    def test_what_cannot_be_evaluated(self):
        self.assert_error(run_host("evaluate", *self.tiny_arguments(self.folder / "none", 4, **self.changes)),
                          "expected a checkpoint in", "to evaluate, found none", "training.checkpoint.interval")
        self.assert_error(run_host("evaluate", *self.tiny_arguments(None, 4)), "run.experiment_dir: expected the folder")
        self.assert_error(run_host("evaluate", "--plugin", "gpt", self.folder), "found no config.yaml in")
        experiment, _ = self.train("run", iterations=2, training__checkpoint__interval=2)
        self.assert_error(run_host("evaluate", "--plugin", "gpt", experiment), "expected something to evaluate, found neither")
        self.assert_error(run_host("evaluate", "--plugin", "gpt", experiment, "training.validation={iterations: 2}"),
                          "data.datasets.Validation: expected a dataset for training.validation, found none")
        test = ["training.test_iters=1", f"data.datasets.Test={{type: memmap, path: {self.data}}}"]
        renamed = (experiment / "checkpoint/2").rename(experiment / "checkpoint/best")
        self.assert_error(run_host("evaluate", "--plugin", "gpt", renamed, *test),
                          f"expected a folder named after its iteration, found {renamed}")
        renamed = renamed.rename(experiment / "checkpoint/700")
        self.assert_error(run_host("evaluate", "--plugin", "gpt", renamed, *test),
                          f"expected 700 completed steps in {renamed}, as its folder is called, found 2")
        renamed.rename(experiment / "checkpoint/2")
        (experiment / "checkpoint/2/ok").unlink()
        self.assert_error(run_host("evaluate", "--plugin", "gpt", experiment / "checkpoint/2", *test),
                          "expected a complete checkpoint at", "lacks ok")


class Compare(InspectTest):
    def compare(self, *arguments, code=0):
        return self.assert_ok(run_host("compare", *arguments), code).stdout

    def test_two_runs(self):
        one, _ = self.train("one")
        two, _ = self.train("two")
        other, _ = self.train("other", optimizer__weight_decay=0.5)
        output = self.compare(one, two)
        self.assertIn("`run.experiment_dir`", output)
        self.assertIn("Data: the same\nVersions: the same\nLosses: 6 compared, 0 differ", output)
        output = self.compare(one / "runs/0", other, code=5)
        self.assertIn("  `optimizer.weight_decay`: `0.01` != `0.5`\n", output)
        self.assertIn("first:   training @ 2: language_model_loss: ", output)  # the first update moves what the second loss sees
        self.compare(one, other, "--tolerance", "0.5")
        answer = json.loads(self.compare(one, other, "--json", code=5))
        self.assertEqual((answer["losses_agree"], answer["compared"], answer["first"]["iteration"]), (False, 6, 2))
        self.assertEqual([d for d in answer["configuration"] if d["key"] == "optimizer.weight_decay"],
                         [{"key": "optimizer.weight_decay", "a": "0.01", "b": "0.5"}])

    def test_a_shorter_run_and_a_resumed_one(self):
        whole, _ = self.train("whole", training__checkpoint__interval=3)
        part, _ = self.train("part", iterations=3, training__checkpoint__interval=3)
        self.assertIn("Note: 3 only in the first run (training @ 4, training @ 5, training @ 6)", self.compare(whole, part))
        self.train("part", training__checkpoint__interval=3)
        self.compare(whole, part)

    def test_bad_usage(self):
        self.assert_error(run_host("compare", "a"), "expected two folders to compare, found 1", code=2)
        self.assert_error(run_host("compare", "a", "b", "--tolerance", "-1"), "--tolerance: expected a number from 0 up, found -1", code=2)
        self.assert_error(run_host("compare", self.folder, self.folder), "expected the folder of a run")
        self.assertIn("RUN_A RUN_B", self.compare("--help"))


class TensorLogs(InspectTest):
    def logged(self, name, **changes):
        experiment, output = self.train(name, iterations=2, run__tensor_logs={"save": True, "show": False}, **{**LEVELS, **changes})
        return tensor_logs.read_run(experiment / "runs/0"), output

    def test_records(self):
        run, output = self.logged("run")
        self.assertEqual(sorted(run), ["init", "train_1", "train_2"])
        self.assertIn("Saving artifact to ", output)
        names = [r["name"] for r in run["train_1"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(any(n.startswith("Global layer 2 fw: ") for n in names), names)
        self.assertTrue(any(n.startswith("Global layer 2 bw: ") for n in names), names)
        self.assertEqual(sum(n.startswith("Global gradient: ") for n in names), sum(n.startswith("Global param: ") for n in names))
        for record in run["train_1"]:
            self.assertEqual(set(record), {"name", "shape", "dtype", "device", "mu", "std", "stride", "min", "max", "step", "samples"})
            self.assertTrue(all(record["min"] <= x <= record["max"] for x in record["samples"]))
            self.assertEqual(len(record["samples"]), min(1024, -(-math.prod(record["shape"]) // record["step"])))

    def test_same_runs_agree_and_others_do_not(self):
        one, _ = self.logged("one")
        two, _ = self.logged("two")
        self.assertEqual(tensor_logs.compare(one, two), [])
        self.assertEqual(one, two)
        # Recomputation and another seed: no bit, and everything.
        again, _ = self.logged("again", training__recompute_activations=True)
        self.assertEqual(tensor_logs.compare(one, again, tensor_logs.FLOAT32, scale=0), [])
        other, _ = self.logged("other", model__distributed__seed=7)
        problems = tensor_logs.compare(one, other)
        self.assertTrue(any(line.startswith("init: Global param: ") for line in problems), problems)

    def test_micro_batches_have_the_same_gradients(self):
        one, _ = self.logged("one")
        four, _ = self.logged("four", batch__micro_batch_size=1)
        names = [r["name"] for r in four["train_1"]]
        self.assertTrue(any(", mb=3/4: " in n for n in names), names)
        self.assertEqual(tensor_logs.compare(one, four, tensor_logs.FLOAT32, ignore=[" fw", " bw", "param: "]), [])
        self.assertTrue(any("only in the" in line for line in tensor_logs.compare(one, four)))

    def test_orders_of_micro_batches_and_numbers_of_buffers_change_nothing(self):
        four, _ = self.logged("four", batch__depth_first_micro_batches=4)
        for name, changes in {"breadth": {"batch.breadth_first_micro_batches": 4},
                              "both": {"batch.breadth_first_micro_batches": 2, "batch.depth_first_micro_batches": 2},
                              "zero-2": {"batch.depth_first_micro_batches": 4, "model.multi_stage.zero_stage": 2},
                              "zero-3": {"batch.depth_first_micro_batches": 4, "model.multi_stage.zero_stage": 3}}.items():
            with self.subTest(name):
                other, _ = self.logged(name, **changes)
                self.assertIn(", mb=3/4: ", "".join(r["name"] for r in other["train_1"]))
                # Each hand-over of a shared buffer logs the gradients again.
                shared = ["Global gradient: "] if "zero" in name else []
                self.assertEqual(tensor_logs.compare(four, other, tensor_logs.FLOAT32, allow_duplicates=shared), [])

    def test_sixteen_bits_are_near_float32(self):
        transformer = "model.base_model.transformer."
        models = {"llama": {}, "gpt2": {f"{transformer}gated": False, f"{transformer}add_linear_biases": True,
                                        f"{transformer}normalization.type": "layer_norm", f"{transformer}rotary.type": "none",
                                        "model.base_model.tie_word_embeddings": True}}
        types = {"bfloat16": (tensor_logs.BFLOAT16, 1), "float16": (tensor_logs.FLOAT16, 65536)}
        for name, changes in models.items():
            changes = {**changes, "optimizer.learning_rate.base": 1e-4}  # as in the reference's comparison
            one, _ = self.logged(name, **changes)
            for dtype, (limits, loss_scale) in types.items():
                with self.subTest(name, dtype=dtype):
                    half, _ = self.logged(f"{name}-{dtype}", **changes, model__distributed__training_dtype=dtype,
                                          optimizer__gradient_scaler__constant=loss_scale)
                    half = tensor_logs.unscaled(half, loss_scale)
                    self.assertIn(dtype, {record["dtype"] for record in half["train_1"]})
                    self.assertEqual(tensor_logs.compare(one, half, limits, ignore=["param: "]), [])
                    self.assertNotEqual(tensor_logs.compare(one, half, tensor_logs.FLOAT32, scale=0.1, ignore=["param: "]), [])

    def test_shown_at_low_levels(self):
        _, output = self.train("shown", iterations=1, model__multi_stage={"debug_param_init": 1, "debug_layer_outputs": 4,
                                                                         "debug_activation_memory": True})
        self.assertRegex(output, r"Global param: .*weight: \[\d+(, \d+)?\] float32\n")
        self.assertRegex(output, r"Global layer \d+ fw: \S+: \[.*\] float32, mean .*, std .*, min .*, max .*, step \d+: \S+ \S+\n")
        self.assertRegex(output, r"layer \d+ fw: \S+: activations [\d.]+ MiB")

    def test_evaluation_steps_have_their_own(self):
        run, _ = self.logged("run", **{"training.validation": {"interval": 2, "iterations": 2, "code": {"interval": 1, "iterations": 1}},
                                       "data.datasets.Validation": {"type": "memmap", "path": str(self.data)},
                                       "data.datasets.code": {"type": "memmap", "path": str(self.data)}})
        self.assertEqual(sorted(run), ["init", "train_1", "train_2", "validation_2_0", "validation_2_1", "validation_code_1_0",
                                       "validation_code_2_0"])

    def test_files_that_are_none(self):
        path = self.folder / "tensor_logs_x.safetensors"
        for content in (b"", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0{}"):
            path.write_bytes(content)
            with self.assertRaises(tensor_logs.Bad):
                tensor_logs.read_log(path)
        with self.assertRaises(tensor_logs.Bad):
            tensor_logs.read_run(self.folder / "nothing")


class Profiles(InspectTest):
    def artifacts(self, experiment):
        return {p.name: p.read_text() for p in (experiment / "runs/0/artifacts/0").iterdir()}

    def test_chrome_trace_nests(self):
        experiment, _ = self.train("run", iterations=7, profiling={"cpu": True, "skip": 2, "warmup": 1, "cycles": 2, "export": True, "averages": True,
                                                                   "trace": True, "table_width": 100},
                                   **{"training.checkpoint.interval": 5, "training.validation": {"interval": 5, "iterations": 1},
                                      "data.datasets.Validation": {"type": "memmap", "path": str(self.data)}, "batch.micro_batch_size": 2})
        files = self.artifacts(experiment)
        self.assertEqual(sorted(files), sorted(f"profile_{kind}_step_{i}" for kind in ("averages", "chrome", "trace") for i in (5, 7)))
        events = [e for e in json.loads(files["profile_chrome_step_5"])["traceEvents"] if e["ph"] == "X"]
        main = [e for e in events if e["tid"] == 0]
        for e in events:
            self.assertGreaterEqual(e["dur"], 0)
        # Spans of a thread nest: one that begins inside another ends inside it.
        for thread in {e["tid"] for e in events}:
            open_spans = []
            for e in sorted((e for e in events if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
                while open_spans and open_spans[-1] <= e["ts"] + 1e-3:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(e["ts"] + e["dur"], open_spans[-1] + 2e-3, e)
                open_spans.append(e["ts"] + e["dur"])
        self.assertEqual([e["args"]["number"] for e in main if e["cat"] == "iteration"], [4, 5])
        count = {category: sum(e["cat"] == category for e in main) for category in {e["cat"] for e in main}}
        for category in ("forward", "backward", "wait", "restore", "reduce", "optimizer", "evaluation", "checkpoint", "run"):
            self.assertIn(category, count)
        self.assertEqual((count["optimizer"], count["evaluation"], count["checkpoint"]), (2, 1, 1))
        self.assertIn("iteration training", files["profile_averages_step_5"])
        self.assertLessEqual(max(map(len, files["profile_averages_step_5"].splitlines())), 100)

    def test_tables_in_the_log(self):
        _, output = self.train("run", iterations=3, profiling={"cpu": True, "averages": True, "log": True})
        self.assertEqual(output.count("Profile of the iterations up to 3:"), 1)
        self.assertFalse((self.folder / "run/runs/0/artifacts").exists())

    def test_schedule(self):
        experiment, output = self.train("run", iterations=2, schedule={"debug_schedule": True, "profile_schedule": True})
        self.assertRegex(output, r"Training schedule:\n +0  forward   stage    0")
        files = self.artifacts(experiment)
        self.assertEqual(sorted(files), [f"schedule_profile_rank_0_PhaseType.training_step_{i}" for i in (1, 2)])
        self.assertIn("step_type: backward", files["schedule_profile_rank_0_PhaseType.training_step_1"])

    def test_losses_do_not_change(self):
        plain, _ = self.train("plain")
        watched, _ = self.train("watched", profiling={"cpu": True, "export": True}, run__tensor_logs={"save": True, "show": False}, **LEVELS)
        self.assertEqual(training_losses(read_metrics(plain)), training_losses(read_metrics(watched)))


class Ends(InspectTest):
    """What a run does when numbers or time run out (codes of docs/users/command-line.md)."""

    def test_divergence_keeps_the_last_good_checkpoint(self):
        experiment = self.folder / "run"
        arguments = self.tiny_arguments(experiment, 20, optimizer__learning_rate__base=1e18, training__checkpoint__interval=1)
        result = self.assert_ok(run_host(*arguments), code=4)
        self.assertRegex(result.stdout, r"Iteration \d+ diverged: .* The first that is not finite: ")
        saved, = (int(n) for n in [max((p.name for p in (experiment / "checkpoint").iterdir() if p.name.isdigit()), key=int)])
        self.assertIn(f"Stopped after iteration {saved} since the next diverged; checkpoint {saved} is the last good one", result.stdout)
        lines = [m for m in read_metrics(experiment) if m["phase"] == "training"]
        self.assertTrue(all(math.isfinite(m["language_model_loss"]) for m in lines))
        self.assertEqual(lines[-1]["iteration"], saved)
        # Goes on from there with a sane rate.
        self.assert_ok(run_host(*arguments, "optimizer.learning_rate.base=0", "training.divergence.policy=skip", f"training.train_iters={saved + 1}"),
                       code=0)

    def test_a_limit_of_time_saves_and_ends_well(self):
        experiment, output = self.train("run", iterations=1_000_000, training__wall_clock_limit=0.001, training__logs__interval=1000)
        self.assertIn("Reached training.wall_clock_limit (0.001 s): stopping after iteration 1.", output)
        self.assertEqual([p.name for p in (experiment / "checkpoint").iterdir() if p.name.isdigit()], ["1"])

    def test_last_step_off_the_interval_is_saved_once(self):  # C45
        for iterations, interval, expected in ((7, 3, [3, 6, 7]), (2, 3, [2]), (6, 3, [3, 6])):
            with self.subTest(iterations):
                experiment, output = self.train(f"run-{iterations}", iterations, training__checkpoint__interval=interval)
                self.assertEqual(sorted(int(p.name) for p in (experiment / "checkpoint").iterdir() if p.name.isdigit()), expected)
                self.assertEqual(output.count("Saved checkpoint"), len(expected))

    def test_no_checkpoints_are_told_and_a_signal_saves_even_so(self):  # C47
        arguments = self.tiny_arguments(self.folder / "run", 1_000_000)
        told = "checkpoints: none - all progress is lost if the run stops"
        self.assertIn(told, self.assert_ok(run_host(*arguments, "--validate")).stdout)
        output = []
        with start_host(*arguments) as process:
            for line in process.stdout:
                output.append(line)
                if "training @ iteration      2/" in line:
                    process.send_signal(signal.SIGTERM)
        self.assertEqual(process.returncode, 3)
        self.assertIn(told, "".join(output))
        self.assertTrue(any((p / "ok").exists() for p in (self.folder / "run/checkpoint").iterdir()))

    def test_intervals_that_do_not_fit_are_refused_at_validate(self):  # C46, C48
        arguments = self.tiny_arguments(self.folder / "run", 10)
        for more, words in (
                (["training.checkpoint.interval=3", "training.shutdown.interval=4"],
                 ["training.shutdown.interval", "training.checkpoint", "write 3 or 6"]),
                (["training.logs.interval=10", "training.wandb.alert.interval=15"],
                 ["training.wandb.alert.interval", "training.logs", "write 10 or 20"]),
                (["training.export={format: llama, interval: 1000, optimizer_state: true}"],
                 ["training.export.optimizer_state", "training.export.format is llama"])):
            self.assert_error(run_host(*arguments, *more, "--validate"), *words)
        output = self.assert_ok(run_host(*arguments, "training.checkpoint={interval: 5, offset: 7}", "--validate")).stdout
        self.assertIn("training.checkpoint.offset: 7 is reduced modulo the interval 5 to 2", output)
        self.assertFalse((self.folder / "run").exists())

    def test_stale_locks_do_not_matter(self):  # C49
        experiment = self.folder / "run"
        (experiment / "dataset_cache").mkdir(parents=True)
        for name in (".lock", "lock", "dataset_cache/index.lock"):
            (experiment / name).touch()
        self.train("run", iterations=1)

    def test_a_plugin_path_that_is_not_there(self):
        self.assert_error(run_host("--plugin", "gpt", "--plugin-path", self.folder / "none", "--validate"),
                          "--plugin-path: expected a folder, found none at", code=2)


if __name__ == "__main__":
    unittest.main()
