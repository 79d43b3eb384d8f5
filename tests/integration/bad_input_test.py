#!/usr/bin/python3
"""What users get wrong, through the command line: damaged data sets, numbers that YAML reads otherwise, misspelt keys.

Every case ends with code 1 and a sentence that names the file, what was found, what was expected and what to do.
"""
import os
import unittest

from support import FIXTURES, HostTest, run_host, start_host, write_memmap


class DataFiles(HostTest):
    def run_on(self, prefix, vocabulary=64, **changes):
        self.data = prefix
        return run_host(*self.tiny_arguments(iterations=2, model__base_model__vocab_size=vocabulary, batch__sequence_length=2,
                                             batch__batch_size=1, **changes))

    def test_dots_in_names(self):
        prefix = self.folder / "wiki.en_v1.2_text_document"
        write_memmap(prefix, [[1, 2, 3], [4, 5]])
        experiment = self.folder / "run-3.1"
        self.assert_ok(self.run_on(prefix, run__experiment_dir=str(experiment)))
        self.assertTrue((experiment / "config.yaml").is_file())

    def test_file_that_shrinks_while_it_is_read(self):
        self.data = self.folder / "data"
        write_memmap(self.data, [[i % 50, 2, 3] * 50 for i in range(100)])
        process = start_host(*self.tiny_arguments(iterations=1000000))
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "training @ iteration" in line:
                break
        os.truncate(f"{self.data}.bin", 0)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 1, output[-2000:])
        self.assertIn(f"error: expected {self.data}.bin to stay as it was when it was opened, found it shorter while it was read", output)

    def test_suffix_in_the_path(self):
        prefix = self.folder / "data"
        write_memmap(prefix, [[1, 2, 3], [4, 5]])
        self.assert_error(self.run_on(f"{prefix}.bin"), f"{prefix}.bin", str(prefix))

    def test_file_the_reference_wrote_under_a_cut_name(self):
        write_memmap(self.folder / "wiki.en_v1", [[1, 2, 3], [4, 5]])
        self.assert_error(self.run_on(self.folder / "wiki.en_v1.2"), "wiki.en_v1.2.idx", "wiki.en_v1.idx")

    def test_all_widths(self):
        for code, documents in ((8, [[1, 2, 3], [4, 5]]), (4, [[70000, 2], [3]]), (5, [[1, 2, 3]]), (1, [[1, 2, 3]]), (3, [[1, 2, 3]]),
                                (2, [[1, 2, 3]]), (8, [[1, 2, 3], [], [4, 5]])):
            with self.subTest((code, documents)):
                prefix = self.folder / f"code{code}"
                write_memmap(prefix, documents, code=code)
                self.assert_ok(self.run_on(prefix, vocabulary=70001))

    def test_float_and_unknown_codes(self):
        for code in (6, 7, 0, 9):
            with self.subTest(code):
                prefix = self.folder / f"code{code}"
                write_memmap(prefix, [[1, 2, 3]], code=code)
                self.assert_error(self.run_on(prefix), f"{prefix}.idx", str(code))

    def test_no_documents(self):
        write_memmap(self.folder / "empty", [])
        self.assert_error(self.run_on(self.folder / "empty"), str(self.folder / "empty"))

    def test_only_empty_documents(self):
        write_memmap(self.folder / "empty", [[], []])
        self.assert_error(self.run_on(self.folder / "empty"), str(self.folder / "empty"))

    def test_short_bin(self):
        prefix = self.folder / "short"
        write_memmap(prefix, [[1] * 100, [2] * 100])
        os.truncate(f"{prefix}.bin", 300)
        self.assert_error(self.run_on(prefix), f"{prefix}.bin", "300", "400")

    def test_count_beyond_the_file(self):
        prefix = self.folder / "liar"
        write_memmap(prefix, [[1, 2, 3]])
        with open(f"{prefix}.idx", "r+b") as index:
            index.seek(18)
            index.write((2 ** 40).to_bytes(8, "little"))
        self.assert_error(self.run_on(prefix), f"{prefix}.idx", str(2 ** 40))

    def test_other_versions(self):
        for version in (4, 0):
            with self.subTest(version):
                prefix = self.folder / f"v{version}"
                write_memmap(prefix, [[1, 2, 3]], version=version)
                self.assert_error(self.run_on(prefix), f"{prefix}.idx", f"version {version}", "1")

    def test_versions_two_and_three(self):
        for version in (2, 3):
            with self.subTest(version):
                prefix = self.folder / f"v{version}"
                write_memmap(prefix, [[1, 2, 3], [4, 5]], version=version)
                self.assert_ok(self.run_on(prefix))

    def test_span_fixture(self):
        self.assert_ok(self.run_on(FIXTURES / "memmap-v2/spans", vocabulary=70000))

    def test_id_outside_the_vocabulary(self):
        prefix = self.folder / "large"
        write_memmap(prefix, [[1, 2, 99, 4, 5]])
        self.assert_error(self.run_on(prefix), "99", "64", str(prefix))

    def test_not_an_index(self):
        prefix = self.folder / "text"
        (self.folder / "text.idx").write_text("some text that is no index at all, but long enough")
        (self.folder / "text.bin").write_bytes(b"1234")
        self.assert_error(self.run_on(prefix), f"{prefix}.idx")

    def test_no_such_data(self):
        self.assert_error(self.run_on(self.folder / "none"), str(self.folder / "none"))

    def test_no_data_configured(self):
        self.assert_error(run_host("--plugin", "gpt", "training.train_iters=1", "model.base_model.transformer.num_layers=1",
                                   "model.base_model.transformer.hidden_size=8"), "data.datasets")


