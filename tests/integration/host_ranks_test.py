#!/usr/bin/python3
"""What the host does for several ranks around the training itself: plugins that communicate, logs, one ending, finding a checkpoint."""
import shutil
import unittest

from support import BUILD, HOST, HostTest, end_all, free_port, overrides, read_metrics, run_host, start_rank


class HostRanks(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, experiment, *launcher, **changes):
        return self.assert_ok(run_host(*launcher, *self.tiny_arguments(experiment, **changes), OMP_NUM_THREADS="1"))

    def outputs_of(self, command, local_sizes, folders=None):
        """Starts ranks as an outer launcher would, each with so many on its computer; outputs of all, which end well."""
        size, port = len(local_sizes), free_port()
        ends = end_all(self, *(start_rank(rank, size, port, HOST, *command, cwd=folders and folders[rank], LOCAL_RANK=str(rank % local),
                                          LOCAL_WORLD_SIZE=str(local)) for rank, local in enumerate(local_sizes)))
        self.assertEqual([code for code, _ in ends], [0] * size, ends)
        return [output for _, output in ends]

    def joined(self, ranks, code=0, **changes):
        """A run of the model that communicates (tests/abi/joined_ranks); its experiment and result."""
        plugin, = BUILD.rglob("libfastllm_joined.so")
        experiment = self.folder / f"joined-{ranks}"
        values = {"data.datasets.Training": {"type": "memmap", "path": str(self.data)}, "training.train_iters": 2,
                  "batch.sequence_length": 32, "batch.batch_size": 4, "training.logs.interval": 1,
                  "run.experiment_dir": str(experiment), **changes}
        launcher = ["--nproc", ranks] if ranks > 1 else []
        result = run_host(*launcher, "--plugin", plugin, *overrides(values), OMP_NUM_THREADS="1")
        return experiment, self.assert_ok(result, code)

    def test_a_plugin_reaches_the_other_ranks(self):
        for ranks in (1, 2):
            experiment, _ = self.joined(ranks)
            losses = [m["loss"] for m in read_metrics(experiment) if m["phase"] == "training"]
            self.assertEqual(losses, [sum(rank + 1 for rank in range(ranks))] * 2)

    def test_one_rank_that_is_interrupted_amid_its_work_interrupts_all(self):
        _, result = self.joined(2, 3, **{"model.base_model.interrupted_rank": 1})
        self.assertRegex(result.stderr, r"\[Rank 1\] error: plugin joined .*: stopped on the way")
        self.assertRegex(result.stderr, r"\[Rank 0\] error: .*rank 1 was asked to stop: plugin joined .*: stopped on the way")

    def test_computers_with_unequal_numbers_of_ranks(self):
        command = self.tiny_arguments(self.folder / "unequal", 2, batch__batch_size=3, batch__micro_batch_size=1)
        output, *_ = self.outputs_of(command, (2, 2, 1))
        self.assertIn("training @ iteration", output)

    def test_evaluation_takes_the_checkpoint_that_rank_0_finds(self):
        """A newer one that appears before another rank looks, here by giving that rank a folder of its own, is left alone."""
        experiment, later = self.folder / "first", self.folder / "second"
        changes = {"training__validation": {"interval": 2, "iterations": 2}, "training__checkpoint__interval": 2,
                   "training__checkpoint__keep": 9, "batch__micro_batch_size": 2,
                   "data__datasets__Validation": {"type": "memmap", "path": str(self.data)}}
        self.train(experiment, iterations=4, **changes)
        shutil.copytree(experiment, later)
        shutil.rmtree(experiment / "checkpoint/4")
        view = self.folder / "view"
        shutil.rmtree(later / "runs")
        (later / "runs").symlink_to(experiment / "runs")
        for folder in (experiment, later):
            (view / folder.name).mkdir(parents=True)
            (view / folder.name / "experiment").symlink_to(folder)
        # Equal command lines that lead to other folders: by the working directory.
        command = ["evaluate", *self.tiny_arguments("experiment", 4, **changes)]
        self.outputs_of(command, (2, 2), [view / "first", view / "second"])
        logs = [(experiment / f"runs/1/logs/logs_rank_{rank}.txt").read_text() for rank in range(2)]
        for log in logs:
            self.assertIn("Loading checkpoint from iteration 2...", log)

    def test_validating_an_evaluation_tells_the_plan(self):
        arguments = self.tiny_arguments(self.folder / "planned", 4, model__multi_stage__compile_all=True)
        for command in ([], ["evaluate"]):
            output = self.assert_ok(run_host(*command, *arguments, "--validate")).stdout
            self.assertIn("model.multi_stage.compile_all: no effect here", output)


if __name__ == "__main__":
    unittest.main()
