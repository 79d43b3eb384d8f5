"""Prints the documents of a version-2 memory-mapped dataset as JSON: the tests' second opinion on what we write.

    read_memmap.py PREFIX
"""
import json
import sys

import numpy as np

TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
index = open(sys.argv[1] + ".idx", "rb").read()
assert index[:9] == b"MMIDIDX\0\0" and np.frombuffer(index, "<u8", 1, 9)[0] == 2
has_spans, dtype = index[17], TYPES[index[18]]
count, again = (int(x) for x in np.frombuffer(index, "<u8", 2, 19))
assert again == count + 1
at = 35


def table(kind, size):
    global at
    values = np.frombuffer(index, kind, size, at)
    at += values.nbytes
    return values


sizes, offsets = table("<i4", count), table("<i8", count)
spans = [[] for _ in range(count)]
if has_spans:
    counts = table("<i4", count)
    pairs = table("<i4", 2 * int(counts.sum())).reshape(-1, 2)
    ends = counts.cumsum()
    spans = [pairs[end - n : end].tolist() for n, end in zip(counts, ends)]
assert table("<i8", count + 1).tolist() == list(range(count + 1)) and at == len(index)
tokens = np.memmap(sys.argv[1] + ".bin", mode="r", dtype=np.uint8)
json.dump(
    [
        {"tokens": np.frombuffer(tokens, dtype, size, offset).tolist(), "spans": span}
        for size, offset, span in zip(sizes, offsets, spans)
    ],
    sys.stdout,
)
