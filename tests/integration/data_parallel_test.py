#!/usr/bin/python3
"""Training on several data-parallel ranks: the numbers of one process, whatever ZeRO stage and number of ranks; one ending."""
import os
import pathlib
import re
import signal
import unittest

from ranks_case import ITERATIONS, RanksCase
from support import (HOST, end_all, free_port, lines_until, read_metrics, read_safetensors, run_host, sample_documents, start_rank,
                     write_memmap)


class DataParallel(RanksCase):
    def test_any_ranks_and_zero_stage_train_as_one_process(self):
        for ranks, zero in ((2, None), (2, 2), (2, 3), (4, 1), (4, 3)):
            with self.subTest(ranks=ranks, zero=zero):
                experiment, output = self.train(f"dp{ranks}-{zero}", ranks, model__multi_stage__zero_stage=zero)
                self.assert_close(self.numbers(experiment), self.reference())
                self.assertIn("[Rank 0]", output)

    def test_frozen_parts_and_recomputation(self):
        changes = {"model__base_model__transformer__mlp_lr_scale": [0], "training__recompute_activations": True,
                   "optimizer__gradient_norm_clipping": 0.1}
        experiment, _ = self.train("frozen", 2, model__multi_stage__zero_stage=3, **changes)
        self.assert_close(self.numbers(experiment), self.reference(**changes))

    def test_float16_with_dynamic_scaling_skips_on_all_ranks(self):
        changes = {"model__distributed__training_dtype": "float16", "optimizer__gradient_scaler__initial": 2.0**40}
        found, _ = self.train("half", 2, **changes)
        one, _ = self.train("half-one", **changes)
        scales = [[(m["iteration"], m["loss_scale"], m["skipped_iters"]) for m in read_metrics(e) if m["phase"] == "training"]
                  for e in (found, one)]
        self.assertEqual(*scales)
        self.assertGreater(sum(skipped for _, _, skipped in scales[0]), 0)

    def test_a_checkpoint_goes_on_with_any_number_of_ranks(self):
        expected = self.reference()
        for first, then in ((2, 2), (2, 1), (1, 4), (4, 2)):
            with self.subTest(first=first, then=then):
                name = f"resume-{first}-{then}"
                experiment, _ = self.train(name, first, training__shutdown__interval=5, code=0)
                self.assertEqual({p.name for p in (experiment / "checkpoint/5").glob("rank_*")},
                                 {f"rank_{r}.safetensors" for r in range(first)})
                _, output = self.train(name, then)
                self.assertIn("Loading checkpoint from iteration 5", output)
                self.assert_close(self.numbers(experiment), expected)

    def test_ranks_that_stop_resume_to_the_bit(self):
        whole, _ = self.train("whole", 2)
        stopped, _ = self.train("stopped", 2, training__shutdown__interval=5)
        self.train("stopped", 2)
        self.assertEqual(self.numbers(stopped), self.numbers(whole))
        for rank in range(2):
            a, b = (read_safetensors(e / f"checkpoint/{ITERATIONS}/rank_{rank}.safetensors") for e in (stopped, whole))
            self.assertEqual(a, b)

    def test_evaluation_on_other_ranks(self):
        experiment, _ = self.train("evaluated")
        self.assert_ok(run_host("evaluate", "--nproc", 2, "--plugin", "gpt", experiment, OMP_NUM_THREADS="1"))
        found = read_metrics(experiment, 1)
        expected = [m for m in read_metrics(experiment, 0) if m["phase"] == "validation"][-1]
        self.assertEqual([m["phase"] for m in found], ["validation"])
        self.assertAlmostEqual(found[0]["language_model_loss"], expected["language_model_loss"], delta=1e-5)
        self.assert_ok(run_host("evaluate", "--plugin", "gpt", experiment, OMP_NUM_THREADS="1"))
        alone, = read_metrics(experiment, 2)
        self.assertAlmostEqual(found[0]["language_model_loss"], alone["language_model_loss"], delta=1e-5)

    def test_each_rank_has_its_log_and_its_artifacts(self):
        experiment, output = self.train("artifacts", 2, model__multi_stage__debug_layer_outputs=2, model__multi_stage__debug_param_init=1,
                                        run__tensor_logs__save=True)
        self.assertIn("Local param: ", output)
        self.assertNotIn("Global ", output)  # nothing is gathered
        run = experiment / "runs/0"
        self.assertEqual({p.name for p in (run / "logs").iterdir()}, {"logs_rank_0.txt", "logs_rank_1.txt"})
        for rank in "01":
            self.assertTrue((run / f"artifacts/{rank}/tensor_logs_train_1.safetensors").exists())
        self.assertEqual({p.name for p in (experiment / "runs").iterdir()}, {"0"})


