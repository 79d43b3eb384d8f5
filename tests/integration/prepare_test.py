#!/usr/bin/python3
"""prepare from end to end, with every kind of tokenizer; what the tokenizers' own Python libraries say is the judge."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import support
from support import HostTest, run_host

JUDGE = os.environ.get("FASTLLM_JUDGES_PYTHON")
LETTERS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}


def read_shard(prefix):
    """Documents of a version-2 pair: {"ids", "spans"}."""
    index, tokens = pathlib.Path(f"{prefix}.idx").read_bytes(), pathlib.Path(f"{prefix}.bin").read_bytes()
    magic, version, has_spans, code, count, _ = struct.unpack_from("<9sQBBQQ", index)
    assert magic == b"MMIDIDX\0\0" and version == 2
    at = struct.calcsize("<9sQBBQQ")
    letter = LETTERS[code]
    width = struct.calcsize(letter)

    def take(kind, number):
        nonlocal at
        values = struct.unpack_from(f"<{number}{kind}", index, at)
        at += struct.calcsize(f"<{number}{kind}")
        return values
    sizes, offsets = take("i", count), take("q", count)
    counts = take("i", count) if has_spans else [0] * count
    pairs = iter([take("i", 2) for _ in range(sum(counts))])
    return [{"ids": list(struct.unpack_from(f"<{size}{letter}", tokens, offset)), "spans": [list(next(pairs)) for _ in range(n)]}
            for size, offset, n in zip(sizes, offsets, counts)], width


class Prepare(HostTest):
    def test_a_summary_that_cannot_be_written_does_not_hide_the_dataset(self):
        text = self.folder / "a.txt"
        text.write_text("abc")
        with open("/dev/full", "w") as full:
            result = subprocess.run([str(support.HOST), "prepare", "--output", str(self.folder / "out"), str(text)], stdout=full,
                                    stderr=subprocess.PIPE, text=True, env=support.environment())
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, f"error: the dataset is complete at {self.folder / 'out'}, only its summary could not be "
                                        "written to standard output; use the dataset, and send the output elsewhere next time\n")
        self.assertEqual(self.documents(), [{"ids": [256, *b"abc", 257], "spans": []}])

    def prepare(self, *arguments, output="out", **env):
        return run_host("prepare", "--output", self.folder / output, *arguments, **env)

    def documents(self, output="out"):
        documents, _ = read_shard(self.folder / output / "shard_0_0")
        return documents

    def test_bytes(self):
        corpus = self.folder / "in"
        corpus.mkdir()
        (corpus / "a.txt").write_text("hé")
        (corpus / "b.jsonl").write_text('{"text": "abcdef", "loss_masking_spans": [[4, 5]]}\n{"tokens": [5, 258]}\n')
        result = self.assert_ok(self.prepare(corpus))
        self.assertIn("Prepared 3 documents, 15 tokens from 2 files", result.stdout)
        self.assertEqual(self.documents(), [
            {"ids": [256, 104, 195, 169, 257], "spans": []},
            {"ids": [256, *b"abcdef", 257], "spans": [[5, 7]]},
            {"ids": [5, 258], "spans": []}])

    def test_errors_name_the_place(self):
        path = self.folder / "x.jsonl"
        path.write_text('{"text": "fine"}\n{"text": "a", "text": "b"}\n')
        self.assert_error(self.prepare(path), f"{path}:2: expected every key once in a block, found 'text' twice")
        path.write_text('{"text": "fine"}\n\n{"text": \n')
        self.assert_error(self.prepare(path), f"{path}:3: expected a JSON object in one line, found other text (column ")
        self.assert_error(self.prepare(path, "--tokenizer", "no/such"), "expected a tokenizer", "at no/such, found none")
        self.assert_error(self.prepare(path, "--split", "a"), "--split: expected NAME=RATIO", code=2)
        self.assert_error(self.prepare(path, "--format", "csv"), "expected auto, text or jsonl, found csv", code=2)
        self.assert_error(self.prepare(path, "--data-type", "float32"), "--data-type: expected one of uint8", code=2)
        self.assertFalse((self.folder / "out").exists())

    def test_killed_then_run_again(self):
        corpus = self.folder / "in"
        corpus.mkdir()
        for i in range(40):
            (corpus / f"{i}.txt").write_text("some text to prepare " * 100_000)
        process = support.start_host("prepare", "--output", self.folder / "out", corpus)
        while process.poll() is None and not list(self.folder.glob("out.partial.*/collecting")):
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if not list(self.folder.glob("out.partial.*")):
            self.skipTest("the computer prepares all this before a signal comes")
        self.assertFalse((self.folder / "out").exists())
        result = self.assert_ok(self.prepare(corpus))
        self.assertIn("left by a preparation that was interrupted", result.stdout)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["in", "out"])


@unittest.skipUnless(JUDGE, "FASTLLM_JUDGES_PYTHON names no Python with tokenizers and sentencepiece")
class PrepareTokenizers(Prepare):
    test_bytes = test_errors_name_the_place = test_killed_then_run_again = None

    @classmethod
    def setUpClass(cls):
        cls.judged = pathlib.Path(tempfile.mkdtemp(prefix="fastllm-judge-"))
        cls.addClassCleanup(shutil.rmtree, cls.judged, ignore_errors=True)
        subprocess.run([JUDGE, pathlib.Path(__file__).with_name("tokenizer_judge.py"), cls.judged], check=True, timeout=300)

    def expected(self, name):
        return json.loads((self.judged / f"{name}.json").read_text())

    def check(self, name, *arguments, width=2):
        result = self.assert_ok(self.prepare("--tokenizer", self.judged / name, *arguments, self.judged / "corpus", FASTLLM_PYTHON=JUDGE))
        documents, found = read_shard(self.folder / "out" / "shard_0_0")
        expected = self.expected(name)
        self.assertEqual(len(documents), len(expected))
        for number, (document, right) in enumerate(zip(documents, expected)):
            self.assertEqual(document, right, f"{name}, document {number}")
        self.assertEqual(found, width)  # bytes an id
        self.assertTrue(any(document["spans"] for document in documents))
        self.assertIn(f"{sum(len(d['ids']) for d in expected):,} tokens", result.stdout)
        return documents

    def test_byte_level_bpe(self):
        documents = self.check("bpe", "--workers", "3")
        self.assertTrue(all(d["ids"][0] == 0 and d["ids"][-1] == 1 for d in documents))

    def test_unigram_with_an_added_token(self):
        self.check("unigram", "--workers", "1", width=1)  # fewer than 256 tokens

    def test_sentencepiece_bpe(self):
        self.check("sentencepiece_bpe")

    def test_sentencepiece_unigram(self):
        self.check("sentencepiece_unigram", "--workers", "3")

    def test_published_spans(self):
        # Half-open spans of the examples, inclusive here; BOS in front moves tokens by one.
        examples = [([], []), ([(1, 3)], [(1, 2)]), ([(2, 2)], None), ([(0, 11)], [(0, 2)]), ([(1, 4), (6, 7)], [(1, 2), (4, 5)]),
                    ([(1, 5), (5, 7)], [(1, 2), (2, 3)]), ([(2, 3), (5, 8), (9, 11)], [(1, 2), (3, 4), (5, 6)])]
        ids = [[31373, 995], [71, 417, 5439, 995], None, [31373, 995], [71, 695, 78, 220, 86, 1764], [71, 11109, 266, 1764],
               [258, 75, 5439, 24486, 81, 335]]
        text, path, right = "hello world", self.folder / "x.jsonl", []
        with open(path, "w") as file:
            for (characters, tokens), numbers in zip(examples, ids):
                if tokens is None:
                    continue  # an empty span: no inclusive pair says it
                file.write(json.dumps({"text": text, "loss_masking_spans": [[a, b - 1] for a, b in characters]}) + "\n")
                spans = [[a + 1, b] for a, b in tokens]
                for span, (a, b) in zip(spans, characters):
                    if a == 0:
                        span[0] = 0
                    if b == len(text):
                        span[1] += 1
                right.append({"ids": [50256, *numbers, 50256], "spans": spans})
        self.assert_ok(self.prepare("--tokenizer", self.judged / "gpt2", path, "--python", JUDGE))
        documents, width = read_shard(self.folder / "out" / "shard_0_0")
        self.assertEqual(documents, right)
        self.assertEqual(width, 4)  # 50,257 ids

    def test_workers_end_with_a_killed_host(self):
        text = self.folder / "in.jsonl"
        text.write_text("".join(json.dumps({"text": "many words " * 2000}) + "\n" for _ in range(2000)))
        process = support.start_host("prepare", "--output", self.folder / "out", "--tokenizer", self.judged / "bpe", text,
                                     "--workers", "2", FASTLLM_PYTHON=JUDGE)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = []
        while process.poll() is None and not workers:
            workers = children.read_text().split()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertTrue(workers)

        def running(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
            except FileNotFoundError:
                return False
        end = time.monotonic() + 60
        while any(map(running, workers)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse([pid for pid in workers if running(pid)])

    def test_interrupted_while_a_worker_hangs(self):
        text = self.folder / "in.txt"
        text.write_text("many words " * 500_000)
        process = support.start_host("prepare", "--output", self.folder / "out", "--tokenizer", self.judged / "bpe", text,
                                     "--workers", "1", FASTLLM_PYTHON=JUDGE)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not list(self.folder.glob("out.partial.*/collecting")):
            time.sleep(0.001)
        for worker in children.read_text().split():
            os.kill(int(worker), signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, output)
        self.assertIn("stopped before the dataset was complete; nothing was written to", output)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["in.txt"])

    def test_without_the_package(self):
        bare = self.folder / "bare"
        bare.write_text(f'#!/bin/sh\nexec {JUDGE} -S -s "$@"\n')
        bare.chmod(0o755)
        path = self.folder / "a.txt"
        path.write_text("text")
        for options, env in (["--python", bare], {}), ([], {"FASTLLM_PYTHON": str(bare)}):
            self.assert_error(self.prepare("--tokenizer", self.judged / "bpe", path, *options, **env),
                              "expected a Python with the package tokenizers", "scripts/setup.sh --tokenizers")
        self.assertFalse((self.folder / "out").exists())

    def test_broken_files(self):
        broken = self.folder / "broken"
        path = self.folder / "a.txt"
        path.write_text("text")
        for name, file in ("bpe", "tokenizer.json"), ("sentencepiece_bpe", "tokenizer.model"):
            shutil.rmtree(broken, ignore_errors=True)
            shutil.copytree(self.judged / name, broken)
            content = (broken / file).read_bytes()
            for wrong in content[:len(content) // 2], b"", b"nothing of the kind":
                (broken / file).write_bytes(wrong)
                self.assert_error(self.prepare("--tokenizer", broken, path, FASTLLM_PYTHON=JUDGE), str(broken / file))


if __name__ == "__main__":
    unittest.main()
