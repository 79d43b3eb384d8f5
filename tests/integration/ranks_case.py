"""What tests of several ranks share: a short run in which ranks do everything that they must do together, and what it left."""
import json
import pathlib
import subprocess

from support import HostTest, losses_of, read_metrics, run_host, start_host

ITERATIONS = 10


class RanksCase(HostTest):
    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()
        self.held_out = self.tiny_data("held_out", seed=2)

    def arguments(self, experiment, **changes):
        """Everything that ranks must do together: micro-batches, validation, saves, clipping, and samples with unequally many labels:
        a label two tokens ahead counts only inside its document."""
        return self.tiny_arguments(experiment, ITERATIONS, **{
            "batch.batch_size": 8, "batch.micro_batch_size": 1, "training.checkpoint.interval": 5, "training.checkpoint.keep": 20,
            "training.validation": {"interval": 4, "iterations": 2}, "batch.cross_document_attention": False,
            "model.base_model.prediction_heads": 2,
            "data.datasets.Validation": {"type": "memmap", "path": str(self.held_out)}, **changes})

    def train(self, name, ranks=1, code=0, **changes):
        experiment = self.folder / name
        launcher = ["--nproc", str(ranks)] if ranks > 1 else []
        result = run_host(*launcher, *self.arguments(experiment, **changes), OMP_NUM_THREADS="1")
        self.assert_ok(result, code)
        return experiment, result.stdout

    def numbers(self, experiment):
        """(phase, iteration) -> losses and gradient norm; a step done twice must have come out the same."""
        result = {}
        for metrics in read_metrics(experiment):
            value = {**losses_of(metrics), **({"grad_norm": metrics["grad_norm"]} if "grad_norm" in metrics else {})}
            key = (metrics["phase"], metrics["iteration"])
            self.assertEqual(result.setdefault(key, value), value, key)
        return result

    def assert_close(self, found, expected, relative=1e-4):
        self.assertEqual(found.keys(), expected.keys())
        for key, values in expected.items():
            for name, value in values.items():
                most = (1e-5 if key[1] <= 1 else relative) * abs(value)
                self.assertLessEqual(abs(found[key][name] - value), most, (key, name, found[key][name], value))

    def reference(self, **changes):
        """Of one process; made once for equal changes."""
        key = json.dumps(changes, sort_keys=True)
        if key not in RanksCase.references:
            RanksCase.references[key] = self.numbers(self.train(f"one-{len(RanksCase.references)}", **changes)[0])
            self.assertEqual(len(RanksCase.references[key]), ITERATIONS + 3)
        return RanksCase.references[key]

    def go_on_in_any_layout(self, layouts, pairs):
        """layouts: name -> (ranks, changes); pairs: that it stops in and goes on in. The numbers are those of one process."""
        for before, after in pairs:
            with self.subTest(before=before, after=after):
                name = f"{before} to {after}"
                ranks, changes = layouts[before]
                self.train(name, ranks, **changes, training__shutdown__interval=5)
                ranks, changes = layouts[after]
                experiment, output = self.train(name, ranks, **changes)
                self.assertIn("Loading checkpoint from iteration 5", output)
                self.assert_close(self.numbers(experiment), self.reference())

    def evaluates_as_it_trained(self, changes):
        """A run of one process, evaluated by two ranks in another layout."""
        experiment, _ = self.train("evaluated")
        layout = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in changes.items()]
        self.assert_ok(run_host("evaluate", "--nproc", 2, "--plugin", "gpt", experiment, *layout, OMP_NUM_THREADS="1"))
        expected = losses_of([m for m in read_metrics(experiment, 0) if m["phase"] == "validation"][-1])
        found, = read_metrics(experiment, 1)
        for name, loss in expected.items():
            self.assertLessEqual(abs(losses_of(found)[name] - loss), 1e-5 * abs(loss), name)

    def start(self, name, ranks, **changes):
        experiment = self.folder / name
        # Far more steps than a test waits for.
        arguments = self.arguments(experiment, training__train_iters=1_000_000, **changes)
        process = start_host("--nproc", ranks, *arguments, OMP_NUM_THREADS="1")
        self.addCleanup(process.kill)
        return experiment, process

    def ranks_of(self, process):
        """Process ids by rank."""
        children = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True).stdout.split()
        result = {}
        for pid in children:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            result.update({int(v[5:]): int(pid) for v in variables if v.startswith("RANK=")})
        return result

    references = {}
