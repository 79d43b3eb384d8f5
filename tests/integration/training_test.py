#!/usr/bin/python3
"""Short real trainings through the command line: the loss falls, a plain C plugin trains too. Frozen weights: frozen_test.py."""
import math
import os
import pathlib
import unittest

from support import BUILD, HostTest, overrides, read_metrics, read_safetensors, run_host, training_losses

MLP_SCALE = "model__base_model__transformer__mlp_lr_scale"


class TrainingTest(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, name, iterations=10, **changes):
        experiment = self.folder / name
        # The leak sanitizer's tracer itself crashes in a process with LibTorch; the plain C model is checked for leaks.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        result = self.assert_ok(run_host(*self.tiny_arguments(experiment, iterations, **changes), ASAN_OPTIONS=sanitizer))
        return experiment, result.stdout

    def losses(self, experiment):
        return [losses["language_model_loss"] for _, losses in sorted(training_losses(read_metrics(experiment)).items())]


class ShortTraining(TrainingTest):
    """What also runs under the sanitizers."""

    def test_loss_falls(self):
        experiment, output = self.train("run", iterations=60)
        losses = self.losses(experiment)
        self.assertEqual(len(losses), 60)
        # Starts as a guess among 64 tokens; the rule behind the data leaves about 0.1 * log(64) + H(0.1) = 0.74.
        self.assertAlmostEqual(losses[0], math.log(64), delta=0.5)
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertIn("PhaseType.training @ iteration     60/    60", output)

    def test_saves_and_goes_on(self):
        whole, _ = self.train("whole", iterations=6)
        halves, _ = self.train("halves", iterations=3, training__checkpoint__interval=3)
        self.train("halves", iterations=6, training__checkpoint__interval=3)
        self.assertEqual(self.losses(halves), self.losses(whole))


class Training(TrainingTest):
    def test_validation_and_test_phase(self):
        data = {"type": "memmap", "path": str(self.tiny_data("other", seed=2))}
        experiment, output = self.train("run", iterations=4, training__validation={"interval": 2, "iterations": 2}, training__test_iters=1,
                                        **{"data.datasets.Validation": data, "data.datasets.Test": data})
        phases = [(m["phase"], m["iteration"]) for m in read_metrics(experiment)]
        self.assertEqual([i for p, i in phases if p == "validation"], [2, 4])
        self.assertEqual(sum(p == "test" for p, _ in phases), 1)
        for metrics in read_metrics(experiment):
            self.assertTrue(math.isfinite(metrics["language_model_loss"]))

    def test_same_run_twice_is_the_same_to_the_bit(self):
        first, _ = self.train("first")
        second, _ = self.train("second")
        self.assertEqual(training_losses(read_metrics(first)), training_losses(read_metrics(second)))

    def test_micro_batches_add_up(self):
        one, _ = self.train("one", iterations=3)
        four, _ = self.train("four", iterations=3, batch__micro_batch_size=1)
        for a, b in zip(self.losses(one), self.losses(four), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_everything_frozen_trains_nothing(self):
        experiment, _ = self.train("still", iterations=3, training__logs__interval=1, **{
            MLP_SCALE: [0], "model__base_model__transformer__attention_lr_scale": 0, "model__base_model__transformer__norm_lr_scale": 0,
            "model__base_model__transformer__embeddings_lr_scale": 0, "model__base_model__transformer__output_lr_scale": 0})
        self.assertEqual(len(self.losses(experiment)), 3)

    def test_recomputed_activations_change_no_bit(self):
        kept, _ = self.train("kept")
        again, _ = self.train("again", training__recompute_activations=True)
        self.assertEqual(training_losses(read_metrics(kept)), training_losses(read_metrics(again)))

    def test_further_predictions_learn(self):
        experiment, output = self.train("two", iterations=80, model__base_model__prediction_heads=2, model__base_model__logit_z_loss=1e-4)
        for name in ("language model loss: ", "language model loss 1: ", "logit z loss: ", "logit z loss 1: "):
            self.assertIn(f" | {name}", output)
        losses = [losses["language_model_loss_1"] for _, losses in sorted(training_losses(read_metrics(experiment)).items())]
        self.assertAlmostEqual(losses[0], math.log(64), delta=0.5)
        self.assertLess(losses[-1], losses[0] * 0.75)  # the token after the next one follows from the rule, too, if less surely

    def test_dropout_is_the_same_when_recomputed_or_resumed(self):
        dropout = {f"model__base_model__transformer__{kind}_dropout": 0.2 for kind in ("hidden", "attention")}
        kept, _ = self.train("kept", iterations=6, **dropout)
        again, _ = self.train("again", iterations=6, training__recompute_activations=True,
                              model__base_model__transformer__mlp_recompute_level="full", **dropout)
        self.assertEqual(self.losses(kept), self.losses(again))
        halves, _ = self.train("halves", iterations=3, training__checkpoint__interval=3, **dropout)
        self.train("halves", iterations=6, training__checkpoint__interval=3, **dropout)
        self.assertEqual(self.losses(halves), self.losses(kept))
        for kind in dropout:
            without, _ = self.train(f"without-{kind}", iterations=6, **{**dropout, kind: 0})
            self.assertNotEqual(self.losses(without), self.losses(kept), kind)

    def test_run_folder_says_what_ran(self):
        experiment, _ = self.train("run-3.1", iterations=2, training__checkpoint__interval=2)
        self.assertTrue((experiment / "config.yaml").is_file())
        self.assertTrue((experiment / "config_verbose.yaml").is_file())
        self.assertIn("training @ iteration", (experiment / "runs/0/logs/logs_rank_0.txt").read_text())
        for folder in ("runs/0", "checkpoint/2"):
            provenance = (experiment / folder / "provenance.yaml").read_text()
            for word in ("host_version:", "fastllm.gpt:", "fastllm.distributed:", "libtorch: '2.11.0", "tiny.bin: ", "sha256", "seed: ",
                         "train_iters: 2"):
                self.assertIn(word, provenance)

    def test_keep_rule_and_last_step(self):
        experiment, _ = self.train("run", iterations=7, training__checkpoint={"interval": 3, "keep": 2})
        self.assertEqual(sorted(int(p.name) for p in (experiment / "checkpoint").iterdir() if p.name.isdigit()), [3, 6, 7])


class CPlugin(HostTest):
    """A model in plain C, without LibTorch, in the same host."""

    def test_trains(self):
        plugin, = (p for p in BUILD.rglob("libfastllm_cmlp.so"))
        prefix = self.tiny_data()
        self.data = pathlib.Path(prefix)
        experiment = self.folder / "run"
        values = {"data.datasets.Training": {"type": "memmap", "path": str(prefix)}, "training.train_iters": 60, "training.logs.interval": 1,
                  "batch.sequence_length": 32, "batch.batch_size": 4, "optimizer.learning_rate.base": 0.003,
                  "run.experiment_dir": str(experiment), "model.base_model.vocab_size": 64}
        self.assert_ok(run_host("--plugin", plugin, *overrides(values)))
        losses = [next(iter(x.values())) for _, x in sorted(training_losses(read_metrics(experiment)).items())]
        self.assertEqual(len(losses), 60)
        self.assertLess(losses[-1], losses[0] * 0.8)


if __name__ == "__main__":
    unittest.main()
