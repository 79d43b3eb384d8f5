#!/usr/bin/python3
"""Training on pipeline ranks: the numbers of one process with everything that ranks do together, checkpoints that go on with other
ranks, memory of each, one ending. Every mesh's gradients and weights, by parameter: equivalence_test.py."""
import os
import re
import signal
import unittest

from ranks_case import ITERATIONS, RanksCase
from support import end_all, lines_until, losses_of, read_metrics, read_safetensors, run_host

from memory_table import Model, log_lines, tables  # tests/fixtures, which support puts in the path

PP = {"model__distributed__pipeline_parallel": 2}
ZERO = "model__multi_stage__zero_stage"
TIED = {"model__base_model__tie_word_embeddings": True}
TRANSFORMER = "model__base_model__transformer__"
EMBEDDINGS_FROZEN = {TRANSFORMER + "embeddings_lr_scale": 0}
# No gradient is wanted below the head.
HEAD_ALONE = {**EMBEDDINGS_FROZEN, **{TRANSFORMER + f"{part}_lr_scale": 0 for part in ("attention", "norm")},
              TRANSFORMER + "mlp_lr_scale": [0]}


def sent(experiment, rank):
    """(group, operation) -> bytes that a rank sent over a run."""
    log = (experiment / f"runs/0/logs/logs_rank_{rank}.txt").read_text()
    text = re.search(r"Sent to other ranks: .* \((.*)\)", log)[1]
    return {(group, operation): int(size.replace(",", "")) for group, operation, size in re.findall(r"([\w.]+): (\w+) ([\d,]+) in", text)}


