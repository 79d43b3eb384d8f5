#!/usr/bin/python3
"""What frozen weights promise: not a bit of them moves, what is sent and kept falls by their share and no further, and
store_frozen_weights_in_optimization_precision changes where they are kept and nothing else. Real runs of one to four ranks; what is
expected of memory and traffic is computed from the rules (tests/fixtures/memory_table.py)."""
import dataclasses
import json
import re
import struct
import unittest

from support import SOURCE, HostTest, checkpoint_distances, read_metrics, read_safetensors, run_host

from memory_table import Model, log_lines, make_stages, tables  # tests/fixtures, which support puts in the path

TRANSFORMER = "model.base_model.transformer."
ZERO = "model.multi_stage.zero_stage"
NARROW = {"model.multi_stage.store_frozen_weights_in_optimization_precision": False}
TIED = {"model.base_model.tie_word_embeddings": True}
UNCLIPPED = {"optimizer.gradient_norm_clipping": 1e9}
BFLOAT16 = {"model.distributed.training_dtype": "bfloat16"}
MODEL = Model(2, 32, 4, 2, 8, 48, 64, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=True)  # support.TINY
ITERATIONS = 6


def scales(*kinds, value=0):
    return {f"{TRANSFORMER}{kind}_lr_scale": [value] if kind == "mlp" else value for kind in kinds}


# What is frozen: a row is a name, the kinds of memory_table.py and of the configuration, what of a parameter's name tells that it is one
# of them, and the number of experts.
KINDS = (
    ("MLP", ("mlp",), r"\.mlp\.", 1),
    ("embedding", ("embeddings",), r"word_embeddings", 1),
    ("everything but the head", ("mlp", "attention", "embeddings", "norm"), r"\.mlp\.|self_attn|word_embeddings|norm", 1),
    ("experts", ("mlp",), r"\.mlp\.layer_", 4),
    ("router", ("router",), r"\.mlp\.router", 4),
)


def model_of(experts):
    """As memory_table.py has it, and as the configuration."""
    changes = {TRANSFORMER + "num_experts": experts, TRANSFORMER + "num_experts_per_token": 2} if experts > 1 else {}
    return dataclasses.replace(MODEL, num_experts=experts), changes


# Ways to lie over ranks: tensor, pipeline, data, ZeRO stage.
MESHES = tuple((1, 1, dp, zero) for dp in (1, 2, 4) for zero in (1, 2, 3)) + (
    (2, 1, 1, 1), (2, 1, 2, 3), (1, 2, 1, 1), (1, 2, 2, 2), (1, 2, 2, 3), (2, 2, 1, 3))


def mesh_changes(tp=1, pp=1, dp=1, zero=1):
    return {"model.distributed.tensor_parallel": tp, "model.distributed.pipeline_parallel": pp, ZERO: zero,
            **({"batch.batch_size": 8, "batch.micro_batch_size": 1} if pp > 1 else {})}


def files(experiment, iteration=ITERATIONS):
    """File -> tensors of a checkpoint."""
    return {path.name: read_safetensors(path) for path in (experiment / f"checkpoint/{iteration}").glob("rank_*.safetensors")}


