#!/usr/bin/python3
"""Runs in bfloat16 and float16: they learn as in float32, loss scaling skips and finds its size, and a resume gives the same bits."""
import re
import unittest

from support import BUILD, HostTest, allocation_lines, overrides, read_metrics, read_safetensors, run_host

from memory_table import Model, log_lines, tables  # tests/fixtures, which support puts in the path

TYPE = "model.distributed.training_dtype"
SCALER = "optimizer.gradient_scaler."
ITERATIONS = 30


class Precision(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, name, iterations=ITERATIONS, code=0, **changes):
        """The metrics of a run in a folder of that name, and its output."""
        experiment = self.folder / name
        result = self.assert_ok(run_host(*self.tiny_arguments(experiment, iterations, **changes)), code)
        return read_metrics(experiment), result.stdout

    def weights(self, name, step):
        return read_safetensors(self.folder / name / "checkpoint" / str(step) / "rank_0.safetensors")

    def test_sixteen_bits_learn_like_float32(self):
        losses = {}
        for dtype in ("float32", "bfloat16", "float16"):
            metrics, _ = self.train(dtype, **{TYPE: dtype})
            losses[dtype] = [m["language_model_loss"] for m in metrics]
        self.assertLess(losses["float32"][-1], 0.8 * losses["float32"][0])
        for dtype, bar in (("bfloat16", 0.02), ("float16", 0.005)):
            with self.subTest(dtype):
                self.assertNotEqual(losses[dtype], losses["float32"])
                for ours, exact in zip(losses[dtype], losses["float32"]):
                    self.assertLess(abs(ours - exact), bar * exact)

    def test_shards_are_float32_and_the_first_weights_the_same(self):
        save = {"training.checkpoint.interval": 1, "optimizer.learning_rate.base": 0.0}
        tensors = []
        for dtype in ("float32", "bfloat16"):
            self.train(dtype, 1, **{TYPE: dtype, **save})
            tensors.append(self.weights(dtype, 1))
        for name, (dtype, shape, content) in tensors[0].items():
            self.assertEqual(dtype, "F32")
            if "exp_avg" not in name:
                self.assertEqual(tensors[1][name], (dtype, shape, content), name)

    def test_memory_lines(self):
        model = Model(2, 32, 4, 2, 8, 48, 64, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=True)
        for dtype in ("bfloat16", "float16"):
            for full in (True, False):
                with self.subTest(dtype, full=full):
                    _, output = self.train(f"{dtype}-{full}", 0, **{TYPE: dtype, "model.multi_stage.full_precision_gradients": full})
                    expected, = tables(model, training_dtype=dtype, full_precision_gradients=full)
                    self.assertEqual(allocation_lines(output), log_lines(expected))

    def test_a_scale_that_is_too_large_comes_down(self):
        metrics, output = self.train("huge", 50, **{TYPE: "float16", SCALER + "initial": 2.0 ** 40})
        scales = [float(text) for text in re.findall(r"Setting loss scale to (\S+)", output)]
        self.assertEqual(scales, [2.0 ** (40 - i) for i in range(len(scales))])
        self.assertGreater(len(scales), 5)
        skipped = [m["skipped_iters"] for m in metrics]  # a line an iteration
        # The first failure only used up hysteresis, each other one halved the scale. Later ones come one at a time.
        self.assertEqual(sum(skipped), len(scales))
        self.assertEqual(skipped[:6], [1] * 6)
        self.assertLess(sum(skipped), 30)
        for m in metrics:
            self.assertEqual(m["skipped_iters"], int("grad_norm" not in m), m)
            self.assertEqual(m["language_model_loss"] is None, bool(m["skipped_iters"]), m)
            self.assertEqual(m["nan_iters"], 0)
        good = [m["language_model_loss"] for m in metrics if not m["skipped_iters"]]
        self.assertLess(good[-1], 0.9 * good[0])
        self.assertEqual(metrics[-1]["loss_scale"], scales[-1])

    def test_a_resume_gives_the_same_bits(self):
        changes = {TYPE: "float16", SCALER + "initial": 2.0 ** 24, SCALER + "window": 4,
                   "training.checkpoint.interval": 3, "optimizer.learning_rate.warmup_iterations": 20}
        whole, _ = self.train("whole", **changes)
        self.assertGreater(sum(m["skipped_iters"] for m in whole), 3)
        for _ in range(0, ITERATIONS, 6):
            parts, output = self.train("parts", **changes, **{"training.shutdown.interval": 6})
            self.assertIn("Setting loss scale to", output)
        keys = ("iteration", "language_model_loss", "grad_norm", "learning_rate", "loss_scale", "skipped_iters")
        self.assertEqual([[m.get(key) for key in keys] for m in parts], [[m.get(key) for key in keys] for m in whole])
        self.assertEqual(self.weights("parts", ITERATIONS), self.weights("whole", ITERATIONS))

    def test_another_loss_scaling_does_not_resume(self):
        self.train("a", 2, **{TYPE: "float16", "training.checkpoint.interval": 2})
        result = run_host(*self.tiny_arguments(self.folder / "a", 4, **{TYPE: "bfloat16", "training.checkpoint.interval": 2}))
        self.assert_error(result, "expected gradient scaler NoopGradScaler", "found DynamicGradScaler",
                          "resume with the training_dtype and optimizer.gradient_scaler it was made with")

    def test_float32_goes_on_in_bfloat16(self):
        self.train("a", 10, **{"training.checkpoint.interval": 10})
        metrics, _ = self.train("a", 20, **{TYPE: "bfloat16", "training.checkpoint.interval": 10})
        self.assertLess(metrics[-1]["language_model_loss"], metrics[9]["language_model_loss"])

    def test_frozen_weights_stay_as_they_are(self):
        self.train("frozen", 10, **{TYPE: "bfloat16", "training.checkpoint.interval": 5,
                                    "model.base_model.transformer.mlp_lr_scale": [0]})
        # Elements of a shard: the embedding, then two blocks, each with its trainable group before its frozen one.
        hidden, ffn, embedding = 32, 48, 64 * 32
        trainable, frozen = 2 * hidden + 3 * hidden * hidden, 3 * ffn * hidden
        first, last = ([shard["weights_shard"][2][4 * i:4 * i + 4] for i in range(len(shard["weights_shard"][2]) // 4)]
                       for shard in (self.weights("frozen", 5), self.weights("frozen", 10)))
        moved = [a != b for a, b in zip(first, last)]
        for block in range(2):
            begin = embedding + block * (trainable + frozen)
            self.assertGreater(sum(moved[begin:begin + trainable]), 0.9 * trainable)
            self.assertEqual(sum(moved[begin + trainable:begin + trainable + frozen]), 0)

    def test_recomputation_changes_no_bit(self):
        for dtype in ("bfloat16", "float16"):
            runs = [self.train(f"{dtype}-{again}", 10, **{
                TYPE: dtype, "training.recompute_activations": again, "batch.micro_batch_size": 2, "training.checkpoint.interval": 10,
                "model.base_model.transformer.mlp_recompute_level": "full" if again else "none"}) for again in (False, True)]
            losses = [[m["language_model_loss"] for m in metrics] for metrics, _ in runs]
            self.assertEqual(*losses)
            self.assertEqual(self.weights(f"{dtype}-False", 10), self.weights(f"{dtype}-True", 10))

    def test_a_plugin_that_computes_in_float32_alone_says_so(self):
        plugin, = BUILD.rglob("libfastllm_cmlp.so")
        arguments = {"data.datasets.Training": {"type": "memmap", "path": str(self.data)}, "training.train_iters": 2,
                     "batch.sequence_length": 32, "model.base_model.vocab_size": 64, TYPE: "bfloat16"}
        self.assert_error(run_host("--plugin", plugin, *overrides(arguments)), "plugin cmlp",
                          "layer 0 bind: expected float32 on the CPU for weights and gradients",
                          "set model.distributed.training_dtype to float32")

    def test_a_constant_scale_is_checked_in_any_type(self):
        plain, _ = self.train("plain", 10)
        scaled, output = self.train("scaled", 10, **{SCALER + "constant": 1024})
        self.assertEqual(output.count("Setting loss scale to 1024.0"), 1)
        for a, b in zip(plain, scaled):
            self.assertEqual((a["language_model_loss"], a["grad_norm"]), (b["language_model_loss"], b["grad_norm"]))
        self.assertEqual(scaled[-1]["loss_scale"], 1024)


if __name__ == "__main__":
    unittest.main()
