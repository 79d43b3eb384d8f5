#!/usr/bin/python3
"""The command line: what each subcommand prints, exit codes, and how long a start takes (printed, not judged)."""
import json
import re
import shutil
import subprocess
import time
import unittest

from support import BUILD, FIXTURES, HOST, SOURCE, HostTest, environment, overrides, run_host, start_host


class CommandLine(HostTest):
    def test_version(self):
        version = (SOURCE / "VERSION").read_text().split()[0]
        self.assertIn(version, self.assert_ok(run_host("--version")).stdout)

    def test_help(self):
        output = self.assert_ok(run_host("--help")).stdout
        for word in ("--plugin", "--validate", "--plugin-path", "prepare", "schema", "plugins", "Exit codes"):
            self.assertIn(word, output)
        self.assertIn("--", self.assert_ok(run_host("prepare", "--help")).stdout)

    def test_bad_usage(self):
        self.assert_error(run_host("--no-such-option"), "no-such-option", "--help", code=2)
        self.assert_error(run_host("--plugin", "gpt", "a.yaml", "b.yaml"), "expected one configuration file", code=2)
        self.assert_error(run_host("--plugin", "gpt", "evaluate"), "expected a command as the first word, found evaluate", code=2)
        self.assert_error(run_host("plugins", "x"), "expected no further words", code=2)

    def test_hydra_is_refused_with_the_reason(self):
        for option in (["--hydra"], ["--hydra-path", "configs"], ["--hydra-path=configs"], ["--hydra-config", "a"]):
            name = option[0].split("=")[0]
            for command in ([], ["train"], ["evaluate"]):
                self.assert_error(run_host(*command, "--plugin", "gpt", *option), f"found {name}: Hydra's way of composing configurations",
                                  "write the composed configuration into one YAML file", code=2)

    def test_words_of_the_reference_that_are_not_offered(self):
        self.assert_error(run_host("train", "gpt"), "expected --plugin NAME", code=2)
        self.assert_error(run_host("--plugin", "gpt", "--config_auth_token_file", "a"), "config_auth_token_file", "--help", code=2)
        self.assert_error(run_host("--plugin", "gpt", "-c", "https://localhost/train.yaml"), "https://localhost/train.yaml")
        self.assert_error(run_host("prepare", "dataset.path=x"), "--help", code=2)

    def test_options_of_other_commands(self):
        for arguments, option, command in ((("plugins", "--validate"), "--validate", "plugins"),
                                           (("schema", "--plugin", "gpt", "--verbose", "1"), "--verbose", "schema"),
                                           (("train", "--plugin", "gpt", "--markdown"), "--markdown", "train"),
                                           (("plugins", "-c", "a.yaml"), "--config", "plugins")):
            with self.subTest(arguments):
                self.assert_error(run_host(*arguments), f"{option}: expected with", f"found with {command}", code=2)

    def test_a_path_may_have_an_equals_sign(self):
        folder = self.folder / "lr=3e-4"
        folder.mkdir()
        (folder / "train.yaml").write_text("batch: {sequence_length: 7}\n")
        result = self.assert_ok(run_host("--plugin", "gpt", folder / "train.yaml", "--validate"))
        self.assertIn("sequence_length: 7", result.stdout)

    def test_file_that_is_not_there(self):
        self.assert_error(run_host("--plugin", "gpt", self.folder / "none.yaml"), "none.yaml")

    def test_plugins(self):
        shutil.copy(BUILD / "lib/fastllm/plugins/libfastllm_gpt.so", self.folder)
        (self.folder / "libfastllm_text.so").write_text("not a library")
        loose = self.folder / "libfastllm_loose.so"
        shutil.copy(BUILD / "lib/fastllm/plugins/libfastllm_gpt.so", loose)
        loose.chmod(0o777)
        output = self.assert_ok(run_host("plugins", "--plugin-path", self.folder)).stdout
        self.assertIn(str(self.folder / "libfastllm_gpt.so"), output)
        self.assertIn(str(BUILD / "lib/fastllm/plugins"), output)
        self.assertIn("shadowed", output)
        self.assertIn("text", output)
        self.assertRegex(output, r"(?i)writ")  # of the file that everyone may write
        self.assertIn("distributed", output)

    def test_a_working_directory_that_is_gone(self):
        result = subprocess.run(["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$0" --plugin gpt', HOST], cwd=self.folder,
                                capture_output=True, text=True, env=environment())
        self.assert_error(result, "expected a working directory that is there, found that it was removed")

    def test_plugin_that_is_not_there(self):
        text = self.assert_error(run_host("--plugin", "gtp", "--plugin-path", self.folder), "gtp")
        self.assertIn(str(self.folder), text)

    def test_plugin_without_a_model(self):
        self.assert_error(run_host("--plugin", "distributed"), "expected a plugin with a model, found fastllm.distributed", "which has none",
                          str(BUILD / "lib/fastllm/plugins/libfastllm_distributed.so"))

    def test_plugin_with_several_models(self):
        path, = BUILD.rglob("libfastllm_pair.so")
        for wanted, found in (((), "none"), (("--model", "middle"), "middle")):
            for command in ("train", "evaluate", "schema"):
                self.assert_error(run_host(command, "--plugin", path, *wanted),
                                  f"--model: expected a model of the plugin pair ({path}), found {found}; write left or right", code=2)
        for model, other in (("left", "right"), ("right", "left")):
            chosen = ("--plugin", path, "--model", model)
            self.assertIn(f"{model}_size: 7", self.assert_ok(run_host(*chosen, "--validate", f"model.base_model.{model}_size=7")).stdout)
            self.assert_error(run_host(*chosen, "--validate", f"model.base_model.{other}_size=7"), f"model.base_model.{other}_size")
            keys = json.loads(self.assert_ok(run_host("schema", *chosen)).stdout)["properties"]["model"]["properties"]["base_model"]
            self.assertEqual(list(keys["properties"]), [f"{model}_size"])

    def test_model_of_a_plugin_with_one(self):
        self.assert_ok(run_host("--plugin", "gpt", "--model", "gpt", "--validate"))
        self.assert_error(run_host("--plugin", "gpt", "--model", "left", "--validate"), "--model: expected a model of the plugin fastllm.gpt",
                          "found left; write gpt", code=2)
        self.assert_error(run_host("plugins", "--model", "gpt"), "--model: expected with", code=2)

    def test_output_that_takes_nothing(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([HOST, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment())
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: cannot write to standard output: No space left on device; free space, or send it somewhere "
                                        "else\n")

    def test_current_folder_is_no_place_for_plugins(self):
        shutil.copy(BUILD / "lib/fastllm/plugins/libfastllm_gpt.so", self.folder / "libfastllm_here.so")
        self.assert_error(run_host("--plugin", "here", cwd=self.folder), "here")
        self.assert_ok(run_host("--plugin", "./libfastllm_here.so", "--validate", cwd=self.folder))

    def test_validate(self):
        for fixture in sorted((FIXTURES / "config").glob("*.yaml")):
            with self.subTest(fixture.name):
                result = self.assert_ok(run_host("--plugin", "gpt", fixture, "--validate"))
                self.assertIn("--- end ---", result.stdout)

    def test_what_is_not_done_yet_is_told_together(self):
        path = self.folder / "train.yaml"
        path.write_text("batch:\n  sequence_length: 64\n  micro_sequence_length: 32\npretrained: {path: elsewhere}\n")
        self.assert_error(run_host("--plugin", "gpt", path, "--validate"), "train.yaml:3: batch.micro_sequence_length",
                          "train.yaml:4: pretrained.path")

    def test_ranks_need_a_launcher(self):
        ranks = "model.distributed.world_size=2"
        self.assert_ok(run_host("--plugin", "gpt", ranks, "--validate"))
        self.assert_error(run_host("--plugin", "gpt", ranks), "error: command line: model.distributed.world_size: expected 1, since no "
                          "launcher started other processes, found 2; start with fastllm-host --nproc 2, torchrun or srun")

    def test_validate_prints_what_it_read(self):
        output = self.assert_ok(run_host("--plugin", "gpt", "--validate", "batch.sequence_length=7", "optimizer.learning_rate.base=1e-4")).stdout
        self.assertIn("sequence_length: 7", output)

    def test_verbosity(self):
        sizes = [len(self.assert_ok(run_host("--plugin", "gpt", "--validate", f"--verbose={n}")).stdout) for n in (0, 20, -1)]
        self.assertEqual(sizes, sorted(sizes))
        self.assertLess(sizes[0], sizes[2])

    def test_schema_is_json_and_knows_both_sides(self):
        schema = json.loads(self.assert_ok(run_host("schema", "--plugin", "gpt")).stdout)
        self.assertEqual(schema["$schema"], "https://json-schema.org/draft/2020-12/schema")
        self.assertIn("train_iters", schema["properties"]["training"]["properties"])
        self.assertIn("vocab_size", schema["properties"]["model"]["properties"]["base_model"]["properties"])

    def test_start_up_times(self):
        def best(*arguments):
            times = []
            for _ in range(5):
                begin = time.monotonic()
                subprocess.run([HOST, *arguments], capture_output=True, env=environment(), check=True)
                times.append(time.monotonic() - begin)
            return min(times) * 1000

        for arguments in (["--version"], ["--help"], ["plugins"], ["schema", "--plugin", "gpt"], ["--plugin", "gpt", "--validate"]):
            print(f"fastllm-host {' '.join(arguments)}: {best(*arguments):.0f} ms", flush=True)

    def test_start_of_the_first_step(self):
        """How long until the training loop begins, with the 12.6 million parameter model of bench/."""
        from support import sample_documents, write_memmap
        write_memmap(self.folder / "data", sample_documents())
        config = SOURCE / "bench/benchmark.yaml"
        values = {"data.datasets.Training": {"type": "memmap", "path": str(self.folder / "data")}, "training.train_iters": 1,
                  "training.logs.interval": 1}
        begin = time.monotonic()
        process = start_host("--plugin", "gpt", config, *overrides(values))
        started = None
        for line in process.stdout:
            if started is None and re.search(r" Training \.\.\.", line):
                started = time.monotonic() - begin
        self.assertEqual(process.wait(), 0)
        self.assertIsNotNone(started)
        print(f"from start to the first step of the 12.6 M model: {started * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    unittest.main()
