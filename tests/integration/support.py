"""What the integration tests share: the built host as a subprocess, tiny data sets, and readers of what runs leave.

FASTLLM_BINARY_DIR names the build under test (ctest sets it); without it, build/release. Standard library only.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FASTLLM_BINARY_DIR", SOURCE / "build/release"))
HOST = BUILD / "bin/fastllm-host"
FIXTURES = SOURCE / "tests/fixtures"
sys.path.insert(0, str(FIXTURES))

# What tells a process its rank: those of a job that runs the tests are not meant for what they start.
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SLURM_STEP_VARIABLES = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST")
RANKS_TIMEOUT = 120  # seconds; far above what any run of several ranks takes, nothing is decided by time

# A Llama-like model that trains a step in milliseconds, and small batches for it.
TINY = {
    "model.base_model.vocab_size": 64,
    "model.base_model.tie_word_embeddings": False,
    "model.base_model.transformer.num_layers": 2,
    "model.base_model.transformer.hidden_size": 32,
    "model.base_model.transformer.num_attention_heads": 4,
    "model.base_model.transformer.head_groups": 2,
    "model.base_model.transformer.ffn_hidden_size": 48,
    "model.base_model.transformer.gated": True,
    "model.base_model.transformer.add_linear_biases": False,
    "model.base_model.transformer.normalization.type": "rms_norm",
    "model.base_model.transformer.rotary.type": "default",
    "batch.sequence_length": 32,
    "batch.batch_size": 4,
    "optimizer.learning_rate.base": 0.003,
    "training.logs.interval": 1,
}


def yaml_value(value):
    """As YAML flow; JSON is YAML."""
    return json.dumps(value)


def overrides(values):
    return [f"{key}={yaml_value(value)}" for key, value in values.items()]


def environment(**more):
    inherited = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES + SLURM_STEP_VARIABLES}
    # Two threads everywhere: sums in another order are other bits.
    return {**inherited, "OMP_NUM_THREADS": "2", "LC_ALL": "C.UTF-8", **more}


def run_host(*arguments, timeout=300, cwd=None, **env):
    return subprocess.run([str(HOST), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env=environment(**env), stdin=subprocess.DEVNULL)


def start(*words, cwd=None, **env):
    """Any program, with both outputs in one pipe."""
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd,
                            env=environment(**env), stdin=subprocess.DEVNULL)


def start_host(*arguments, **env):
    return start(HOST, *arguments, **env)


def free_port():
    """One that nobody listens on; the caller's processes are the only ones that use it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_rank(rank, size, port, *words, cwd=None, **env):
    """One process as an outer launcher would start it, on one thread."""
    variables = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return start(*words, cwd=cwd, **{**variables, **env})


def lines_until(process, pattern, seconds=RANKS_TIMEOUT):
    """Reads its output up to the line that matches; AssertionError with the output when none comes in that time."""
    output, descriptor, deadline = b"", process.stdout.fileno(), time.monotonic() + seconds
    while not re.search(pattern, output[:output.rfind(b"\n") + 1].decode(errors="replace"), re.MULTILINE):
        ready, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
        part = os.read(descriptor, 1 << 16) if ready else b""
        if not part:
            raise AssertionError(f"no line matches {pattern!r}:\n{output.decode(errors='replace')}")
        output += part
    return output.decode(errors="replace").splitlines()


def end_all(test, *processes):
    """Waits for processes of start(); (code, output) of each. Reads all the while: a full pipe would stop its writer."""
    for process in processes:
        test.addCleanup(process.wait)
        test.addCleanup(process.kill)  # nothing once it has ended
    with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
        outputs = list(pool.map(lambda process: process.communicate(timeout=RANKS_TIMEOUT)[0], processes))
    return [(process.returncode, output) for process, output in zip(processes, outputs)]


