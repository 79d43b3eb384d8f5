#!/usr/bin/python3
"""Mixtures of experts in whole runs: what is shown, resumed, frozen, divided over ranks; and the long run in which all of it meets."""
import re
import sys
import unittest

from equivalence_test import PARALLEL, TRANSFORMER, ZERO
from ranks_case import RanksCase
from support import (FIXTURES, HostTest, allocation_lines, checkpoint_distances, losses_of, overrides, read_metrics, run_host,
                     start_host, training_losses)

sys.path.insert(0, str(FIXTURES / "curves"))
import make_curves  # noqa: E402

EXPERTS = {TRANSFORMER + "num_experts": 4, TRANSFORMER + "num_experts_per_token": 2, TRANSFORMER + "expert_z_loss_coefficient": 1e-3}
SHARED = {**EXPERTS, TRANSFORMER + "num_shared_experts": 1}
SINKHORN = {**EXPERTS, TRANSFORMER + "expert_routing_type": "sinkhorn"}
NOISE = {TRANSFORMER + "moe_jitter_eps": 0.2}
MIX = {TRANSFORMER + "mlp_lr_scale": [0, 1, 0.5, 0]}


class Experts(RanksCase):
    def test_losses_of_the_router_are_shown_after_those_over_labels(self):
        experiment, output = self.train("shown", **EXPERTS)
        line = next(line for line in output.splitlines() if "training @ iteration" in line)
        names = ["language model loss", "language model loss 1", "load balancing loss", "router z loss"]
        places = [line.index(f"| {name}: ") for name in names]
        self.assertEqual(places, sorted(places))
        self.assertIn("validation @", output)
        for metrics in read_metrics(experiment):
            # The balancing loss without coefficient: chosen / experts when all are equal, at most 1.
            self.assertGreater(metrics["load_balancing_loss"], 0.4)
            self.assertLessEqual(metrics["load_balancing_loss"], 1)
            self.assertGreater(metrics["router_z_loss"], 0)
        experiment, output = self.train("sinkhorn", **SINKHORN)
        self.assertNotIn("load balancing loss", output)
        self.assertNotIn("still; the choice is what it was then", output)
        self.assertIn("router z loss", output)

    def test_balancing_that_does_not_settle_is_told(self):
        _, output = self.train("wild", **SINKHORN, model__base_model__transformer__init_method_std=20.0)
        self.assertRegex(output, r"expected sinkhorn routing to settle within 1000 rounds, found it moving by [\d.]+ still; the choice is "
                                 r"what it was then: a router z-loss \(expert_z_loss_coefficient\) keeps its logits small")

    def test_a_resumed_run_is_bit_equal(self):
        for name, model in (("noise", {**SHARED, **NOISE}), ("sinkhorn", SINKHORN)):
            with self.subTest(name):
                whole, _ = self.train(f"{name}, whole", **model)
                self.train(f"{name}, stopped", training__shutdown__interval=5, **model)
                stopped, _ = self.train(f"{name}, stopped", **model)
                self.assertEqual(self.numbers(stopped), self.numbers(whole))

    def test_recomputed_layers_make_the_same_choices(self):
        model = {**SHARED, **NOISE, TRANSFORMER + "hidden_dropout": 0.1}
        plain = self.numbers(self.train("plain", **model)[0])
        for name, more in (("layers", {"training__recompute_activations": True}),
                           ("mlp", {TRANSFORMER + "mlp_recompute_level": "full"})):
            self.assertEqual(self.numbers(self.train(name, **model, **more)[0]), plain)

    def test_types_of_sixteen_bits_are_close(self):
        expected = self.reference(**EXPERTS)
        for dtype in ("bfloat16", "float16"):
            found = self.numbers(self.train(dtype, **EXPERTS, model__distributed__training_dtype=dtype)[0])
            for key, values in expected.items():
                self.assertLess(abs(found[key]["language_model_loss"] - values["language_model_loss"]),
                                0.02 * values["language_model_loss"])

    def test_noise_and_sinkhorn_are_those_of_one_rank_on_tensor_ranks(self):
        for name, model in (("noise", {**SHARED, **NOISE}), ("sinkhorn", SINKHORN), ("one a token", {TRANSFORMER + "num_experts": 3})):
            for sequence in (False, True):
                with self.subTest(name, sequence=sequence):
                    mesh = {PARALLEL("tensor"): 2, PARALLEL("sequence_tensor"): sequence,
                            "model__multi_stage__debug_tensor_parallel": True}
                    experiment, output = self.train(f"{name}, {sequence}", 2, **model, **mesh)
                    self.assert_close(self.numbers(experiment), self.reference(**model))
                    self.assertNotIn("MISMATCH", output)

    def test_frozen_experts_keep_their_bits(self):
        for name, ranks, changes in (("one", 1, {}), ("dp2", 2, {ZERO: 3}), ("tp2", 2, {PARALLEL("tensor"): 2})):
            with self.subTest(name):
                for frozen, model in (("[0]|[3]", MIX), ("all", {TRANSFORMER + "mlp_lr_scale": [0]}),
                                      ("router", {TRANSFORMER + "router_lr_scale": 0})):
                    experiment, _ = self.train(f"{name}, {frozen}", ranks, **EXPERTS, **model, **changes, training__checkpoint__interval=1)
                    moved = checkpoint_distances(self, experiment, experiment, 10, then=1, experts=4)
                    self.assertEqual(sum("mlp.layer_" in parameter for parameter in moved["weights"]), 3 * 2 * 4)
                    for parameter, (difference, norm) in moved["weights"].items():
                        still = (any(expert in parameter for expert in frozen.split("|")) or frozen == "router" and "router" in parameter
                                 or frozen == "all" and "mlp.layer_" in parameter)
                        self.assertEqual(difference == 0, still, parameter)