class Numbers(HostTest):
    """YAML 1.2: what looks like a number and is none is told with what to write."""

    def validate(self, text, *arguments):
        path = self.folder / "train.yaml"
        path.write_text(text)
        return run_host("--plugin", "gpt", path, "--validate", *arguments)

    def test_exponents_are_numbers(self):
        output = self.assert_ok(self.validate(
            "optimizer:\n  learning_rate: {base: 1e-4, minimum: .5e-5}\n", "--verbose=-1")).stdout
        self.assertRegex(output, r"minimum: 5\.0e-0?6")

    def test_not_numbers(self):
        for value, hint in (("1_000", "1000"), ("1,000", "1000"), ("1.000.000", ""), ("1000.0", "1000"), ("'1000'", ""), ("on", ""),
                            ("[1]", ""), ("{a: 1}", ""), ("null", ""), ("~", "")):
            with self.subTest(value):
                text = self.assert_error(self.validate(f"training:\n  train_iters: {value}\n"), "train.yaml:2", "training.train_iters")
                self.assertIn(hint, text)
                text = self.assert_error(self.validate("{}\n", f"training.train_iters={value}"), "command line", "training.train_iters")

    def test_not_booleans(self):
        for value, hint in (("on", "true"), ("yes", "true"), ("off", "false"), ("no", "false"), ("'true'", ""), ("1", "")):
            with self.subTest(value):
                text = self.assert_error(self.validate(f"run:\n  log_timestamps: {value}\n"), "train.yaml:2", "run.log_timestamps")
                self.assertIn(hint, text)

    def test_an_integer_is_a_float(self):
        self.assert_ok(self.validate("optimizer: {weight_decay: 0}\n"))


