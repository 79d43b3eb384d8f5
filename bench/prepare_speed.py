#!/usr/bin/env python3
"""Tokens a second of `fastllm-host prepare` and of Hugging Face `datasets` + `tokenizers`, in turn, from the same text.

    scripts/setup.sh --bench
    BENCH_PYTHON bench/prepare_speed.py [--workers 1 2] [--megabytes 64] [--rounds 3]

The text: sources of Python's standard library as JSON lines, a file a line, repeated to the size asked for. Tokenizers: bytes, and a
byte-level BPE of 8,192 tokens trained on the spot. Both write the tokens of all documents, BOS and EOS included, as int16 to one
file; the files are compared. The peer's time begins after its imports, ours with the start of the program.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time

import common

VOCABULARY = 8192


def write_corpus(path, megabytes):
    """JSON lines; returns the bytes of text in them."""
    texts = []
    for source in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in source.parts:
            try:
                texts.append(source.read_bytes().decode("utf-8"))
            except UnicodeDecodeError:
                continue
    size, wanted = 0, megabytes * 1_000_000
    with open(path, "w", encoding="utf-8") as file:
        while size < wanted:
            for text in texts:
                file.write(json.dumps({"text": text}) + "\n")
                size += len(text.encode())
                if size >= wanted:
                    break
    return size


def train_tokenizer(corpus, folder):
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with open(corpus, encoding="utf-8") as file:
        sample = [json.loads(line)["text"] for line, _ in zip(file, range(200))]
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def peer(corpus, tokenizer, workers, output, cache):
    """In a process of its own: datasets reads, maps in batches with worker processes, and the tokens go to a file."""
    os.environ.update(TOKENIZERS_PARALLELISM="false", HF_DATASETS_CACHE=cache, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    import datasets
    import numpy
    import tokenizers
    datasets.disable_progress_bars()
    if tokenizer == "bytes":
        def tokenize(batch):
            return {"ids": [[256, *text.encode(), 257] for text in batch["text"]]}
    else:
        loaded = tokenizers.Tokenizer.from_file(os.path.join(tokenizer, "tokenizer.json"))
        begin, end = loaded.token_to_id("<s>"), loaded.token_to_id("</s>")

        def tokenize(batch):
            return {"ids": [[begin, *encoding.ids, end] for encoding in loaded.encode_batch_fast(batch["text"], add_special_tokens=False)]}
    start, imports = time.perf_counter(), time.process_time()
    data = datasets.load_dataset("json", data_files=str(corpus), split="train", cache_dir=cache)
    # Memory for offsets and int16 halve what goes through the cache; both help the peer.
    features = datasets.Features({"ids": datasets.List(datasets.Value("int16"))})
    data = data.map(tokenize, batched=True, batch_size=100, num_proc=workers, remove_columns=["text"], features=features)
    tokens = 0
    with open(output, "wb") as file:
        for chunk in data.data.table.column("ids").chunks:
            values = chunk.flatten().to_numpy(zero_copy_only=True)  # no lists of Python's
            tokens += len(values)
            file.write(numpy.ascontiguousarray(values, dtype=numpy.int16).data)
    print(json.dumps({"seconds": time.perf_counter() - start, "imports": imports, "tokens": tokens}))


def run(command):
    """Standard output, wall seconds, and processor seconds of the process and all that it started and waited for."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=errors)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"{command[0]} failed:\n{errors.read().decode(errors='replace')[-2000:]}")
    return output.decode(), seconds, usage.ru_utime + usage.ru_stime


def run_peer(corpus, tokenizer, workers, folder):
    output, _, processor = run([sys.executable, __file__, "--peer", corpus, tokenizer, workers, folder / "tokens", folder / "cache"])
    result = json.loads(output.splitlines()[-1])
    return result["seconds"], processor - result["imports"], folder / "tokens"


def run_ours(host, corpus, tokenizer, workers, folder):
    _, seconds, processor = run([host, "prepare", "--output", folder / "out", "--tokenizer", tokenizer, "--workers", workers,
                                 "--python", sys.executable, corpus])
    return seconds, processor, folder / "out" / "shard_0_0.bin"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    if sys.argv[1:2] == ["--peer"]:
        corpus, tokenizer, workers, output, cache = sys.argv[2:]
        return peer(corpus, tokenizer, int(workers), output, cache)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_arguments(parser)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--megabytes", type=int, default=64, help="of text (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="everyone in turn, that often (%(default)s)")
    parser.add_argument("--tokenizers", nargs="+", choices=["bytes", "bpe"], default=["bytes", "bpe"])
    options = parser.parse_args()
    results = common.Results("prepare", options.json)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        corpus = folder / "corpus.jsonl"
        size = write_corpus(corpus, options.megabytes)
        train_tokenizer(corpus, folder / "bpe")
        for name in options.tokenizers:
            tokenizer = "bytes" if name == "bytes" else folder / name
            for workers in options.workers:
                times, processor = {"ours": [], "peer": []}, {"ours": [], "peer": []}
                for _ in range(options.rounds):
                    digests = set()
                    for who in times:
                        with tempfile.TemporaryDirectory(dir=folder) as place:
                            place = pathlib.Path(place)
                            wall, used, tokens_file = (run_ours(options.host, corpus, tokenizer, workers, place) if who == "ours"
                                                       else run_peer(corpus, tokenizer, workers, place))
                            times[who].append(wall)
                            processor[who].append(used)
                            tokens = tokens_file.stat().st_size // 2
                            digests.add(digest(tokens_file))
                    if len(digests) != 1:
                        sys.exit("expected the same tokens from both, found others")
                ours, theirs = min(times["ours"]), min(times["peer"])
                cpu = min(processor["peer"]) / min(processor["ours"])
                results.add(f"{name}, {workers} workers, {size / 1e6:.0f} MB of text: fastllm-host {tokens / ours / 1e6:.2f} M tokens/s, "
                            f"datasets + tokenizers {tokens / theirs / 1e6:.2f} M tokens/s, ratio {theirs / ours:.2f} "
                            f"(of processor time {cpu:.2f})",
                            tokenizer=name, workers=workers, bytes=size, tokens=tokens, ours_seconds=times["ours"],
                            peer_seconds=times["peer"], ratio=theirs / ours, ours_processor_seconds=processor["ours"],
                            peer_processor_seconds=processor["peer"], processor_ratio=cpu)


if __name__ == "__main__":
    main()