class LongRun(HostTest):
    """Two pipeline stages by two data ranks, experts, some of them and the embeddings frozen, on real text."""
    STEPS = 300
    STOP = 150
    MESH = {"model.distributed.pipeline_parallel": 2, "model.multi_stage.zero_stage": 2}
    MODEL = {
        **{key.replace("__", "."): value for key, value in EXPERTS.items()},
        "model.base_model.transformer.mlp_lr_scale": [0, 1, 1, 0.5], "model.base_model.transformer.embeddings_lr_scale": 0,
        "model.base_model.tie_word_embeddings": False, "model.base_model.init_method_std_embed": 1.0,
    }

    def values(self, **changes):
        return {**make_curves.COMMON, **make_curves.LLAMA, **self.MODEL, **make_curves.prepare_data(self.folder),
                "training.train_iters": self.STEPS, "batch.batch_size": 8, "batch.micro_batch_size": 2,
                "optimizer.learning_rate.decay_iterations": self.STEPS, "training.checkpoint": {"interval": 75, "keep": 8}, **changes}

    def arguments(self, name, values):
        return ["--nproc", "4", "--plugin", "gpt", *overrides({**values, **self.MESH, "run.experiment_dir": str(self.folder / name)})]

    def test_stopped_in_the_middle_it_is_the_same_run(self):
        values = self.values()
        self.assert_ok(run_host(*self.arguments("whole", values), OMP_NUM_THREADS="1"))
        process = start_host(*self.arguments("stopped", values), OMP_NUM_THREADS="1")
        self.addCleanup(process.kill)
        with process:
            for line in process.stdout:
                if re.search(rf"training @ iteration\s+{self.STOP}/", line):
                    process.terminate()
        self.assertEqual(process.returncode, 3)
        self.assert_ok(run_host(*self.arguments("stopped", values), OMP_NUM_THREADS="1"))
        whole, stopped = (training_losses(read_metrics(self.folder / name)) for name in ("whole", "stopped"))
        self.assertEqual(len(whole), self.STEPS)
        self.assertEqual(stopped, whole)

        # It learns, and what is frozen does not move: the embeddings, and the first expert of every block.
        first, last = (sum(whole[i]["language_model_loss"] for i in steps) / 20
                       for steps in (range(1, 21), range(self.STEPS - 19, self.STEPS + 1)))
        self.assertLess(last, first - 1)
        moved = checkpoint_distances(self, self.folder / "whole", self.folder / "whole", self.STEPS, then=75, experts=4)
        self.assertEqual({name for name, (difference, _) in moved["weights"].items() if difference == 0},
                         {"layers.0.word_embeddings_weight", *(f"layers.{block}.mlp.layer_{layer}.weight[0]"
                                                               for block in (1, 2) for layer in (1, 2))})
        # One rank gives the same curve.
        self.assert_ok(run_host("--plugin", "gpt", *overrides({**values, "training.train_iters": 10, "batch.micro_batch_size": 2,
                                                               "run.experiment_dir": str(self.folder / "one")})))
        for iteration, losses in training_losses(read_metrics(self.folder / "one")).items():
            for name, loss in losses.items():
                self.assertLessEqual(abs(whole[iteration][name] - loss), 1e-4 * abs(loss), (iteration, name))

    def test_a_scale_of_one_frozen_nowhere_costs_nothing(self):
        """Memory of runs in which nothing is frozen is that of runs that know no scales, to the byte, and so are losses, to the bit."""
        plain = self.values(**{"training.train_iters": 4})
        for key in ("mlp_lr_scale", "embeddings_lr_scale"):
            del plain[f"model.base_model.transformer.{key}"]
        ones = {**plain, "model.base_model.transformer.mlp_lr_scale": [1, 1, 1, 1], "model.base_model.transformer.embeddings_lr_scale": 1}
        found = {}
        for name, values in (("plain", plain), ("ones", ones)):
            result = self.assert_ok(run_host(*self.arguments(name, values), OMP_NUM_THREADS="1"))
            sent = [re.sub(r"^.*Sent to", "", line) for line in result.stdout.splitlines() if "Sent to other ranks" in line]
            self.assertTrue(sent)
            found[name] = (allocation_lines(result.stdout), sorted(sent), training_losses(read_metrics(self.folder / name)))
        self.assertEqual(found["ones"], found["plain"])


if __name__ == "__main__":
    unittest.main()