class RanksEnd(RanksCase):
    def test_a_signal_to_one_rank_stops_all_at_the_same_step(self):
        experiment, process = self.start("signalled", 2)
        lines_until(process, r"training @ iteration +3/")
        os.kill(self.ranks_of(process)[1], signal.SIGTERM)
        (code, output), = end_all(self, process)
        self.assertEqual(code, 3, output)
        self.assertRegex(output, r"Interrupt signal SIGTERM received: stopped after iteration \d+, everything is saved")
        step = int(re.search(r"stopped after iteration (\d+)", output)[1])
        self.assertTrue((experiment / f"checkpoint/{step}/rank_1.safetensors").exists())

    def test_a_killed_rank_ends_all_and_the_next_start_goes_on(self):
        experiment, process = self.start("killed", 2)
        lines_until(process, r"Saved checkpoint to .*/5$")
        os.kill(self.ranks_of(process)[1], signal.SIGKILL)
        (code, output), = end_all(self, process)
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"\[Rank 0\] error: .*rank 1")
        self.assertEqual({p.name for p in (experiment / "checkpoint").glob("*") if not (p / "ok").exists()}, set())
        latest = max(int(p.name) for p in (experiment / "checkpoint").iterdir())
        result = run_host("--nproc", 2, *self.arguments(experiment, training__train_iters=latest + 2), OMP_NUM_THREADS="1")
        self.assertIn(f"Loading checkpoint from iteration {latest}", self.assert_ok(result).stdout)

    def test_a_rank_that_fails_tells_all_its_sentence(self):
        """A token that only rank 1 reads: samples go to the ranks in turn."""
        document = [i % 64 for i in range(32 * 200)]
        document[32 * 13 + 16] = 99
        write_memmap(self.folder / "bad", [document])
        _, process = self.start("failing", 2, data__sampling__shuffle="disabled",
                                data__datasets__Training={"type": "memmap", "path": str(self.folder / "bad")})
        (code, output), = end_all(self, process)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"\[Rank 1\] error: .*bad.*found 99")
        self.assertRegex(output, r"\[Rank 0\] error: rank 1 .*failed: .*bad.*found 99")

    def end_of_two(self, first, second, folders=(None, None)):
        """(code, output) of two ranks that were started with these arguments in these folders."""
        port = free_port()
        return end_all(self, *(start_rank(rank, 2, port, HOST, *arguments, cwd=folders[rank])
                               for rank, arguments in enumerate((first, second))))

    def test_ranks_with_other_configurations_are_told_apart(self):
        arguments = self.arguments(self.folder / "different")
        for code, output in self.end_of_two(arguments, [*arguments, "optimizer.learning_rate.base=0.5"]):
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"error: expected the same configuration .*rank 0 has .*base: 0\.003.*rank 1 has .*base: 0\.5")

    def test_ranks_with_other_data_are_told_apart(self):
        folders = [self.folder / "first", self.folder / "second"]
        for seed, folder in enumerate(folders):
            folder.mkdir()
            write_memmap(folder / "data", sample_documents(seed=seed))
        arguments = self.arguments(self.folder / "different", data__datasets__Training={"type": "memmap", "path": "data"})
        for code, output in self.end_of_two(arguments, arguments, folders):
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"error: expected the same data .*Training: ")

    def test_a_rank_that_does_not_come_is_named_after_the_timeout(self):
        arguments = self.arguments(self.folder / "alone", model__distributed__timeout=1)
        (code, output), = end_all(self, start_rank(0, 2, free_port(), HOST, *arguments))
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"error: expected .*2 ranks.*rank 1")

    def test_one_folder_for_all(self):
        folders = [self.folder / "first", self.folder / "second"]
        for folder in folders:
            folder.mkdir()
        for code, output in self.end_of_two(*[self.arguments(pathlib.Path("experiment"))] * 2, folders):
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"expected the run folder .*second/experiment/runs/0 that rank 0 made, found none; choose a "
                                     r"run.experiment_dir that is the same folder for all ranks")


if __name__ == "__main__":
    unittest.main()
