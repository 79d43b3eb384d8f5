#!/usr/bin/python3
"""What the host does for several ranks around the training itself: plugins that communicate, logs, one ending, finding a checkpoint."""
import unittest

from support import BUILD, HostTest, overrides, read_metrics, run_host


class HostRanks(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def test_a_plugin_reaches_the_other_ranks(self):
        plugin, = BUILD.rglob("libfastllm_joined.so")
        for ranks in (1, 2):
            experiment = self.folder / f"joined-{ranks}"
            values = {"data.datasets.Training": {"type": "memmap", "path": str(self.data)}, "training.train_iters": 2,
                      "batch.sequence_length": 32, "batch.batch_size": 4, "training.logs.interval": 1,
                      "run.experiment_dir": str(experiment)}
            launcher = ["--nproc", ranks] if ranks > 1 else []
            self.assert_ok(run_host(*launcher, "--plugin", plugin, *overrides(values), OMP_NUM_THREADS="1"))
            losses = [m["loss"] for m in read_metrics(experiment) if m["phase"] == "training"]
            self.assertEqual(losses, [sum(rank + 1 for rank in range(ranks))] * 2)


if __name__ == "__main__":
    unittest.main()
