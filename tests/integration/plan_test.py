#!/usr/bin/python3
"""What `fastllm-host plan` foretells: memory as runs allocate it and as tests/fixtures/memory_table.py has it, checkpoints as they are
written, and a large model on many ranks at once."""
import dataclasses
import json
import re
import shutil
import time
import unittest

from support import SOURCE, HostTest, run_host

from memory_table import Model, log_lines, tables  # tests/fixtures, which support puts in the path

TRANSFORMER = "model.base_model.transformer."
LLAMA = Model(4, 24, 4, 4, 6, 40, 64, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=True)
LLAMA_ARGUMENTS = [
    "model.base_model.vocab_size=64", "model.base_model.tie_word_embeddings=false", TRANSFORMER + "num_layers=4",
    TRANSFORMER + "hidden_size=24", TRANSFORMER + "num_attention_heads=4", TRANSFORMER + "head_groups=4",
    TRANSFORMER + "ffn_hidden_size=40", TRANSFORMER + "gated=true", TRANSFORMER + "add_linear_biases=false",
    TRANSFORMER + "normalization.type=rms_norm", TRANSFORMER + "rotary.type=default",
]
MIXTURE = dataclasses.replace(LLAMA, num_experts=4, num_shared_experts=1)
MIXTURE_ARGUMENTS = [*LLAMA_ARGUMENTS, TRANSFORMER + "num_experts=4", TRANSFORMER + "num_shared_experts=1",
                     TRANSFORMER + "num_experts_per_token=2"]
TIED = Model(3, 24, 4, 4, None, None, 64, max_position_embeddings=40)
TIED_ARGUMENTS = [
    "model.base_model.vocab_size=64", "model.base_model.max_position_embeddings=40", TRANSFORMER + "num_layers=3",
    TRANSFORMER + "hidden_size=24", TRANSFORMER + "num_attention_heads=4", TRANSFORMER + "head_groups=4", "batch.sequence_length=40",
]


def distributed(tp=1, pp=1, dp=1, zero=1, dtype="float32"):
    return [f"model.distributed.world_size={tp * pp * dp}", f"model.distributed.tensor_parallel={tp}",
            f"model.distributed.pipeline_parallel={pp}", f"model.multi_stage.zero_stage={zero}",
            f"model.distributed.training_dtype={dtype}"]


