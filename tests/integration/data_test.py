#!/usr/bin/python3
"""Whole runs on every kind of data set: what should train alike does, to the bit; what cannot work says why at once."""
import json
import math
import os
import re
import unittest

from support import HostTest, read_metrics, run_host, sample_documents, start_host, training_losses, write_memmap


def write_dataset_file(path, documents, spans=None):
    """A data set in one file, uint8 or with spans (half-open), written here from the layout (docs/compatibility.md)."""
    def table(values, width):
        return b"".join(v.to_bytes(width, "little", signed=True) for v in values)

    def sums(counts):
        return [sum(counts[:i]) for i in range(len(counts) + 1)]

    out = bytearray(b"fast_llm_prepared_dataset" + bytes(8))

    def block(word, content):
        begin = len(out)
        out.extend(word + b" begin" + content + word + b" end")
        return {"begin": begin, "end": len(out)}

    configuration = {"type": "language_model", "begin": len(out)}
    out.extend(b"lm begin")
    tokens = [t for d in documents for t in d]
    configuration["tokens"] = {"type": "token", "num_documents": len(documents), "num_tokens": len(tokens), "data_type": "uint8",
                               **block(b"token", bytes(tokens) + table(sums([len(d) for d in documents]), 8))}
    if spans is not None:
        flat = [x for d in spans for pair in d for x in pair]
        configuration["loss_masking_spans"] = {
            "type": "range", "num_documents": len(documents), "num_ranges": len(flat) // 2,
            **block(b"range", table(flat, 4) + table(sums([len(d) for d in spans]), 4))}
    out.extend(b"lm end")
    configuration["end"] = len(out)
    out[25:33] = len(out).to_bytes(8, "big")
    text = json.dumps(configuration).encode()
    path.write_bytes(bytes(out) + len(text).to_bytes(4, "big") + text)


