#!/usr/bin/env python3
"""How far bfloat16 and float16 are from float32: the gpt plugin beside models of Transformers, same weights, same tokens.

    python tests/parity/precision_parity.py --runner build/release/bin/parity_runner \
        --plugin build/release/lib/fastllm/plugins/libfastllm_gpt.so [--verbose]

Everything is compared with the judge in float32. The judge in 16 bits is what PyTorch shows for such a step; ours may not be further
away, tensor by tensor (but see CASES), norm-wise: it rounds weights and hidden states as the judge does, and nothing inside a layer.
The loss is a single number, whose error the judge may hit as small as it likes by chance: ours may be off by half a step of the type.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import transformers_parity as parity

# Type, distance from 1 to the next number, and the scale of the loss that keeps gradients out of the subnormal range.
TYPES = (("bfloat16", torch.bfloat16, 2.0 ** -7, 1.0), ("float16", torch.float16, 2.0 ** -10, 1024.0))


# With how many times the judge's distance a single tensor may have. Without rotary embeddings and norms in float32, where the judge
# rounds more than it must, most of both distances comes of rounded weights, and which is larger is a matter of luck.
CASES = (
    (parity.llama("llama-gqa", heads=8, groups=2, tied=False), 1.0),
    (parity.llama("llama-mqa", heads=4, groups=1, tied=True), 1.0),
    (parity.llama("mistral-window", heads=8, groups=2, tied=False, family="mistral", theirs={"sliding_window": 9},
                  transformer={"window_size": 9}), 1.0),
    (parity.llama("qwen3", heads=4, groups=2, tied=True, family="qwen3", head_width=24), 1.0),
    (parity.starcoder2("starcoder2"), 1.0),
    (parity.gpt2("gpt2"), 1.5),
)
MEAN_RATIO = 0.9  # over the tensors of a case, to the judge's distances


def judged(case, module, tokens, labels, scale):
    logits = module(tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
    (loss * scale).backward()
    gradients = case.rename(parity.strip({name: p.grad.float() / scale for name, p in module.named_parameters()}))
    return {"loss": loss.detach().reshape(1), "logits": logits.detach(),
            **{f"gradient of {name}": value for name, value in gradients.items()}}


def ours(case, module, tokens, labels, runner, plugin, folder, like, **job):
    (folder / "weights").mkdir(parents=True)
    for name, value in case.rename(parity.strip(dict(module.named_parameters()))).items():
        value.detach().contiguous().numpy().tofile(folder / "weights" / f"{name}.f32")
    tokens.numpy().tofile(folder / "tokens.i64")
    labels.numpy().tofile(folder / "labels.i64")
    (folder / "job.json").write_text(json.dumps({
        "base_model": {**case.base_model, "transformer": {**case.base_model["transformer"], **job.pop("transformer", {})}},
        "samples": case.samples, "sequence": case.sequence, "micro_batch": case.micro_batch, "recompute": case.recompute, **job}))
    subprocess.run([runner, plugin, folder], check=True)
    scale = job.get("loss_scale", 1.0)
    results = {"loss": torch.tensor([json.loads((folder / "losses.json").read_text())["language_model_loss"]])}
    for name, value in like.items():
        if name == "loss":
            continue
        path = folder / ("logits.f32" if name == "logits" else f"gradients/{name.removeprefix('gradient of ')}.f32")
        found = torch.from_numpy(numpy.fromfile(path, dtype=numpy.float32)).view(value.shape)
        results[name] = found if name == "logits" else found / scale
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--verbose", action="store_true", help="every tensor")
    options = parser.parse_args()
    plugin = str(pathlib.Path(options.plugin).resolve())
    failed = False
    for case, slack in CASES:
        module = parity.randomize(case.make()).train()
        generator = torch.Generator().manual_seed(5)
        stream = torch.randint(case.base_model["vocab_size"], (case.samples, case.sequence + 1), generator=generator)
        tokens, labels = stream[:, :-1].clone(), stream[:, 1:].clone()
        labels[0, 5:9] = -100
        exact = judged(case, copy.deepcopy(module), tokens, labels, 1.0)
        for type_name, dtype, step, scale in TYPES:
            theirs = judged(case, copy.deepcopy(module).to(dtype), tokens, labels, scale)
            distances = {name: parity.distance(theirs[name], exact[name]) for name in exact}
            for variant, job in (("", {}), (", gradients of the type", {"full_precision_gradients": False}),
                                 (", full residual", {"transformer": {"full_precision_residual": True}})):
                with tempfile.TemporaryDirectory() as folder:
                    found = ours(case, module, tokens, labels, options.runner, plugin, pathlib.Path(folder), exact,
                                 training_dtype=type_name, loss_scale=scale, **job)
                ratios, lines = [], []
                for name in exact:
                    distance = parity.distance(found[name], exact[name])
                    bar = slack * distances[name]
                    if name == "loss":
                        bar = max(bar, step / 2)
                    else:
                        ratios.append(distance / distances[name])
                        if distance == 0:
                            bar = -1.0  # nothing was rounded: the test compares nothing
                    bad = not distance <= bar
                    failed |= bad
                    if bad or options.verbose:
                        lines.append(f"    {distance:9.2e} ours, {distances[name]:9.2e} theirs  {name}{'  ABOVE THE BAR' if bad else ''}")
                mean = sum(ratios) / len(ratios)
                failed |= not mean <= MEAN_RATIO
                print(f"{case.name}, {type_name}{variant}: {len(exact)} tensors, ratio to PyTorch's distance {max(ratios):.2f} at most, "
                      f"{mean:.2f} in the mean{'' if mean <= MEAN_RATIO else f', ABOVE {MEAN_RATIO}'}", *lines, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
