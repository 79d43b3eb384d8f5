#!/usr/bin/python3
"""Tensor-parallel ranks beyond the table of equivalence_test.py: checkpoints of one layout read by another, everything that divides
heads, words or tokens otherwise, and what users are told."""
import unittest

from equivalence_test import PARALLEL, TRANSFORMER, ZERO
from ranks_case import RanksCase
from support import run_host

TENSOR = {PARALLEL("tensor"): 2}
SEQUENCE = {**TENSOR, PARALLEL("sequence_tensor"): True}
WATCHED = {"model__multi_stage__debug_tensor_parallel": True}


class TensorParallel(RanksCase):
    def both_equal_one(self, model, relative=1e-4, **sequence):
        """Two ranks with whole and with divided hidden states; none of their common weights part."""
        for name, mesh in (("tp2", TENSOR), ("tp2-sequence", {**SEQUENCE, **sequence})):
            with self.subTest(mesh=name):
                experiment, output = self.train(f"{name}-{len(list(self.folder.iterdir()))}", 2, **{**model, **mesh, **WATCHED})
                self.assert_close(self.numbers(experiment), self.reference(**model), relative)
                self.assertNotIn("MISMATCH", output)

    def test_several_prediction_heads_and_samples_in_a_micro_batch(self):
        self.both_equal_one({"batch__micro_batch_size": 2})

    def test_recomputation_and_every_kind_of_head(self):
        self.both_equal_one({"training__recompute_activations": True, TRANSFORMER + "head_groups": 4,
                             TRANSFORMER + "mlp_recompute_level": "full"})

    def test_one_group_for_all_heads_with_norms(self):
        self.both_equal_one({TRANSFORMER + "head_groups": 1, TRANSFORMER + "query_key_norm": True,
                             TRANSFORMER + "add_linear_biases": True})

    def test_frozen_attention_with_a_whole_vocabulary(self):
        self.both_equal_one({"model__base_model__parallel_embeddings": False, TRANSFORMER + "attention_lr_scale": 0,
                             "model__base_model__logits_scale_factor": 0.5})

    def test_dropout_is_that_of_one_rank(self):
        self.both_equal_one({TRANSFORMER + "hidden_dropout": 0.2, TRANSFORMER + "attention_dropout": 0.2})

    def test_bfloat16_is_close(self):
        model = {"model__distributed__training_dtype": "bfloat16"}
        for mesh in (TENSOR, SEQUENCE):
            found = self.numbers(self.train(f"bf16-{len(mesh)}", 2, **model, **mesh)[0])
            for key, values in self.reference(**model).items():
                for name, value in values.items():
                    self.assertLessEqual(abs(found[key][name] - value), 0.02 * abs(value), (key, name))

    def test_a_checkpoint_goes_on_in_any_layout(self):
        layouts = {"one": (1, {}), "tp2": (2, TENSOR), "tp2 and the sequence": (2, SEQUENCE), "dp2": (2, {}),
                   "dp2 x tp2": (4, {**TENSOR, ZERO: 3})}
        self.go_on_in_any_layout(layouts, (("tp2", "one"), ("one", "tp2 and the sequence"), ("dp2 x tp2", "dp2"), ("dp2", "dp2 x tp2")))

    def test_evaluation_of_another_layout(self):
        self.evaluates_as_it_trained(SEQUENCE)


class TensorRefusals(RanksCase):
    def refused(self, sentence, **changes):
        result = run_host("--nproc", "2", *self.arguments(self.folder / "refused", **{**TENSOR, **changes}))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout + result.stderr, sentence)

    def test_sizes_that_do_not_divide_are_told_before_memory_is_taken(self):
        for changes, name, parts in (({TRANSFORMER + "ffn_hidden_size": 49}, r"layers\.1\.mlp\.layer_1\.weight", 49),
                                     ({TRANSFORMER + "head_groups": 1, TRANSFORMER + "num_attention_heads": 1},
                                      r"layers\.1\.self_attn\.query\.weight", 1),
                                     ({"model__base_model__vocab_size": 65}, r"layers\.0\.word_embeddings_weight", 65)):
            with self.subTest(name):
                self.refused(rf"parameter {name}: expected its {parts} parts of dimension 0 to be a multiple of the tensor-parallel "
                             rf"size, found 2 ranks; choose a tensor_parallel that divides {parts}", **changes)

    def test_tokens_that_do_not_divide(self):
        self.refused(r"batch\.sequence_length: expected batch\.micro_batch_size times the sequence length to be a multiple of 2, .* "
                     r"found 1 times 31", **SEQUENCE, batch__sequence_length=31)


if __name__ == "__main__":
    unittest.main()