class DataKinds(HostTest):
    def setUp(self):
        super().setUp()
        self.documents = sample_documents()
        self.data = self.folder / "tiny"
        write_memmap(self.data, self.documents)
        self.runs = 0

    def losses(self, definition=None, **changes):
        """Losses of a short run on a definition; without one, what `changes` define."""
        self.runs += 1
        experiment = self.folder / f"run{self.runs}"
        if definition is not None:
            changes["data.datasets.Training"] = definition
        else:
            changes["data.datasets"] = {}
        result = self.assert_ok(run_host(*self.tiny_arguments(experiment, 4, **changes)))
        losses = [l["language_model_loss"] for _, l in sorted(training_losses(read_metrics(experiment)).items())]
        self.assertEqual(len(losses), 4)
        for loss in losses:
            self.assertTrue(math.isfinite(loss))
        return losses, result.stdout

    def error(self, definition, *parts, **changes):
        arguments = self.tiny_arguments(iterations=4, **{"data.datasets.Training": definition, **changes})
        return self.assert_error(run_host(*arguments), *parts)

    def memmap(self, **keys):
        return {"type": "memmap", "path": str(self.data), **keys}

    def test_both_formats_train_alike(self):
        path = self.folder / "one.fast_llm_dataset"
        write_dataset_file(path, self.documents)
        self.assertEqual(self.losses({"type": "memmap", "path": str(path)})[0], self.losses(self.memmap())[0])

    def test_other_words_for_the_same_documents_train_alike(self):
        expected, _ = self.losses(self.memmap())
        folder = self.folder / "folder"
        folder.mkdir()
        write_memmap(folder / "a", self.documents[:10])
        write_memmap(folder / "b", self.documents[10:])
        set_file = self.folder / "set.yaml"
        set_file.write_text("type: memmap\npath: tiny\n")
        for definition in ({"type": "concatenated_memmap", "path": str(folder)},
                           {"type": "file", "path": str(set_file)},
                           {"type": "concatenated", "datasets": [{"type": "memmap", "path": str(folder / name)} for name in "ab"]}):
            with self.subTest(definition["type"]):
                self.assertEqual(self.losses(definition)[0], expected)

    def test_the_legacy_definition(self):
        legacy, output = self.losses(data__path=str(self.data), data__split=[1])
        self.assertIn("data.path: defines the datasets of all phases", output)
        sampling = {"shuffle": "legacy", "seed": 1234}
        self.assertEqual(self.losses({"type": "sampled", "dataset": self.memmap(), "sampling": sampling})[0], legacy)
        self.assertNotEqual(self.losses(self.memmap())[0], legacy)
        self.assertEqual(self.losses(data__path=str(self.data), data__split=[1], data__fim={"rate": 0})[0], legacy)

    def test_an_order_that_fits_no_memory_is_refused_beforehand(self):
        definition = {"type": "sampled", "dataset": self.memmap(), "sampling": {"shuffle": "full"}}
        self.error(definition, "with shuffle full the order of", "shuffle by epoch (data.sampling.shuffle: epoch",
                   training__train_iters=10**13)
        arguments = self.tiny_arguments(iterations=10**13, data__path=str(self.data), data__split=[1], data__datasets={})
        self.assert_error(run_host(*arguments), "the legacy order of dataset", "shuffle by epoch (data.sampling.shuffle: epoch")

    def test_masked_labels_leave_the_loss_of_the_others(self):
        # All labels but one in eight are masked. They count for nothing: the loss of the first step stays near log(64).
        spans = [[[i + 1, i + 8] for i in range(0, len(d) - 8, 8)] for d in self.documents]
        path = self.folder / "masked.fast_llm_dataset"
        write_dataset_file(path, self.documents, spans)
        definition = {"type": "memmap", "path": str(path)}
        masked, _ = self.losses(definition, data__sampling__use_loss_masking_spans=True)
        plain, output = self.losses(definition)
        self.assertNotEqual(masked, plain)
        self.assertAlmostEqual(masked[0], math.log(64), delta=0.5)
        by_dataset = {"type": "sampled", "dataset": definition, "sampling": {"use_loss_masking_spans": True}}
        self.assertEqual(self.losses(by_dataset)[0], masked)
        self.assertEqual(plain, self.losses(self.memmap())[0])
        _, output = self.losses(self.memmap(), data__sampling__use_loss_masking_spans=True)
        self.assertIn("holds no spans", output)

    def test_whole_documents_and_padding(self):
        padded, output = self.losses(self.memmap(), data__sampling__truncate_documents=False, batch__sequence_length=64,
                                     batch__cross_document_attention=False)
        self.assertRegex(output, r"\d+ of 40 documents of dataset .*tiny are longer than 65 tokens and left out")
        self.assertAlmostEqual(padded[0], math.log(64), delta=0.5)
        chunks, _ = self.losses(self.memmap(), data__sampling__maximum_document_length=8, batch__cross_document_attention=False)
        whole, _ = self.losses(self.memmap(), batch__cross_document_attention=False)
        self.assertNotEqual(chunks, whole)
        self.error(self.memmap(), "expected documents of at most", data__sampling__truncate_documents=False,
                   batch__sequence_length=4)

    def test_filling_in_the_middle(self):
        text = [list(b"def f(x):\n    return x + 1\n" * 3) + [257] for _ in range(20)]
        write_memmap(self.folder / "text", text)
        turned = {"type": "fim", "rate": 0.5, "dataset": {"type": "memmap", "path": str(self.folder / "text")}}
        keys = {"data.tokenizer.path": "bytes", "model.base_model.vocab_size": 263}
        some, _ = self.losses(turned, **keys)
        none, _ = self.losses({**turned, "rate": 0}, **keys)
        self.assertNotEqual(some, none)
        self.error(turned, "from 263 up", **{"data.tokenizer.path": "bytes", "model.base_model.vocab_size": 262})
        self.error(turned, "data.tokenizer.path")
        self.error(turned, "use_loss_masking_spans: false", data__sampling__use_loss_masking_spans=True, **keys)

    def test_weights_beyond_all_sums(self):
        parts = [self.memmap(), self.memmap()]
        huge, _ = self.losses({"type": "blended", "weights": [1.7e308, 1.7e308], "datasets": parts})
        self.assertEqual(huge, self.losses({"type": "blended", "weights": [1, 1], "datasets": parts})[0])
        self.error({"type": "blended", "weights": [0, 0], "datasets": parts}, "at least one weight above 0")

    def test_hosts_at_once_share_data_and_nothing_else(self):  # C55
        def finish(process):
            output, _ = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, output[-3000:])

        experiments = [self.folder / name for name in "abc"]
        hosts = [start_host(*self.tiny_arguments(experiment, 4)) for experiment in experiments[:2]]
        for host in hosts:
            finish(host)
        a, b = (training_losses(read_metrics(experiment)) for experiment in experiments[:2])
        self.assertEqual(len(a), 4)
        self.assertEqual(a, b)
        # The order of samples is computed, so no file of it can be half written, of other data, or missing on another disk.
        self.assertEqual(list(self.folder.rglob("dataset_cache")), [])
        self.assertEqual({p.name for p in self.folder.iterdir()}, {"tiny.bin", "tiny.idx", "a", "b"})

        # Other data of the same size and time is other data.
        before = (self.folder / "tiny.bin").stat()
        write_memmap(self.data, [list(reversed(d)) for d in self.documents])
        os.utime(self.folder / "tiny.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual((self.folder / "tiny.bin").stat().st_size, before.st_size)
        finish(start_host(*self.tiny_arguments(experiments[2], 4)))
        marks = [re.findall(r"tiny\.bin: .*", (e / "runs/0/provenance.yaml").read_text()) for e in experiments]
        for mark in marks:
            self.assertEqual(len(mark), 1)
            self.assertRegex(mark[0], rf"{before.st_size} bytes, sha256 [0-9a-f]+")
        self.assertEqual(marks[0], marks[1])
        self.assertNotEqual(marks[0], marks[2])
        self.assertNotEqual(training_losses(read_metrics(experiments[2])), a)

    def test_a_file_that_lies(self):
        path = self.folder / "one.fast_llm_dataset"
        write_dataset_file(path, self.documents)
        path.write_bytes(path.read_bytes()[:-10])
        self.error({"type": "memmap", "path": str(path)}, str(path), "cut or damaged")
        self.error({"type": "memmap", "path": str(self.folder / "none.fast_llm_dataset")}, "no such file")
        self.error({"type": "test_slow"}, "test aid")


if __name__ == "__main__":
    unittest.main()