class Keys(HostTest):
    def validate(self, text):
        path = self.folder / "train.yaml"
        path.write_text(text)
        return run_host("--plugin", "gpt", path, "--validate")

    def test_all_problems_in_one_pass_each_with_its_place_and_a_hint(self):
        text = self.assert_error(self.validate(
            "training: {train_iter: 10, validation: {intervall: 5}}\n"
            "optimiser: {weight_decay: 0.1}\n"
            "model: {transformer: {num_layers: 2}}\n"
            "batch: {learning_rate: 1.0e-4}\n"
            "optimizer: {learning_rate: 1.0e-4}\n"
            "schedule: {depth_first_micro_batches: 2}\n"))
        for line, key, hint in (
                (1, "training.train_iter", "training.train_iters"),
                (1, "training.validation.intervall", "training.validation.interval"),
                (2, "optimiser", "optimizer"),
                (3, "model.transformer", "model.base_model.transformer"),
                (4, "batch.learning_rate", "optimizer.learning_rate.base"),
                (5, "optimizer.learning_rate", "optimizer.learning_rate.base: 1.0e-4"),
                (6, "schedule.depth_first_micro_batches", "batch.depth_first_micro_batches")):
            with self.subTest(key):
                about, = (t for t in text.splitlines() if f"train.yaml:{line}: {key}:" in t)
                self.assertIn(hint, about.split(f"{key}:", 1)[1])

    def test_names_of_later_releases(self):
        text = self.assert_error(self.validate(
            "training: {evaluators: {v: {interval: 1}}}\nmodel: {base_model: {decoder: {num_blocks: 2}}}\n"))
        for hint in ("training.validation", "model.base_model.transformer.num_layers"):
            self.assertIn(hint, text)

    def test_nothing_is_started(self):
        path = self.folder / "train.yaml"
        path.write_text(f"training: {{train_iter: 10}}\nrun: {{experiment_dir: {self.folder / 'run'}}}\n")
        self.assert_error(run_host("--plugin", "gpt", path), "train_iter")
        self.assertFalse((self.folder / "run").exists())

    def test_the_configuration_is_printed_even_so(self):
        path = self.folder / "train.yaml"
        path.write_text("batch: {batch_size: 6, micro_batch_size: 4, sequence_length: 77}\n")
        for more in ([], ["--validate"]):
            result = run_host("--plugin", "gpt", path, *more)
            self.assert_error(result, "batch_size")
            self.assertRegex(result.stdout, rf"Command run:\n.*fastllm-host --plugin gpt {path}")
            _, rest = result.stdout.split("Command run:", 1)[1].split("TrainerConfig", 1)
            self.assertIn("sequence_length: 77", rest.split(" end ")[0])

    def test_repeated_key(self):
        self.assert_error(self.validate("training: {train_iters: 1}\nbatch: {}\ntraining: {train_iters: 2}\n"), "train.yaml:3", "training")

    def test_two_documents_and_merge_keys(self):
        self.assert_error(self.validate("training: {}\n---\nbatch: {}\n"), "train.yaml")
        self.assert_error(self.validate("a: &x {train_iters: 1}\ntraining:\n  <<: *x\n"), "train.yaml:3", "<<")

    def test_old_names_still_work(self):
        result = self.assert_ok(self.validate("model: {base_model: {transformer: {use_rotary_embeddings: true}}}\n"))
        self.assertIn("use_rotary_embeddings", result.stdout + result.stderr)

    def test_an_override_that_is_none(self):
        self.assert_error(run_host("--plugin", "gpt", "--validate", "a.b=[", "training.train_iters=1"), "a.b=[")

    def test_rules_across_fields(self):
        self.assert_error(self.validate("training: {checkpoint: {interval: 5}}\n"), "training.checkpoint.interval", "run.experiment_dir")
        self.assert_error(self.validate("batch: {batch_size: 7, micro_batch_size: 2}\n"), "batch", "7", "2")
        self.assert_error(self.validate("optimizer: {learning_rate: {decay_style: cosine}}\n"), "decay_iterations")
        self.assert_error(self.validate("model: {base_model: {transformer: {hidden_size: 10, num_attention_heads: 4}}}\n"), "hidden_size", "10", "4")


if __name__ == "__main__":
    unittest.main()