def rounded(data):
    """float32 bytes -> the same numbers as bfloat16 holds them, to nearest with ties to even."""
    result = bytearray()
    for bits, in struct.iter_unpack("<I", data):
        result += struct.pack("<I", (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000)
    return bytes(result)


class FrozenCase(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, name, ranks=1, iterations=ITERATIONS, **changes):
        """changes: with dots or with __ for them."""
        experiment = self.folder / name
        launcher = ["--nproc", str(ranks)] if ranks > 1 else []
        saves = {"training.checkpoint.interval": 1, "training.checkpoint.keep": 99}
        arguments = self.tiny_arguments(experiment, iterations, **{**saves, **changes})
        self.assert_ok(run_host(*launcher, *arguments, OMP_NUM_THREADS="1"))
        return experiment

    def numbers(self, experiment):
        """Losses and gradient norm of each iteration."""
        return [{key: value for key, value in m.items() if "loss" in key or key == "grad_norm"} for m in read_metrics(experiment)]

    def plan(self, *arguments):
        return json.loads(self.assert_ok(run_host("plan", "--plugin", "gpt", "--json", *arguments)).stdout)

    def log(self, experiment, rank):
        return (experiment / f"runs/0/logs/logs_rank_{rank}.txt").read_text()


class FrozenBits(FrozenCase):
    def test_frozen_weights_keep_every_bit_and_others_move(self):
        for name, kinds, pattern, experts in KINDS:
            frozen = {**scales(*kinds), **model_of(experts)[1]}
            start = self.train(f"{name} start", iterations=1, **frozen, **{"optimizer.learning_rate.base": 0})
            for ranks, zero in ((1, 1), (2, 2), (2, 3)):
                for where, option in (("wide", {}), ("narrow", NARROW)):
                    with self.subTest(frozen=name, ranks=ranks, zero=zero, where=where):
                        experiment = self.train(f"{name} {ranks} {zero} {where}", ranks, **frozen, **option, **{ZERO: zero})
                        distances = checkpoint_distances(self, experiment, start, ITERATIONS, 1)
                        still = {parameter for parameter, (distance, _) in distances["weights"].items() if distance == 0}
                        expected = {parameter for parameter in distances["weights"] if re.search(pattern, parameter)}
                        self.assertEqual(still, expected)
                        self.assertEqual(distances["exp_avgs"].keys(), distances["weights"].keys() - expected)

    def test_frozen_equals_a_vanishing_scale(self):
        """A step of 1e-12 of the rate is below the last bit of any weight that is not 0."""
        for name, kinds, _, experts in KINDS:
            with self.subTest(name):
                changes = {**model_of(experts)[1], **UNCLIPPED}
                zero, tiny = (self.train(f"{name} {value}", iterations=20, **scales(*kinds, value=value), **changes)
                              for value in (0, 1e-12))
                losses = [[m["language_model_loss"] for m in read_metrics(experiment)] for experiment in (zero, tiny)]
                self.assertEqual(len(losses[0]), 20)
                self.assertEqual(*losses)
                free = self.train(f"{name} free", iterations=20, **changes)
                self.assertNotEqual([m["language_model_loss"] for m in read_metrics(free)], losses[0])


class FrozenPrecision(FrozenCase):
    """Frozen weights in the training type: the same training, the same files, less memory."""

    LAYOUTS = (("one", 1, {}), ("one, ZeRO 3", 1, {ZERO: 3}), ("dp2", 2, {ZERO: 2}), ("dp2, ZeRO 3", 2, {ZERO: 3}),
               ("pp2, tied", 2, {**mesh_changes(pp=2), **TIED}), ("tp2, ZeRO 3", 2, mesh_changes(tp=2, zero=3)))

    def test_training_and_checkpoints_are_the_same(self):
        kinds = {**scales("mlp", "embeddings")}
        for name, ranks, layout in self.LAYOUTS:
            with self.subTest(name):
                wide = self.train(f"{name} wide", ranks, **kinds, **layout)
                narrow = self.train(f"{name} narrow", ranks, **kinds, **layout, **NARROW)
                self.assertEqual(self.numbers(narrow), self.numbers(wide))
                self.assertEqual(files(narrow), files(wide))
                self.assertEqual(len(files(wide)), ranks)

    def test_in_bfloat16_files_hold_what_is_computed_with(self):
        for name, ranks, layout in self.LAYOUTS:
            with self.subTest(name):
                kinds = {**scales("mlp", "embeddings"), **BFLOAT16}
                wide = self.train(f"{name} wide", ranks, **kinds, **layout)
                narrow = self.train(f"{name} narrow", ranks, **kinds, **layout, **NARROW)
                self.assertEqual(self.numbers(narrow), self.numbers(wide))
                differ = 0
                for file, tensors in files(wide).items():
                    found = files(narrow)[file]
                    self.assertEqual(found.keys(), tensors.keys())
                    for state, (dtype, shape, data) in tensors.items():
                        self.assertEqual(found[state][:2], (dtype, shape))
                        if state != "weights_shard":
                            self.assertEqual(found[state][2], data)
                            continue
                        for i in range(0, len(data), 4):
                            if found[state][2][i:i + 4] != data[i:i + 4]:
                                differ += 1
                                self.assertEqual(found[state][2][i:i + 4], rounded(data[i:i + 4]))
                # All but a few numbers of a random weight are rounded, and no more can be than are frozen.
                frozen = 0 if ranks > 1 else 64 * 32 + 2 * 48 * 96
                if frozen:
                    self.assertLess(differ, frozen + 1)
                    self.assertGreater(differ, frozen * 0.9)
                self.assertGreater(differ, 0)

    def test_runs_go_on_from_either_to_the_bit(self):
        for dtype, kinds in (("float32", scales("mlp", "embeddings")), ("bfloat16", {**scales("mlp", "embeddings"), **BFLOAT16})):
            for name, ranks, layout in (self.LAYOUTS[0], self.LAYOUTS[3], self.LAYOUTS[4]):
                changes = {**kinds, **layout}
                whole = self.train(f"{dtype} {name}", ranks, **changes, **NARROW)
                for first, then in ((NARROW, NARROW), (NARROW, {}), ({}, NARROW)):
                    with self.subTest(dtype=dtype, layout=name, first=bool(first), then=bool(then)):
                        stopped = f"{dtype} {name} {bool(first)} {bool(then)}"
                        self.train(stopped, ranks, **changes, **first, **{"training.shutdown.interval": 3})
                        experiment = self.train(stopped, ranks, **changes, **then)
                        self.assertEqual(self.numbers(experiment), self.numbers(whole))
                        # Wider weights in between are those that were rounded, or are rounded when they are loaded.
                        self.assertEqual(files(experiment), files(whole))

    def test_where_nothing_is_frozen_nothing_changes(self):
        wide, narrow = self.train("wide", 2, **{ZERO: 3}), self.train("narrow", 2, **{ZERO: 3}, **NARROW)
        self.assertEqual(self.numbers(narrow), self.numbers(wide))
        self.assertEqual(files(narrow), files(wide))
        lines = [re.findall(r"(?:>>> Allocating|Total allocated|Sent to other ranks).*", self.log(e, 1)) for e in (wide, narrow)]
        self.assertEqual(len(lines[0]), 5)
        self.assertEqual(*lines)

    def test_evaluation_and_tensor_logs_read_them(self):
        changes = {**scales("mlp"), **BFLOAT16, ZERO: 3}
        held_out = {"training.validation": {"interval": ITERATIONS, "iterations": 2},
                    "data.datasets.Validation": {"type": "memmap", "path": str(self.tiny_data("held_out", seed=2))}}
        experiment = self.train("run", 2, **changes, **held_out, **NARROW, **{"model.multi_stage.debug_param_init": 3})
        # Logged in the type they are kept in.
        self.assertRegex(self.log(experiment, 0), r"param: layers\.1\.mlp\.layer_1\.weight: \[[\d, ]+\] bfloat16, mean")
        self.assertRegex(self.log(experiment, 0), r"param: layers\.1\.norm_1\.weight: \[[\d, ]+\] float32, mean")
        expected = [m for m in read_metrics(experiment, 0) if m["phase"] == "validation"][-1]
        self.assert_ok(run_host("evaluate", "--nproc", 2, "--plugin", "gpt", experiment, OMP_NUM_THREADS="1"))
        found, = read_metrics(experiment, 1)
        self.assertEqual(found["language_model_loss"], expected["language_model_loss"])


class FrozenMemory(FrozenCase):
    def check(self, name, kinds, experts, mesh, where):
        tp, pp, dp, zero = mesh
        shape, model = model_of(experts)
        ranks = tp * pp * dp
        option = NARROW if where == "narrow" else {}
        changes = {**scales(*kinds), **model, **mesh_changes(*mesh), **option, "batch.batch_size": 8, "batch.micro_batch_size": 1}
        experiment = self.train(f"{name} {mesh} {where}", ranks, iterations=0, **changes)
        expected = tables(shape, tp=tp, pp=pp, dp=dp, zero=zero, frozen=set(kinds),
                          store_frozen_weights_in_optimization_precision=not option)
        for rank in range(ranks):
            found = re.findall(r"(?:>>> Allocating|Total allocated).*", self.log(experiment, rank))
            self.assertEqual(found, log_lines(expected[rank // (ranks // pp)]))
        plan = self.plan(experiment / "runs/0/config.yaml")
        self.assertEqual([kind["memory"]["shards"] for kind in plan["kinds"]], [table["shards"] for table in expected])
        for kind, table in zip(plan["kinds"], expected, strict=True):
            trainable, whole = table["grad_shard"], table["weight_shard"]
            self.assertEqual(kind["memory"]["shards_split"]["weights"], {"trainable": trainable, "frozen": whole - trainable})

    def test_every_rank_shows_what_the_rules_say(self):
        for number, mesh in enumerate(MESHES):
            for row, (name, kinds, _, experts) in enumerate(KINDS):
                # Each way to lie over ranks with each of both options, each kind with either in turn.
                for where in ("wide", "narrow") if row == number % len(KINDS) else ("wide", "narrow")[(number + row) % 2:][:1]:
                    with self.subTest(frozen=name, mesh=mesh, where=where):
                        self.check(name, kinds, experts, mesh, where)


    def test_the_table_of_the_users_page(self):
        """docs/users/frozen-weights.md: the default model, everything trained, MLP frozen, and without a second copy."""
        def mib(size):
            return f"{size / 2**20:,.2f}"

        page = (SOURCE / "docs/users/frozen-weights.md").read_text()
        rows = [row.strip("| ").split(" | ") for row in page.splitlines() if re.match(r"\| \d \| \d \|", row)]
        self.assertEqual([row[:2] for row in rows], [[str(zero), str(ranks)] for zero in (1, 2, 3) for ranks in (1, 2, 4, 8)])
        frozen = f"{TRANSFORMER}mlp_lr_scale=[0]"
        for zero, ranks, *cells in rows:
            kinds = []
            for changes in ((), (frozen,), (frozen, *(f"{key}=false" for key in NARROW))):
                kind, = self.plan("--world-size", ranks, f"{ZERO}={zero}", *changes)["kinds"]
                kinds.append(kind)
            sent = [kind["bytes_sent"] for kind in kinds]
            memory = [mib(kind["memory"][what]) for what in ("allocated", "shards") for kind in kinds]
            self.assertEqual(cells, [*memory, mib(sent[0]), mib(sent[1]), mib(kinds[1]["bytes_sent_first_step"] - sent[1])])
            self.assertEqual(sent[1], sent[2])


class FrozenTraffic(FrozenCase):
    STAGES = 4  # of MODEL: embedding, two blocks, head

    def sent(self, experiment):
        """(group, operation) -> bytes that rank 0 sent over the run; all ranks are data-parallel, so that group is the world."""
        text = re.search(r"Sent to other ranks: .* \((.*)\)", self.log(experiment, 0))[1]
        found = re.findall(r"([\w.]+): (\w+) ([\d,]+) in", text)
        return {(group, operation): int(size.replace(",", "")) for group, operation, size in found}

    def expected(self, shape, kinds, dp, zero):
        """Bytes of weights gathered and of gradients reduced by a rank: each group's shard goes to each other rank, when it is not in its
        buffer yet, and after each backward."""
        stages = make_stages(shape.layers(), 1, dp, set(kinds))
        size = [[group.shard_size * 4 * (dp - 1) for group in stage] for stage in stages]
        lowest = min(s for s, stage in enumerate(stages) if not stage[0].frozen)
        buffers = 2 if zero == 3 else self.STAGES
        held, valid, gathered, reduced = {}, set(), 0, 0
        for _ in range(ITERATIONS):
            for stage in [*range(self.STAGES), *range(self.STAGES - 1, lowest - 1, -1)]:
                buffer = stage % buffers
                if held.get(buffer) != stage:
                    valid = {(s, g) for s, g in valid if s != held.get(buffer)}
                    held[buffer] = stage
                for number, group in enumerate(stages[stage]):
                    if (stage, number) not in valid:
                        gathered += size[stage][number]
                        valid.add((stage, number))
            valid = {(s, g) for s, g in valid if stages[s][g].frozen}  # an update changes the others
            reduced += sum(size[s][g] for s, stage in enumerate(stages) for g, group in enumerate(stage) if not group.frozen)
        frozen = sum(size[s][g] for s, stage in enumerate(stages) for g, group in enumerate(stage) if group.frozen)
        return gathered, reduced, frozen

    def test_bytes_fall_by_the_frozen_share(self):
        """One micro-batch, so that a gradient is reduced once a step."""
        for dp, zero in ((2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (4, 3)):
            plain = {}  # by the number of experts: what a run with nothing frozen sent, what the rules and the plan say of it
            for name, kinds, _, experts in (("nothing", (), "", 1), ("nothing of experts", (), "", 4), *KINDS):
                # Where frozen weights are kept does not matter.
                option = NARROW if kinds and (dp, zero) in ((2, 1), (4, 3)) else {}
                with self.subTest(frozen=name, dp=dp, zero=zero):
                    shape, model = model_of(experts)
                    experiment = self.train(f"{name} {dp} {zero}", dp, **scales(*kinds), **model, **option, **{ZERO: zero})
                    sent = self.sent(experiment)
                    kind, = self.plan(experiment / "runs/0/config.yaml")["kinds"]
                    planned = kind["bytes_sent_first_step"] + (ITERATIONS - 1) * kind["bytes_sent"]
                    gathered, reduced, frozen = self.expected(shape, kinds, dp, zero)
                    self.assertEqual(sent["world", "reduce_scatter"], reduced)
                    if not kinds:
                        plain[experts] = sent, planned, gathered, reduced
                        continue
                    plain_sent, plain_planned, plain_gathered, plain_reduced = plain[experts]
                    # Besides weights, losses and what ranks agree on are gathered, alike in runs of one model.
                    self.assertEqual(plain_sent["world", "all_gather"] - sent["world", "all_gather"], plain_gathered - gathered)
                    self.assertEqual(sum(plain_sent.values()) - sum(sent.values()), plain_planned - planned)
                    # Weights that are a whole number of shards: their gradients are the share by which reducing falls, and their gathers
                    # all but the first where no stage uses another's buffer.
                    if len(kinds) == 1:
                        self.assertEqual(plain_reduced - reduced, ITERATIONS * frozen)
                        if zero < 3:
                            self.assertEqual(plain_gathered - gathered, (ITERATIONS - 1) * frozen)


if __name__ == "__main__":
    unittest.main()