class Pipeline(RanksCase):
    def test_pipeline_ranks_train_as_one_process(self):
        """Looped, with micro-batches in breadth: four or two stages besides the head's, two further heads among them."""
        binding = {"optimizer__gradient_norm_clipping": 0.1}  # by a norm over the ranks, in which a copy counts once
        for name, ranks, model, mesh in (
            ("untied", 2, {}, PP), ("tied", 2, TIED, PP),
            ("two layers a stage", 2, TIED, {**PP, "model__multi_stage__layers_per_stage": 2}),
            ("data", 4, TIED, {**PP, ZERO: 1}), ("ZeRO 3", 4, {}, {**PP, ZERO: 3}),
            ("neighbours", 4, TIED, {**PP, ZERO: 2, "model__distributed__pipeline_first": True}),
        ):
            with self.subTest(name):
                experiment, _ = self.train(name, ranks, **model, **binding, **mesh)
                self.assert_close(self.numbers(experiment), self.reference(**model, **binding))

    def test_frozen_parts_and_recomputation(self):
        for name, model in (("mlp", {TRANSFORMER + "mlp_lr_scale": [0]}), ("head", HEAD_ALONE), ("tied", {**TIED, **EMBEDDINGS_FROZEN}),
                            ("dropout", {TRANSFORMER + "hidden_dropout": 0.1})):
            changes = {"training__recompute_activations": True, "optimizer__gradient_norm_clipping": 0.1,
                       TRANSFORMER + "num_layers": 4, **model}
            with self.subTest(name):
                experiment, _ = self.train(name, 2, **changes, **PP)
                self.assert_close(self.numbers(experiment), self.reference(**changes))

    def test_float16_with_dynamic_scaling_skips_on_all_ranks(self):
        changes = {**TIED, "model__distributed__training_dtype": "float16", "optimizer__gradient_scaler__initial": 2.0**40}
        found, _ = self.train("half", 2, **changes, **PP)
        one, _ = self.train("half-one", **changes)
        scales = [[(m["iteration"], m["loss_scale"], m["skipped_iters"]) for m in read_metrics(e) if m["phase"] == "training"]
                  for e in (found, one)]
        self.assertEqual(*scales)
        self.assertGreater(sum(skipped for _, _, skipped in scales[0]), 0)

    def test_what_is_frozen_is_not_sent(self):
        """Two ranks: values go up and their gradients down, but not below all that is trained; a frozen tied weight stays."""
        # One layer a stage: embedding on rank 0, layer on rank 1, head on rank 0, or none that is trained below the head.
        small = {TRANSFORMER + "num_layers": 1, "model__base_model__prediction_heads": 1, "training__validation": {}}
        value = 8 * 32 * 32 * 4  # of a step
        for name, model, gradients in (("all", {}, 1), ("head", HEAD_ALONE, 0)):
            experiment, _ = self.train(name, 2, **small, **model, **PP)
            for rank in range(2):
                self.assertEqual(sent(experiment, rank)[("world", "send")], ITERATIONS * value * (1 + gradients), (name, rank))
        # With two layers the head is on rank 1, and the embedding of 64 x 32 on both.
        small[TRANSFORMER + "num_layers"] = 2
        group = ("layers.0.word_embeddings_weight_tied_weight", "all_reduce")
        for name, model, size in (("tied", {}, 64 * 32 * 4), ("frozen", EMBEDDINGS_FROZEN, 0)):
            experiment, _ = self.train(name, 2, **small, **TIED, **model, **PP)
            for rank in range(2):
                self.assertEqual(sent(experiment, rank).get(group, 0), ITERATIONS * size, (name, rank))

    def test_a_checkpoint_goes_on_with_other_ranks(self):
        layouts = {"one": (1, {}), "pp2": (2, PP), "dp2": (2, {}), "pp2 dp2": (4, {**PP, ZERO: 3})}
        model = {**TIED, TRANSFORMER + "mlp_lr_scale": [0]}
        expected = self.reference(**model)
        for first, then in (("pp2", "one"), ("one", "pp2"), ("pp2 dp2", "dp2"), ("dp2", "pp2"), ("pp2", "pp2 dp2")):
            with self.subTest(first=first, then=then):
                name = f"{first} to {then}"
                ranks, mesh = layouts[first]
                experiment, _ = self.train(name, ranks, training__shutdown__interval=5, **model, **mesh)
                self.assertEqual(len(list((experiment / "checkpoint/5").glob("rank_*"))), ranks)
                ranks, mesh = layouts[then]
                _, output = self.train(name, ranks, **model, **mesh)
                self.assertIn("Loading checkpoint from iteration 5", output)
                self.assert_close(self.numbers(experiment), expected)

    def test_ranks_that_stop_resume_to_the_bit(self):
        for name, ranks, changes in (("pp2", 2, {**TIED, **PP}), ("pp2 dp2", 4, {**TIED, **PP, ZERO: 3})):
            with self.subTest(name):
                whole, _ = self.train(f"whole {name}", ranks, **changes)
                stopped, _ = self.train(f"stopped {name}", ranks, training__shutdown__interval=5, **changes)
                self.train(f"stopped {name}", ranks, **changes)
                self.assertEqual(self.numbers(stopped), self.numbers(whole))
                for rank in range(ranks):
                    a, b = (read_safetensors(e / f"checkpoint/{ITERATIONS}/rank_{rank}.safetensors") for e in (stopped, whole))
                    self.assertEqual(a, b)

    def test_copies_of_a_tied_weight_stay_equal(self):
        """The same bits on both ranks, after updates of their own: rank 1's copy is the end of what it holds."""
        experiment, _ = self.train("tied", 2, **TIED, **PP)
        states = [read_safetensors(experiment / f"checkpoint/{ITERATIONS}/rank_{rank}.safetensors") for rank in range(2)]
        copy = 64 * 32 * 4  # bytes of the embedding, which the untied model does not have on rank 1
        for state in ("weights_shard", "exp_avgs_shard", "exp_avgs_sq_shard"):
            main, other = (tensors[state][2] for tensors in states)
            self.assertIn(main[:copy], (other[:copy], other[-copy:]), state)
            self.assertTrue(any(main[:copy]), state)

    def test_evaluation_on_other_ranks(self):
        experiment, _ = self.train("evaluated", 2, **TIED, **PP)
        expected = [m for m in read_metrics(experiment, 0) if m["phase"] == "validation"][-1]
        one = "model.distributed.pipeline_parallel=1"
        for run, (ranks, changes) in enumerate(((2, ()), (1, (one,)), (2, (one,))), 1):
            launcher = ("--nproc", ranks) if ranks > 1 else ()
            self.assert_ok(run_host("evaluate", *launcher, "--plugin", "gpt", experiment, *changes, OMP_NUM_THREADS="1"))
            found, = read_metrics(experiment, run)
            for name, loss in losses_of(expected).items():
                self.assertAlmostEqual(losses_of(found)[name], loss, delta=1e-5)

    def test_each_rank_shows_the_memory_of_its_stages(self):
        model = Model(2, 32, 4, 2, 8, 48, 64, rotary=True, rms_norm=True, gated=True, linear_biases=False, untied=False)
        for ranks, zero, changes, frozen in ((2, 1, {}, set()), (4, 3, {}, set()), (4, 2, {TRANSFORMER + "mlp_lr_scale": [0]}, {"mlp"})):
            with self.subTest(ranks=ranks, zero=zero, frozen=frozen):
                experiment, output = self.train(f"memory-{ranks}-{zero}", ranks, **{
                    **TIED, **PP, ZERO: zero, "training__train_iters": 1, "model__base_model__prediction_heads": 1, **changes})
                expected = tables(model, pp=2, dp=ranks // 2, zero=zero, frozen=frozen)
                for rank in range(ranks):
                    log = (experiment / f"runs/0/logs/logs_rank_{rank}.txt").read_text()
                    found = re.findall(r"(?:>>> Allocating|Total allocated).*", log)
                    self.assertEqual(found, log_lines(expected[rank * 2 // ranks]), rank)


class PipelineEnds(RanksCase):
    def test_a_step_that_is_not_finite_is_left_out_on_all_ranks(self):
        """The step is repeated to find where that began, which sends as a step does; the first rank that has it among its stages tells."""
        changes = {"optimizer__learning_rate__base": 1e30, **TIED}
        for name, ranks, mesh in (("one", 1, {}), ("pp2", 2, PP), ("pp2 dp2", 4, {**PP, ZERO: 3})):
            with self.subTest(name):
                experiment, output = self.train(name, ranks, code=4, **changes, **mesh)
                told = re.findall(r"Iteration (\d+) diverged: .*? The first (?:on this rank )?that is not finite: .*? of "
                                  r"layer layers\.\d+ ", output)
                self.assertEqual(told, ["2"], output)
                self.assertEqual(output.count("Stopped after iteration 1 since the next diverged"), 1, output)
                for rank in range(1, ranks):
                    log = (experiment / f"runs/0/logs/logs_rank_{rank}.txt").read_text()
                    self.assertRegex(log, "Iteration 2 diverged: .*that is not finite: |Iteration 2 diverged: .* began on rank 0;")

    def test_a_signal_to_one_rank_stops_all_and_the_next_start_goes_on(self):
        changes = {**TIED, **PP}
        experiment, process = self.start("signalled", 2, **changes)
        lines_until(process, r"training @ iteration +3/")
        os.kill(self.ranks_of(process)[1], signal.SIGTERM)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 3, output)
        step = int(re.search(r"stopped after iteration (\d+), everything is saved", output)[1])
        arguments = self.arguments(experiment, training__train_iters=step + 2, **changes)
        result = self.assert_ok(run_host("--nproc", 2, *arguments, OMP_NUM_THREADS="1"))
        self.assertIn(f"Loading checkpoint from iteration {step}", result.stdout)

    def test_a_killed_rank_ends_all(self):
        for rank in range(2):
            with self.subTest(rank=rank):
                _, process = self.start(f"killed {rank}", 2, **PP)
                lines_until(process, r"training @ iteration +2/")
                os.kill(self.ranks_of(process)[rank], signal.SIGKILL)
                (code, output), = end_all(self, process)
                self.assertNotEqual(code, 0)
                self.assertRegex(output, rf"\[Rank {1 - rank}\] error: .*rank {rank}")

    def test_more_ranks_than_stages(self):
        few = {TRANSFORMER + "num_layers": 1, "model__base_model__prediction_heads": 1, "model__distributed__pipeline_parallel": 4}
        result = run_host("--nproc", 4, *self.arguments(self.folder / "few", **few), OMP_NUM_THREADS="1")
        self.assert_error(result, "at most one pipeline rank a stage", "3 stages", "pipeline_parallel")


if __name__ == "__main__":
    unittest.main()
