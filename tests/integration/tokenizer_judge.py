"""Makes tokenizers of several kinds and a corpus, and says what their own Python libraries make of it.

    tokenizer_judge.py FOLDER

FOLDER/corpus: input of prepare, text files and JSON lines with spans. FOLDER/NAME: a tokenizer; FOLDER/NAME.json: the
documents expected of it, in the order of prepare: {"ids": [...], "spans": [[first, last], ...]}. FOLDER/NAME.decoded.json: pairs of
ids and the text they stand for. FOLDER/no_begin: a model without a token for the beginning.
Run by the judges' Python: needs tokenizers, sentencepiece and transformers.
"""
import json
import os
import pathlib
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
WORDS = "the model of a token has many small parts; café €5 naïve 日本語 😀 \t tabs \n lines ﬁ ½ e\u0301 \u200d def f(x): return x_1"


def texts():
    """Names -> content. Long and short, of all lengths of characters, with special tokens as text, and empty."""
    result = {"empty.txt": "", "space.txt": " \n ", "special.txt": "a <s> b</s><pad>"}
    for i in range(12):
        words = WORDS.split(" ")
        result[f"t{i:02}.txt"] = " ".join(words[(i * k * k + k) % len(words)] for k in range(40 * (i + 1)))
    return result


def lines():
    """Texts with spans over their characters, inclusive."""
    long = WORDS * 3
    return [
        ("abcdef", [[2, 3]]), ("abcdef", [[4, 5]]), ("abcdef", [[0, 1]]), ("abcdef", [[0, 5]]), ("abcdef", []),
        ("café €5 naïve", [[3, 3], [4, 6], [8, 12]]), ("", []), (long, [[0, 10], [11, 11], [40, 90], [len(long) - 3, len(long) - 1]]),
        ("ab \n cd", [[2, 4]]), ("x", [[0, 0]]), (long, None),
    ]


def expected_document(encode, begin, end, text, spans):
    """The rule: cut at the borders of spans, each piece by itself; BOS and EOS count to a span that reaches the end of the text."""
    borders = sorted({0, len(text), *(b for first, last in spans for b in (first, last + 1))})
    ids, token_spans = [begin], []
    masked = {first: last + 1 for first, last in spans}
    position, pieces = 0, []
    while position < len(text):
        stop = masked.get(position) or min(b for b in borders if b > position)
        pieces.append((position, stop))
        position = stop
    for start, stop in pieces:
        tokens = encode(text[start:stop])
        if start in masked:
            first = 0 if start == 0 else len(ids)
            last = len(ids) + len(tokens) - (0 if stop == len(text) else 1)
            if last >= first:
                token_spans.append([first, last])
        ids += tokens
    return {"ids": ids + [end], "spans": token_spans}


def write_corpus(folder):
    folder.mkdir(parents=True)
    for name, text in texts().items():
        (folder / name).write_bytes(text.encode())
    with open(folder / "lines.jsonl", "w", encoding="utf-8") as file:
        for number, (text, spans) in enumerate(lines()):
            line = {"text": text} if spans is None else {"text": text, "loss_masking_spans": spans}
            file.write(json.dumps(line, ensure_ascii=number % 2 == 0) + "\n")


def write_expected(name, encode, begin, end, corpus=None):
    documents = [] if corpus else [("lines.jsonl", text, spans or []) for text, spans in lines()]
    documents += [(file, text, []) for file, text in (corpus or texts()).items()]
    documents.sort(key=lambda d: d[0])  # stable: lines stay in order
    result = [expected_document(encode, begin, end, text, spans) for _, text, spans in documents]
    (FOLDER / f"{name}.json").write_text(json.dumps(result))


def write_decoded(name, encode, decode, specials):
    """Whole texts, cut ones (characters in parts), and special ids."""
    cases = [encode(text) for text, _ in lines()]
    cases += [ids[1:-1] for ids in cases] + [specials, [specials[0], *encode("a b"), specials[1]]]
    (FOLDER / f"{name}.decoded.json").write_text(json.dumps([[ids, decode(ids)] for ids in cases]))


def sample():
    return [*texts().values(), *(text for text, _ in lines())] * 3


def save(name, tokenizer, config, map=None):
    folder = FOLDER / name
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if map is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(map))
    return folder


def encoder(folder):
    """The file as it is, without what it asks for besides tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def byte_level_bpe():
    """As GPT-2, Llama 3 and Qwen have it; asks for BOS, truncation and padding, which a data set must not get."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sample(), trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=7)
    folder = save("bpe", tokenizer, {"bos_token": "<s>"}, {"eos_token": {"content": "</s>", "lstrip": False}})
    tokenizer, encode = encoder(folder)
    write_expected("bpe", encode, tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>"))
    write_decoded("bpe", encode, lambda ids: tokenizer.decode(ids, skip_special_tokens=False), [0, 1])


def unigram():
    """Normalizes, has pieces of words, and one special token in tokenizer_config.json alone; Transformers is the judge of that."""
    import transformers
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(sample(), trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False))
    number = tokenizer.get_vocab_size()
    flags = {"lstrip": False, "rstrip": True, "single_word": False, "normalized": False, "special": True}
    folder = save("unigram", tokenizer, {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "added_tokens_decoder": {str(number): {"content": "</s>", **flags}}})
    judge = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    assert judge.eos_token_id == number, (judge.eos_token_id, number)
    write_expected("unigram", lambda text: judge.encode(text, add_special_tokens=False), judge.bos_token_id, judge.eos_token_id)


def pieces(kind):
    name = f"sentencepiece_{kind}"
    folder = FOLDER / name
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in sample() for line in text.splitlines() if line), model_prefix=str(folder / "tokenizer"),
        vocab_size=360, model_type=kind, byte_fallback=True, user_defined_symbols=["<fim>"], minloglevel=2, num_threads=1,
        hard_vocab_limit=False)
    (folder / "tokenizer.vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    begin, end = processor.bos_id(), processor.eos_id()
    if kind == "bpe":  # another end of text, by name
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<fim>"}))
        end = processor.piece_to_id("<fim>")
    write_expected(name, processor.encode, begin, end)
    write_decoded(name, processor.encode, processor.decode, [begin, end])


def no_begin():
    (FOLDER / "no_begin").mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g"] * 20), model_prefix=str(FOLDER / "no_begin" / "tokenizer"), vocab_size=12, bos_id=-1,
        minloglevel=2, num_threads=1, hard_vocab_limit=False)


def gpt2_pieces():
    """The few tokens of GPT-2 that `hello world` needs, under their numbers there: published examples of spans use them."""
    vocabulary = {
        "h": 71, "e": 68, "l": 75, "o": 78, "w": 86, "r": 81, "d": 67, "Ġ": 220, "he": 258, "el": 417, "lo": 5439, "llo": 18798,
        "ell": 695, "ello": 11109, "hello": 31373, "Ġw": 266, "or": 273, "ld": 335, "orld": 1764, "Ġworld": 995, "Ġwo": 24486,
        "<|endoftext|>": 50256}
    merges = [("h", "e"), ("e", "l"), ("l", "o"), ("l", "lo"), ("el", "l"), ("el", "lo"), ("he", "llo"), ("Ġ", "w"), ("o", "r"),
              ("l", "d"), ("or", "ld"), ("Ġw", "orld"), ("Ġw", "o")]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    save("gpt2", tokenizer, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})


write_corpus(FOLDER / "corpus")
byte_level_bpe()
unigram()
pieces("bpe")
pieces("unigram")
no_begin()
gpt2_pieces()