class Plan(HostTest):
    def plan(self, *arguments):
        return json.loads(self.assert_ok(run_host("plan", "--plugin", "gpt", "--json", *arguments)).stdout)

    def refused(self, *arguments, code=2):
        result = run_host("plan", "--plugin", "gpt", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def check_memory(self, arguments, model, **options):
        plan = self.plan(*arguments, *distributed(options.get("tp", 1), options.get("pp", 1), options.get("dp", 1),
                                                  options.get("zero", 1), options.get("training_dtype", "float32")))
        expected = tables(model, **options)
        self.assertEqual(len(plan["kinds"]), len(expected))
        for kind, table in zip(plan["kinds"], expected):
            memory = kind["memory"]
            self.assertEqual(memory["lines"], log_lines(table))
            self.assertEqual((memory["weight_buffers"], memory["gradient_buffers"], memory["shards"], memory["allocated"]),
                             (table["weight_buffers"], table["grad_buffers"], table["shards"], table["total"]))
            for state, shard in memory["shards_split"].items():
                whole, trainable = table["weight_shard"], table["grad_shard"]
                self.assertEqual(shard, {"trainable": trainable, "frozen": whole - trainable if state == "weights" else 0})
        return plan

    def test_memory_is_what_the_rules_say(self):
        cases = [dict(dp=d, zero=z) for d in (1, 2, 4) for z in (1, 2, 3)]
        cases += [dict(tp=2), dict(tp=4, dp=2, zero=3), dict(pp=2), dict(pp=3, dp=2, zero=2), dict(tp=2, pp=2, dp=4, zero=3)]
        ways = [(LLAMA_ARGUMENTS, LLAMA, None), (TIED_ARGUMENTS, TIED, "mlp"), (MIXTURE_ARGUMENTS, MIXTURE, "router"),
                (LLAMA_ARGUMENTS, LLAMA, "embeddings"), (TIED_ARGUMENTS, TIED, None), (MIXTURE_ARGUMENTS, MIXTURE, "mlp")]
        for number, case in enumerate(cases):
            for arguments, model, frozen in (ways[:3], ways[3:])[number % 2]:
                scale = [] if frozen is None else [f"{TRANSFORMER}{frozen}_lr_scale={'[0]' if frozen == 'mlp' else 0}"]
                with self.subTest(frozen=frozen, tied=model is TIED, experts=model.num_experts, **case):
                    self.check_memory([*arguments, *scale], model, frozen={frozen} - {None}, training_dtype="bfloat16", **case)

    def test_a_run_allocates_and_writes_what_was_planned(self):
        self.data = self.tiny_data()
        for ranks, zero, frozen in ((1, 1, False), (2, 1, True), (2, 3, False), (4, 2, True)):
            with self.subTest(ranks=ranks, zero=zero, frozen=frozen):
                experiment = self.folder / f"run-{ranks}-{zero}"
                changes = {"model.multi_stage.zero_stage": zero, "training.checkpoint.interval": 1, "training.checkpoint.keep": 1,
                           "batch.batch_size": 4, "batch.micro_batch_size": 1}
                if frozen:
                    changes[TRANSFORMER + "mlp_lr_scale"] = [0]
                arguments = self.tiny_arguments(experiment, 2, **changes)
                launcher = ["--nproc", str(ranks)] if ranks > 1 else []
                self.assert_ok(run_host(*launcher, *arguments, OMP_NUM_THREADS="1"))
                # From the run's own file, which names its ranks.
                plan = self.plan(experiment / "runs/0/config.yaml")
                kind, = plan["kinds"]
                self.assertEqual(plan["world"]["ranks"], ranks)
                for rank in range(ranks):
                    lines = (experiment / f"runs/0/logs/logs_rank_{rank}.txt").read_text()
                    self.assertEqual(re.findall(r"(?:>>> Allocating|Total allocated).*", lines), kind["memory"]["lines"])
                files = list((experiment / "checkpoint/2").glob("rank_*.safetensors"))
                self.assertEqual(len(files), ranks)
                written = sum(f.stat().st_size for f in files)
                self.assertLessEqual(plan["checkpoints"]["bytes"], written)
                self.assertLess(written - plan["checkpoints"]["bytes"], 4096 * ranks)
                self.assertEqual(plan["checkpoints"]["kept"], len(list((experiment / "checkpoint").iterdir())))
        # A run's folder stands for its file, and a plan for other ranks of it works out the rest again.
        other = self.plan(experiment / "runs/0", "--world-size", 2)
        self.assertEqual((other["world"]["data"], other["micro_batches"], other["tokens"]), (2, 2, 4 * 32))

    def counted(self, ranks, iterations, **changes):
        """Of rank 0, over a whole run: (group, operation) -> bytes, calls."""
        experiment = self.folder / f"counted-{iterations}"
        self.assert_ok(run_host("--nproc", ranks, *self.tiny_arguments(experiment, iterations, **changes), OMP_NUM_THREADS="1"))
        log = (experiment / "runs/0/logs/logs_rank_0.txt").read_text()
        self.plan_of = experiment / "runs/0/config.yaml"
        text = re.search(r"Sent to other ranks: .* \((.*)\)", log)[1]
        found = re.findall(r"([\w.]+): (\w+) ([\d,]+) in ([\d,]+) calls", text)
        return {(group, operation): (int(size.replace(",", "")), int(calls.replace(",", ""))) for group, operation, size, calls in found}

    def test_ranks_send_what_was_planned(self):
        """What two steps more send, over sockets; set-up and end send the same."""
        self.data = self.tiny_data()
        mlp = {"model__base_model__transformer__mlp_lr_scale": [0]}
        tied = {"model__base_model__tie_word_embeddings": True}
        cases = ((2, 1, 1, {}), (2, 3, 1, mlp), (4, 1, 1, mlp), (4, 3, 1, {}), (2, 1, 2, tied), (4, 2, 2, mlp))
        for ranks, zero, pipeline, changes in cases:
            with self.subTest(ranks=ranks, zero=zero, pipeline=pipeline, frozen=bool(changes)):
                changes = {**changes, "model__multi_stage__zero_stage": zero, "model__distributed__pipeline_parallel": pipeline,
                           "batch__batch_size": 8, "batch__micro_batch_size": 1}
                counts = [self.counted(ranks, iterations, **changes) for iterations in (2, 4)]
                planned = {}
                for line in self.plan(self.plan_of)["kinds"][0]["traffic"]:
                    key = (line["communicator"], line["operation"])
                    size, calls = planned.get(key, (0, 0))
                    planned[key] = (size + 2 * line["bytes"], calls + 2 * line["calls"])
                found = {key: (size - counts[0][key][0], calls - counts[0][key][1]) for key, (size, calls) in counts[1].items()}
                self.assertEqual({key: value for key, value in found.items() if value != (0, 0)}, planned)
                for number in (2, 4):
                    shutil.rmtree(self.folder / f"counted-{number}")

    def test_a_large_model_on_many_ranks_at_once(self):
        begin = time.monotonic()
        plan = self.plan(SOURCE / "examples/plans/llama-3-70b.yaml", "--peak", "400T", "--bandwidth", "intra=200G", "--bandwidth",
                         "inter=25G", "--memory", "80Gi")
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual(plan["parameters"], 70_553_706_496)  # as Meta counts them
        world = plan["world"]
        self.assertEqual((world["ranks"], world["data"], world["pipeline"], world["tensor"]), (512, 16, 4, 8))
        self.assertEqual(sum(kind["count"] for kind in plan["kinds"]), 512)
        model = Model(80, 8192, 64, 8, 128, 28672, 128256, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=True)
        expected = tables(model, tp=8, pp=4, dp=16, training_dtype="bfloat16", layers_per_stage=5)
        for kind, table in zip(plan["kinds"], expected):
            self.assertEqual(kind["memory"]["lines"], log_lines(table))
        # Six operations a parameter and token, for those that are multiplied with, and attention on top.
        products = 6 * (plan["parameters"] - 128256 * 8192) * plan["tokens"]
        self.assertGreater(plan["model_flops"], products)
        self.assertLess(plan["model_flops"], 1.15 * products)
        self.assertGreater(plan["time"]["seconds"], plan["flops"] / 512 / 400e12)
        self.assertEqual(plan["time"]["bound_by"], "computing")

    def test_the_table_for_people(self):
        text = self.assert_ok(run_host("plan", "--plugin", "gpt", SOURCE / "examples/plans/llama-3-70b.yaml", "--memory", "80Gi",
                                       "--peak", "400T", "--bandwidth", "25G")).stdout
        for words in ("512 ranks: 16 data x 4 pipeline x 8 tensor; 8 on a computer", "memory of a rank, MiB", "ranks 0-127",
                      "data, reduce_scatter: gradients", "tokens/s", "days", "left out: the optimizer: no --memory-bandwidth", "bubble"):
            self.assertIn(words, text)

    def test_less_memory_is_offered_when_it_does_not_fit(self):
        arguments = [*LLAMA_ARGUMENTS, *distributed(dp=4), "batch.sequence_length=64", "batch.micro_batch_size=2"]
        plan = self.plan(*arguments, "--memory", "100k")
        self.assertFalse(plan["fits"])
        smaller = {a["change"]: a["bytes"] for a in plan["smaller_with"]}
        zero = "model.multi_stage.zero_stage=3"
        self.assertLess(smaller[zero], plan["largest_bytes"])
        narrow = "model.multi_stage.store_frozen_weights_in_optimization_precision=false"
        self.assertNotIn(narrow, smaller)
        frozen = self.plan(*arguments, TRANSFORMER + "mlp_lr_scale=[0]")
        copies = frozen["kinds"][0]["memory"]["shards_split"]["weights"]["frozen"]
        self.assertIn((narrow, frozen["largest_bytes"] - copies), [(a["change"], a["bytes"]) for a in frozen["smaller_with"]])
        # Each is what the same plan with it says.
        for change, size in smaller.items():
            changes = change.split()
            with self.subTest(change):
                more = ["batch.batch_size=8"] if "micro_batch_size" in change or "_parallel" in change else []
                self.assertEqual(self.plan(*arguments, *more, *changes)["largest_bytes"], size)
        self.assertTrue(self.plan(*arguments, "--memory", "1G")["fits"])

    def test_frozen_parts_are_neither_reduced_nor_computed(self):
        arguments = [*LLAMA_ARGUMENTS, *distributed(dp=2)]
        plain, frozen = self.plan(*arguments), self.plan(*arguments, TRANSFORMER + "mlp_lr_scale=[0]")
        sent = [{line["what"]: line["bytes"] for line in plan["kinds"][0]["traffic"]} for plan in (plain, frozen)]
        # Four MLPs of three matrices each; no padding, so that the parts are whole shards.
        share = 4 * 3 * 24 * 40 // 2 * 4
        for what in ("weights", "gradients"):
            self.assertEqual(sent[0][what] - sent[1][what], share)
        self.assertEqual(frozen["kinds"][0]["bytes_sent_first_step"] - frozen["kinds"][0]["bytes_sent"], share)
        self.assertEqual(plain["stages"][1]["forward_flops"], frozen["stages"][1]["forward_flops"])
        self.assertLess(frozen["stages"][1]["backward_flops"], plain["stages"][1]["backward_flops"])

    def test_measured_by_the_ranks_that_would_run(self):
        arguments = [*LLAMA_ARGUMENTS, "batch.batch_size=4", "batch.sequence_length=64"]
        kept = []
        for recompute in ("false", "true"):
            result = self.assert_ok(run_host("plan", "--plugin", "gpt", "--json", "--measure", "--nproc", 2, *arguments,
                                             f"training.recompute_activations={recompute}", OMP_NUM_THREADS="1"))
            line, = (line for line in result.stdout.splitlines() if "{" in line)  # one of them tells
            plan = json.loads(line[line.index("{"):])
            self.assertEqual((plan["world"]["data"], plan["time"]["left_out"]), (2, []))
            for what in ("peak", "memory_bandwidth", "intra"):
                self.assertGreater(plan["hardware"][what], 0)
            self.assertIsNone(plan["hardware"]["inter"])
            parts = plan["time"]["parts"]
            self.assertAlmostEqual(parts["computing"], plan["kinds"][0]["flops"] / plan["hardware"]["peak"])
            self.assertGreater(min(parts["gathering and reducing"], parts["optimizer and copies"]), 0)
            self.assertAlmostEqual(sum(parts.values()), plan["time"]["seconds"])
            kept.append(plan["kinds"][0]["memory"]["kept_in_layers"])
        self.assertLess(kept[1], kept[0])  # of all layers, of one
        # Every block keeps at least what its MLP has before the activation, two halves of 40, in float32.
        self.assertGreater(kept[0], 4 * 2 * 64 * 80 * 4)

    def test_ranks_that_share_a_sequence_hold_a_part_of_it_each(self):
        one = [*LLAMA_ARGUMENTS, "batch.sequence_length=64", "batch.batch_size=2"]
        two = self.plan(*one, *distributed(dp=2), "model.distributed.sequence_data_parallel=2")
        one = self.plan(*one)
        self.assertEqual(two["micro_batches"], one["micro_batches"])
        self.assertAlmostEqual(two["kinds"][0]["memory"]["activations"] / one["kinds"][0]["memory"]["activations"], 0.5, delta=0.1)
        self.assertEqual((two["flops"], 2 * two["kinds"][0]["flops"]), (one["flops"], one["kinds"][0]["flops"]))

    def test_command_line(self):
        self.assertIn("--nproc: expected with --measure only", self.refused("--nproc", "2"))
        self.assertIn("expected 1 to measure layers, each by itself, found 2",
                      self.refused(*LLAMA_ARGUMENTS, *distributed(tp=2), "--measure", code=1))
        self.assertIn("--world-size: expected a number of ranks from 1", self.refused("--world-size", "0"))
        self.assertIn('--peak: expected a number above 0 with k, M, G, T or P behind it, as 400T, found "fast"',
                      self.refused("--peak", "fast"))
        self.assertIn('--bandwidth: expected intra, inter or a group (data, pipeline, tensor, sequence_data) before the =, found "far"',
                      self.refused("--bandwidth", "far=1G"))
        self.assertIn("--overlap: expected a share from 0 to 1, found 2", self.refused("--overlap", "2"))
        self.assertIn("found no config.yaml in", self.refused(self.folder, code=1))
        self.assertIn("expected a multiple of tensor_parallel times pipeline_parallel = 3, found 4",
                      self.refused("model.distributed.tensor_parallel=3", "--world-size", "4", code=1))
        self.assertIn("fastllm-host plan --plugin gpt CONFIG", self.assert_ok(run_host("plan", "--help")).stdout)


if __name__ == "__main__":
    unittest.main()
