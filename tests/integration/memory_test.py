#!/usr/bin/python3
"""The memory a run shows before it starts, to the byte: the default run, frozen ones, and other shapes of the model.

What is expected comes from tests/fixtures/memory_table.py, which computes it from the rules alone.
"""
import dataclasses
import re
import unittest

from support import HostTest, allocation_lines, run_host

from memory_table import Model, log_lines, tables  # tests/fixtures, which support puts in the path

TRANSFORMER = "model.base_model.transformer."
LLAMA = Model(2, 12, 4, 2, 4, 20, 50, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=True)
LLAMA_ARGUMENTS = [
    "model.base_model.vocab_size=50", "model.base_model.tie_word_embeddings=false", TRANSFORMER + "num_layers=2",
    TRANSFORMER + "hidden_size=12", TRANSFORMER + "num_attention_heads=4", TRANSFORMER + "head_groups=2",
    TRANSFORMER + "kv_channels=4", TRANSFORMER + "ffn_hidden_size=20", TRANSFORMER + "gated=true",
    TRANSFORMER + "add_linear_biases=false", TRANSFORMER + "normalization.type=rms_norm", TRANSFORMER + "rotary.type=default",
]


MIXTURE = dataclasses.replace(LLAMA, num_experts=4, num_shared_experts=1)
MIXTURE_ARGUMENTS = [*LLAMA_ARGUMENTS, TRANSFORMER + "num_experts=4", TRANSFORMER + "num_shared_experts=1"]
KINDS = ("mlp", "attention", "embeddings", "output", "norm")


def frozen(kind):
    return f"{TRANSFORMER}{kind}_lr_scale={'[0]' if kind == 'mlp' else 0}"


class Memory(HostTest):
    def lines_of(self, *arguments):
        result = self.assert_ok(run_host("--plugin", "gpt", *arguments))
        return allocation_lines(result.stdout), result.stdout

    def check(self, arguments, model, **options):
        expected, = tables(model, **options)
        lines, output = self.lines_of(*arguments)
        self.assertEqual(lines, log_lines(expected))
        parameters = int(re.search(r"Total parameters: ([\d,]+)", output)[1].replace(",", ""))
        self.assertEqual(parameters, expected["parameters"])

    def test_no_configuration_at_all(self):
        lines, output = self.lines_of()
        self.assertEqual(lines, [
            ">>> Allocating 14 weight buffers (692.54 MiB)", ">>> Allocating 14 grad buffers (692.54 MiB)",
            ">>> Allocating 4 shards (2,770.14 MiB)", "Total allocated: 4,155.21 MiB",
        ])
        self.assertIn("Splitting the model into 14 stages...", output)
        self.assertIn("Total parameters: 181,543,936 ", output)

    def test_frozen_mlp(self):
        lines, _ = self.lines_of(TRANSFORMER + "mlp_lr_scale=[0]")
        self.assertEqual(lines, [
            ">>> Allocating 14 weight buffers (692.54 MiB)", ">>> Allocating 14 grad buffers (308.30 MiB)",
            ">>> Allocating 4 shards (1,617.44 MiB)", "Total allocated: 2,618.27 MiB",
        ])

    def test_frozen_mlp_without_a_second_copy(self):
        lines, _ = self.lines_of(TRANSFORMER + "mlp_lr_scale=[0]", "model.multi_stage.store_frozen_weights_in_optimization_precision=false")
        self.assertEqual(lines, [
            ">>> Allocating 14 weight buffers (692.54 MiB)", ">>> Allocating 14 grad buffers (308.30 MiB)",
            ">>> Allocating 4 shards (1,233.20 MiB)", "Total allocated: 2,234.04 MiB",
        ])

    def test_llama_like(self):
        self.check(LLAMA_ARGUMENTS, LLAMA)

    def test_llama_like_frozen_by_kind(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.check([*LLAMA_ARGUMENTS, frozen(kind)], LLAMA, frozen={kind})

    def test_experts(self):
        self.check(MIXTURE_ARGUMENTS, MIXTURE)
        for kinds in (("mlp",), ("router",), ("mlp", "attention"), ("mlp", "router")):
            with self.subTest(kinds):
                self.check([*MIXTURE_ARGUMENTS, *map(frozen, kinds)], MIXTURE, frozen=set(kinds))
        # Some experts alone are frozen: their memory stays that of trainable ones.
        self.check([*MIXTURE_ARGUMENTS, TRANSFORMER + "mlp_lr_scale=[0,0,0,1]"], MIXTURE)

    def test_everything_frozen(self):
        self.check([*LLAMA_ARGUMENTS, *map(frozen, KINDS)], LLAMA, frozen=set(KINDS))

    def test_tied_and_biased(self):
        self.check(
            ["model.base_model.vocab_size=50", TRANSFORMER + "num_layers=3", TRANSFORMER + "hidden_size=12",
             TRANSFORMER + "num_attention_heads=4", TRANSFORMER + "head_groups=4", "model.base_model.max_position_embeddings=40"],
            Model(3, 12, 4, 4, None, None, 50, max_position_embeddings=40))

    def test_layers_per_stage_and_zero(self):
        for layers_per_stage, zero in ((2, 1), (1, 2), (1, 3), (1.5, 3)):
            with self.subTest((layers_per_stage, zero)):
                self.check([*LLAMA_ARGUMENTS, f"model.multi_stage.layers_per_stage={layers_per_stage}",
                            f"model.multi_stage.zero_stage={zero}"], LLAMA, layers_per_stage=layers_per_stage, zero=zero)

    def test_smollm(self):
        self.check(
            [TRANSFORMER + "num_layers=30", TRANSFORMER + "hidden_size=576", TRANSFORMER + "num_attention_heads=9",
             TRANSFORMER + "head_groups=3", TRANSFORMER + "ffn_hidden_size=1536", TRANSFORMER + "gated=true",
             TRANSFORMER + "add_linear_biases=false", TRANSFORMER + "normalization.type=rms_norm", TRANSFORMER + "rotary.type=default"],
            Model(30, 576, 9, 3, 64, 1536, rotary=True, rms_norm=True, gated=True, linear_biases=False))


if __name__ == "__main__":
    unittest.main()
