"""A process that tokenizes for fastllm-host with Hugging Face's `tokenizers`: tokenizer_worker.py FOLDER

Standard input is a socket; requests and answers go through it, one at a time. What anything prints goes to standard
error, so that it cannot get between. The process ends when the other side does, however that ended.

Frame: "FLTK", kind (1 byte), three zero bytes, length of the body (u64), the body. Little-endian.
  E  count u64, byte lengths u32 x count, UTF-8 texts  ->  e  count u64, token counts u32 x count, ids i32 ...
  D  ids i32 ...                                       ->  d  UTF-8 text
  T  UTF-8 text of one token                           ->  t  its id i32, -1: none
First, unasked:  h  JSON {"vocabulary": highest id + 1, "version": of the package}
Instead of any answer:  x  a sentence that says why there is none.
"""
import array
import json
import os
import select
import signal
import socket
import struct
import sys
import threading

MAGIC = b"FLTK"
HEADER = struct.Struct("<4sc3xQ")
LARGEST_FRAME = 1 << 32
TEXTS_AT_ONCE = 256  # what the package holds besides the ids is much larger than they are


class Problem(Exception):
    """Ends as a sentence on the other side."""


def end_with_the_host(connection):
    """A thread that waits until nobody is at the other end; also while a text is being tokenized."""
    poll = select.poll()
    poll.register(connection, select.POLLHUP)
    poll.poll()
    os._exit(0)


def receive(connection, size):
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            os._exit(0)
        view = view[count:]
    return memoryview(buffer)


def send(connection, kind, *parts):
    connection.sendall(HEADER.pack(MAGIC, kind, sum(memoryview(part).nbytes for part in parts)))
    for part in parts:
        connection.sendall(part)


def load(folder):
    try:
        import tokenizers
    except ImportError as error:
        raise Problem(f"no package: {error}")
    path = os.path.join(folder, "tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
    except Exception as error:
        raise Problem(f"the package tokenizers {tokenizers.__version__} cannot read {path} ({error}); "
                      "is the file complete, and not made by a later version of the package?")
    # Whole texts, nothing cut or filled up, whatever the file asks for.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    add_missing_tokens(tokenizers, tokenizer, os.path.join(folder, "tokenizer_config.json"))
    vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    return tokenizer, {"vocabulary": vocabulary, "version": tokenizers.__version__}


def add_missing_tokens(tokenizers, tokenizer, path):
    """Tokens that only tokenizer_config.json lists, as Transformers adds them."""
    try:
        with open(path, encoding="utf-8") as file:
            listed = json.load(file).get("added_tokens_decoder") or {}
        listed = sorted((int(key), token) for key, token in listed.items())
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError) as error:
        raise Problem(f"expected a JSON object with added_tokens_decoder by id in {path}, found other content ({error})")
    for number, token in listed:
        content = token.get("content", "") if isinstance(token, dict) else str(token)
        if not content or tokenizer.token_to_id(content) is not None:
            continue
        flags = {key: bool(token[key]) for key in ("single_word", "lstrip", "rstrip", "normalized") if key in token}
        special = bool(token.get("special"))
        added = tokenizers.AddedToken(content, special=special, **flags)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([added])
        if tokenizer.token_to_id(content) != number:
            raise Problem(f"expected the id {number} for the token {content!r} of {path}, found {tokenizer.token_to_id(content)} "
                          "when adding it to tokenizer.json; save the tokenizer again with Transformers")


def encode(tokenizer, body):
    count, = struct.unpack_from("<Q", body)
    lengths = array.array("I")
    lengths.frombytes(body[8:8 + 4 * count])
    at, texts = 8 + 4 * count, []
    for length in lengths:
        texts.append(str(body[at:at + length], "utf-8"))
        at += length
    run = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    sizes, ids = array.array("I"), array.array("i")
    for begin in range(0, count, TEXTS_AT_ONCE):
        for encoding in run(texts[begin:begin + TEXTS_AT_ONCE], add_special_tokens=False):
            found = encoding.ids
            sizes.append(len(found))
            ids.extend(found)
    return b"e", struct.pack("<Q", count), sizes, ids


def decode(tokenizer, body):
    ids = array.array("i")
    ids.frombytes(body)
    return b"d", tokenizer.decode(list(ids), skip_special_tokens=False).encode("utf-8", "replace")


def token_id(tokenizer, body):
    found = tokenizer.token_to_id(str(body, "utf-8"))
    return b"t", struct.pack("<i", -1 if found is None else found)


ANSWERS = {b"E": encode, b"D": decode, b"T": token_id}


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    connection = socket.socket(fileno=0)
    threading.Thread(target=end_with_the_host, args=(connection,), daemon=True).start()
    try:
        tokenizer, greeting = load(sys.argv[1])
    except Problem as problem:
        send(connection, b"x", str(problem).encode("utf-8", "replace"))
        return
    send(connection, b"h", json.dumps(greeting).encode())
    while True:
        magic, kind, size = HEADER.unpack(receive(connection, HEADER.size))
        if magic != MAGIC or kind not in ANSWERS or size > LARGEST_FRAME:
            send(connection, b"x", b"the request was no frame")
            return
        body = receive(connection, size)
        try:
            parts = ANSWERS[kind](tokenizer, body)
        except Exception as error:  # of the package; the host says it in its own words
            parts = b"x", f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        send(connection, *parts)


if __name__ == "__main__":
    main()
