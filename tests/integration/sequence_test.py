#!/usr/bin/python3
"""Sequence-data parallel ranks beyond the table of equivalence_test.py: all that mixes tokens or counts them, checkpoints of one layout
read by another, and what users are told."""
import unittest

from equivalence_test import PARALLEL, SHARED, TRANSFORMER, ZERO
from ranks_case import RanksCase
from support import run_host


class SequenceData(RanksCase):
    def equals_one(self, model, ranks=2, **mesh):
        experiment, _ = self.train(f"shared-{len(list(self.folder.iterdir()))}", ranks, **{**model, **SHARED, **mesh})
        self.assert_close(self.numbers(experiment), self.reference(**model), 1e-4)

    def test_several_prediction_heads_and_samples_in_a_micro_batch(self):
        self.equals_one({"batch__micro_batch_size": 2})

    def test_recomputation(self):
        self.equals_one({"training__recompute_activations": True, "batch__micro_batch_size": 2})

    def test_normalised_queries_and_keys_and_absolute_positions(self):
        self.equals_one({"model__base_model__use_position_embeddings": True, TRANSFORMER + "query_key_norm": True,
                         TRANSFORMER + "add_linear_biases": True, TRANSFORMER + "head_groups": 1})

    def test_frozen_attention_over_four_ranks(self):
        self.equals_one({TRANSFORMER + "attention_lr_scale": 0}, 4, model__distributed__sequence_data_parallel=4)

    def test_bfloat16_is_close(self):
        model = {"model__distributed__training_dtype": "bfloat16"}
        found = self.numbers(self.train("bf16", 2, **model, **SHARED)[0])
        for key, values in self.reference(**model).items():
            for name, value in values.items():
                self.assertLessEqual(abs(found[key][name] - value), 0.02 * abs(value), (key, name))

    def test_a_checkpoint_goes_on_in_any_layout(self):
        layouts = {"one": (1, {}), "sdp2": (2, SHARED), "dp2 of sdp2": (4, {**SHARED, ZERO: 3}),
                   "sdp2 x tp2": (4, {**SHARED, PARALLEL("tensor"): 2})}
        self.go_on_in_any_layout(layouts, (("sdp2", "one"), ("one", "sdp2"), ("dp2 of sdp2", "sdp2 x tp2")))

    def test_evaluation_of_another_layout(self):
        self.evaluates_as_it_trained(SHARED)

    def test_a_length_that_does_not_divide(self):
        result = run_host("--nproc", "2", *self.arguments(self.folder / "refused", **SHARED, batch__sequence_length=31))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout + result.stderr,
                         r"batch\.sequence_length: expected a multiple of model\.distributed\.sequence_data_parallel \(2\), the ranks "
                         r"that share each sample, found 31: 31%2=1; choose another length")


if __name__ == "__main__":
    unittest.main()