def write_memmap(prefix, documents, code=8, version=1):
    """A .idx/.bin pair, format versions 1 to 3 (docs/users/data.md)."""
    letter = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}.get(code, "H")
    data, offsets = b"", []
    for document in documents:
        offsets.append(len(data))
        data += struct.pack(f"<{len(document)}{letter}", *document)
    count = len(documents)
    index = b"MMIDIDX\0\0" + struct.pack("<Q", version) + bytes({2: 1, 3: 2}.get(version, 0)) + struct.pack("<BQQ", code, count, count + 1)
    index += struct.pack(f"<{count}i", *map(len, documents)) + struct.pack(f"<{count}q", *offsets)
    index += struct.pack(f"<{count + 1}q", *range(count + 1))
    pathlib.Path(f"{prefix}.bin").write_bytes(data)
    pathlib.Path(f"{prefix}.idx").write_bytes(index)


def sample_documents(count=40, vocabulary=64, seed=1):
    """Documents with something to learn: each token follows from the one before, with a little noise."""
    source = random.Random(seed)
    documents = []
    for _ in range(count):
        tokens = [source.randrange(vocabulary)]
        for _ in range(source.randrange(20, 80)):
            tokens.append((tokens[-1] * 5 + 7) % vocabulary if source.random() < 0.9 else source.randrange(vocabulary))
        documents.append(tokens)
    return documents


def read_metrics(experiment, run=None):
    """The metrics of a run, one dictionary a line; all runs in order when none is named."""
    folders = sorted((experiment / "runs").iterdir(), key=lambda p: int(p.name)) if run is None else [experiment / "runs" / str(run)]
    return [json.loads(line) for folder in folders for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses_of(metrics):
    """Name -> loss, as written: JSON numbers hold every bit of a float64."""
    return {name: value for name, value in metrics.items() if re.search(r"loss(_\d+)?$", name)}


def training_losses(metrics):
    """Iteration -> losses."""
    return {m["iteration"]: losses_of(m) for m in metrics if m["phase"] == "training"}


def read_safetensors(path):
    """Name -> (dtype, shape, bytes)."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    body = content[8 + length:]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def checkpoint_distances(test, found, expected, iteration, then=None, experts=0):
    """State -> parameter -> (norm of the difference, norm of the second) of two experiments' checkpoints, by whatever ranks; `then`: the
    iteration of the second, where it is another; experts: so many, whose parts of a matrix are told apart, as NAME[0] .."""
    paths = [str(found / f"checkpoint/{iteration}"), str(expected / f"checkpoint/{iteration if then is None else then}")]
    result = subprocess.run([str(BUILD / "bin/checkpoint_distance"), *paths, str(experts)], capture_output=True, text=True)
    test.assertEqual(result.returncode, 0, result.stderr)
    return json.loads(result.stdout)


def allocation_lines(output):
    """The memory table of a run, without time stamps."""
    lines = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", "", line) for line in output.splitlines()]
    return [line for line in lines if line.startswith((">>> Allocating", "Total allocated"))]


class HostTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fastllm-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def assert_ok(self, result, code=0):
        self.assertEqual(result.returncode, code, f"\n{result.args}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
        return result

    def assert_error(self, result, *parts, code=1):
        """Ended with that code, and said why in words that hold every part; no trace, no crash."""
        self.assertEqual(result.returncode, code, f"\n{result.args}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
        text = result.stdout + result.stderr
        for part in parts:
            self.assertIn(part, text)
        self.assertNotRegex(text, r"terminate called|core dumped|Traceback|Stack trace")
        return text

    def tiny_data(self, name="tiny", **options):
        prefix = self.folder / name
        write_memmap(prefix, sample_documents(**options))
        return prefix

    def tiny_arguments(self, experiment=None, iterations=10, **changes):
        """Arguments of a short training run; changes are dotted keys with __ for dots."""
        values = {**TINY, "data.datasets.Training": {"type": "memmap", "path": str(self.data)}, "training.train_iters": iterations}
        if experiment is not None:
            values["run.experiment_dir"] = str(experiment)
        values.update({key.replace("__", "."): value for key, value in changes.items()})
        return ["--plugin", "gpt", *overrides(values)]
