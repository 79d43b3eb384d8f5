#!/usr/bin/env python3
"""Logits, loss and every gradient of the gpt plugin against other systems with the same weights and tokens.

    python tests/parity/transformers_parity.py --runner build/release/bin/parity_runner \
        --plugin build/release/lib/fastllm/plugins/libfastllm_gpt.so [--case NAME] [--full]

Judges: the real model classes of Transformers (Llama, Mistral, Qwen2, Qwen3, Mixtral, Starcoder2, GPT-2, GPTBigCode) with random weights,
and a plain PyTorch model for the default configuration. The bar is the norm of the difference over the norm of the judge's, per tensor, float32.
The map between names and layouts is written here on its own, not shared with any converter.
"""
import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import typing

import numpy
import torch

BAR = 1e-5
SAMPLES, SEQUENCE = 3, 48


@dataclasses.dataclass
class Case:
    name: str
    base_model: dict
    make: typing.Callable          # () -> module whose forward gives logits [B, S, V] for tokens
    rename: typing.Callable        # dict of the judge's tensors (weights or gradients) -> dict by our names
    frozen: typing.Callable = lambda name: False  # judge's parameter names that get no gradient
    micro_batch: int = 2           # 3 samples: two micro-batches of different size
    recompute: bool = False
    coefficients: tuple = (1.0,)   # of the losses of the next token, the one after it ..: as many as the judge gives logits
    z_loss: float = 0.0
    router: typing.Optional[dict] = None  # of a mixture of experts: how many a token goes to, coefficients of the router's losses
    samples: int = SAMPLES
    sequence: int = SEQUENCE
    documents: typing.Optional[list] = None  # lengths in every sample; the judge sees each alone


def randomize(module):
    """Weights large enough that every part matters, norms around 1, biases not zero."""
    generator = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * 1.2 * max(parameter.shape[-1], 16) ** -0.5)
            else:
                parameter.copy_(noise * 0.2 + (1.0 if name.endswith("weight") else 0.0))
    return module


class Logits(torch.nn.Module):
    """A Transformers model as a function from tokens to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        self.output = self.model(input_ids=tokens, use_cache=False)
        return self.output.logits


# ------------------------------------------------------------------ Llama and its relatives: RMS norm, rotary, gated silu

def llama_names(layers, tied):
    def rename(t):
        out = {"layers.0.word_embeddings_weight": t["model.embed_tokens.weight"],
               f"layers.{layers + 1}.final_norm.weight": t["model.norm.weight"]}
        if not tied:
            out[f"layers.{layers + 1}.output_weights"] = t["lm_head.weight"]
        for i in range(layers):
            a, b = f"model.layers.{i}.", f"layers.{i + 1}."
            out[b + "norm_1.weight"] = t[a + "input_layernorm.weight"]
            out[b + "norm_2.weight"] = t[a + "post_attention_layernorm.weight"]
            for kind in ("weight", "bias"):
                if a + f"self_attn.q_proj.{kind}" in t:
                    out[b + f"self_attn.query.{kind}"] = t[a + f"self_attn.q_proj.{kind}"]
                    out[b + f"self_attn.key_value.{kind}"] = torch.cat(
                        [t[a + f"self_attn.k_proj.{kind}"], t[a + f"self_attn.v_proj.{kind}"]])
                if a + f"self_attn.o_proj.{kind}" in t:
                    out[b + f"self_attn.dense.{kind}"] = t[a + f"self_attn.o_proj.{kind}"]
            if a + "self_attn.q_norm.weight" in t:
                out[b + "self_attn.query_norm.weight"] = t[a + "self_attn.q_norm.weight"]
                out[b + "self_attn.key_norm.weight"] = t[a + "self_attn.k_norm.weight"]
            if a + "mlp.gate.weight" in t:
                out[b + "mlp.router.weight"] = t[a + "mlp.gate.weight"]
                out[b + "mlp.layer_1.weight"] = t[a + "mlp.experts.gate_up_proj"].flatten(0, 1)
                out[b + "mlp.layer_2.weight"] = t[a + "mlp.experts.down_proj"].transpose(1, 2).flatten(0, 1)
                continue
            out[b + "mlp.layer_1.weight"] = torch.cat([t[a + "mlp.gate_proj.weight"], t[a + "mlp.up_proj.weight"]])
            out[b + "mlp.layer_2.weight"] = t[a + "mlp.down_proj.weight"].t()
        return out
    return rename


def exact_angles(module, theta, head_width):
    """Transformers makes rotary angles in float32, which far from position 0 costs more than the bar; ours are made in double."""
    def forward(x, position_ids):
        exponent = torch.arange(0, head_width, 2, dtype=torch.float64) / head_width
        angles = position_ids[..., None].double() * theta ** -exponent
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    module.model.rotary_emb.forward = forward
    return module


@dataclasses.dataclass
class Family:
    """What tells a relative of Llama from it: the judge's class, settings of its configuration, settings of ours."""
    judge: str
    theirs: dict
    ours: dict


FAMILIES = {
    "llama": Family("Llama", {"attention_bias": False}, {"add_linear_biases": False}),
    "mistral": Family("Mistral", {"sliding_window": None}, {"add_linear_biases": False}),
    # Qwen counts the layers without a window; we give the number of the first with one, from 1.
    "qwen2": Family("Qwen2", {"use_sliding_window": False}, {"add_linear_biases": "only_attn_qkv"}),
    "mixtral": Family("Mixtral", {"sliding_window": None, "num_local_experts": 6, "num_experts_per_tok": 2, "output_router_logits": True},
                      {"add_linear_biases": False, "num_experts": 6, "num_experts_per_token": 2}),
    "qwen3": Family("Qwen3", {"use_sliding_window": False, "attention_bias": False},
                    {"add_linear_biases": False, "query_key_norm": True}),
}

# Our activations by what Transformers calls them. Its "gelu" is the exact one, ours the approximation by tanh.
ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "silu": "silu", "relu": "relu", "squared_relu": "relu2"}

# By our rotary type: settings of Transformers' rope, settings of ours. The contexts are short, so that the sequence of a case turns
# pairs on both sides of a blend and in it.
ROTARIES = {
    "default": ({}, {}),
    "linear": ({"factor": 4.0}, {"scale_factor": 4.0}),
    "llama3": ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
               {"original_context_length": 64}),
    "yarn": ({"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0},
             {"scale_factor": 4.0, "original_context_length": 64, "beta_fast": 4.0}),
    "yarn-attention-factor": (
        {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 32, "attention_factor": 1.5},
        {"type": "yarn", "scale_factor": 16.0, "original_context_length": 32, "attention_factor": 1.5}),
}


def llama(name, heads, groups, tied, family="llama", rotary="default", head_width=None, layers=2, hidden=64, ffn=88,
          vocabulary=131, theta=10000.0, activation="silu", exact=False, theirs=None, transformer=None, **options):
    import transformers

    kind = FAMILIES[family]
    their_rope, our_rope = ROTARIES[rotary]

    def make():
        configuration = getattr(transformers, kind.judge + "Config")(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=groups, head_dim=head_width or hidden // heads,
            max_position_embeddings=int(their_rope.get("factor", 1) * their_rope.get("original_max_position_embeddings", 4096)),
            tie_word_embeddings=tied, hidden_act=ACTIVATIONS[activation], rms_norm_eps=1e-5,
            rope_parameters={"rope_type": rotary, "rope_theta": theta, **their_rope}, attn_implementation="eager",
            **{**kind.theirs, **(theirs or {})})
        model = getattr(transformers, kind.judge + "ForCausalLM")(configuration)
        return Logits(exact_angles(model, theta, head_width or hidden // heads) if exact else model)

    settings = {"num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "head_groups": groups,
                "ffn_hidden_size": ffn, "gated": True, "activation_type": activation,
                "normalization": {"type": "rms_norm", "epsilon": 1.0e-5},
                "rotary": {"type": rotary, "theta": theta, **our_rope}, **kind.ours, **(transformer or {})}
    if head_width:
        settings["kv_channels"] = head_width
    return Case(name, {"transformer": settings, "vocab_size": vocabulary, "tie_word_embeddings": tied}, make,
                llama_names(layers, tied), **options)


# ------------------------------------------------------------------ Starcoder2: layer norm, biases everywhere, rotary, MLP without gate

def starcoder2(name, heads=4, groups=2, layers=2, hidden=48, ffn=96, vocabulary=97, window=None, activation="gelu"):
    from transformers import Starcoder2Config, Starcoder2ForCausalLM

    def make():
        return Logits(Starcoder2ForCausalLM(Starcoder2Config(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=4096, norm_epsilon=1e-5,
            hidden_act=ACTIVATIONS[activation], use_bias=True, tie_word_embeddings=True, sliding_window=window,
            residual_dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0, attn_implementation="eager",
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0})))

    def rename(t):
        out = {"layers.0.word_embeddings_weight": t["model.embed_tokens.weight"]}
        for kind in ("weight", "bias"):
            out[f"layers.{layers + 1}.final_norm.{kind}"] = t[f"model.norm.{kind}"]
            for i in range(layers):
                a, b = f"model.layers.{i}.", f"layers.{i + 1}."
                out[b + f"norm_1.{kind}"] = t[a + f"input_layernorm.{kind}"]
                out[b + f"norm_2.{kind}"] = t[a + f"post_attention_layernorm.{kind}"]
                out[b + f"self_attn.query.{kind}"] = t[a + f"self_attn.q_proj.{kind}"]
                out[b + f"self_attn.key_value.{kind}"] = torch.cat(
                    [t[a + f"self_attn.k_proj.{kind}"], t[a + f"self_attn.v_proj.{kind}"]])
                out[b + f"self_attn.dense.{kind}"] = t[a + f"self_attn.o_proj.{kind}"]
                out[b + f"mlp.layer_1.{kind}"] = t[a + f"mlp.c_fc.{kind}"]
                second = t[a + f"mlp.c_proj.{kind}"]
                out[b + f"mlp.layer_2.{kind}"] = second.t() if kind == "weight" else second
        return out

    return Case(name, {"vocab_size": vocabulary, "tie_word_embeddings": True, "transformer": {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "head_groups": groups,
        "ffn_hidden_size": ffn, "activation_type": activation, "add_linear_biases": True, "rotary": {"type": "default"},
        "window_size": window}},
        make, rename)


# ------------------------------------------------------------------ GPT-2 and GPTBigCode: absolute positions

def gpt2_names(layers, hidden, input_first):
    """input_first: their matrices are stored [in, out]. Ours are [out, in], but for the second of an MLP."""
    def matrix(tensor, ours_input_first=False):
        return tensor.t() if tensor.ndim == 2 and ours_input_first != input_first else tensor

    def rename(t):
        out = {"layers.0.word_embeddings_weight": t["transformer.wte.weight"],
               "layers.0.position_embeddings_weight": t["transformer.wpe.weight"]}
        for kind in ("weight", "bias"):
            out[f"layers.{layers + 1}.final_norm.{kind}"] = t[f"transformer.ln_f.{kind}"]
            for i in range(layers):
                a, b = f"transformer.h.{i}.", f"layers.{i + 1}."
                out[b + f"norm_1.{kind}"] = t[a + f"ln_1.{kind}"]
                out[b + f"norm_2.{kind}"] = t[a + f"ln_2.{kind}"]
                joint = matrix(t[a + f"attn.c_attn.{kind}"])
                out[b + f"self_attn.query.{kind}"] = joint[:hidden]
                out[b + f"self_attn.key_value.{kind}"] = joint[hidden:]
                out[b + f"self_attn.dense.{kind}"] = matrix(t[a + f"attn.c_proj.{kind}"])
                out[b + f"mlp.layer_1.{kind}"] = matrix(t[a + f"mlp.c_fc.{kind}"])
                out[b + f"mlp.layer_2.{kind}"] = matrix(t[a + f"mlp.c_proj.{kind}"], ours_input_first=True)
        return out
    return rename


def gpt2(name, layers=2, hidden=48, heads=4, vocabulary=97, positions=64):
    from transformers import GPT2Config, GPT2LMHeadModel

    def make():
        return Logits(GPT2LMHeadModel(GPT2Config(
            vocab_size=vocabulary, n_positions=positions, n_embd=hidden, n_layer=layers, n_head=heads, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, attn_implementation="eager")))

    return Case(name, {"vocab_size": vocabulary, "max_position_embeddings": positions, "transformer": {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "head_groups": heads}}, make,
        gpt2_names(layers, hidden, input_first=True))


def bigcode(name, layers=2, hidden=48, heads=4, vocabulary=97, positions=64):
    """Multi-query attention with absolute positions: the reference's default model, in Transformers."""
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    def make():
        return Logits(GPTBigCodeForCausalLM(GPTBigCodeConfig(
            vocab_size=vocabulary, n_positions=positions, n_embd=hidden, n_layer=layers, n_head=heads, n_inner=4 * hidden,
            activation_function="gelu_pytorch_tanh", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, multi_query=True,
            bos_token_id=None, eos_token_id=None,
            attn_implementation="eager")))

    return Case(name, {"vocab_size": vocabulary, "max_position_embeddings": positions, "transformer": {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}}, make,
        gpt2_names(layers, hidden, input_first=False))


# ------------------------------------------------------------------ the default configuration in plain PyTorch, our names

class Plain(torch.nn.Module):
    """What docs/compatibility.md say the default model is, as simply as it can be written."""

    def __init__(self, layers, hidden, heads, vocabulary, positions, bias="everywhere", interleaved_rotary=False,
                 softmax_scale_power=0.5, logits_scale=1.0, zero_centered=False, predictions=1):
        super().__init__()
        self.layers, self.hidden, self.heads, self.width = layers, hidden, heads, hidden // heads
        self.bias, self.interleaved_rotary = bias, interleaved_rotary
        self.scale, self.logits_scale = self.width ** -softmax_scale_power, logits_scale
        self.offset = 1.0 if zero_centered else 0.0
        # Numbers of blocks and heads: with several predictions block and head come in pairs after the first head.
        self.heads_at = [layers + 1 + 2 * k for k in range(predictions)]
        shapes = {"layers.0.word_embeddings_weight": (vocabulary, hidden)}
        if not interleaved_rotary:
            shapes["layers.0.position_embeddings_weight"] = (positions, hidden)
        for i in [*range(1, layers + 1), *(at - 1 for at in self.heads_at[1:])]:
            for norm in ("norm_1", "norm_2"):
                shapes[f"layers.{i}.{norm}.weight"] = shapes[f"layers.{i}.{norm}.bias"] = (hidden,)
            for linear, out, into in (("self_attn.query", hidden, hidden), ("self_attn.key_value", 2 * self.width, hidden),
                                      ("self_attn.dense", hidden, hidden), ("mlp.layer_1", 4 * hidden, hidden),
                                      ("mlp.layer_2", hidden, 4 * hidden)):
                shapes[f"layers.{i}.{linear}.weight"] = (into, out) if linear == "mlp.layer_2" else (out, into)
                if bias == "everywhere" or (bias == "only_attn_qkv" and linear in ("self_attn.query", "self_attn.key_value")):
                    shapes[f"layers.{i}.{linear}.bias"] = (out,)
        for at in self.heads_at:
            for kind in ("weight", "bias"):
                shapes[f"layers.{at}.final_norm.{kind}"] = (hidden,)
        self.parameters_by_name = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()})

    def get(self, name):
        key = name.replace(".", "/")
        return self.parameters_by_name[key] if key in self.parameters_by_name else None

    def norm(self, x, name):
        return torch.nn.functional.layer_norm(x, (self.hidden,), self.get(name + ".weight") + self.offset,
                                              self.get(name + ".bias"), 1e-5)

    def linear(self, x, name, stored_transposed=False):
        weight = self.get(name + ".weight")
        y = x @ (weight if stored_transposed else weight.t())
        bias = self.get(name + ".bias")
        return y if bias is None else y + bias

    def rotate(self, x):
        if not self.interleaved_rotary:
            return x
        exponent = torch.arange(0, self.width, 2, dtype=torch.float64) / self.width
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * 10000.0 ** -exponent
        turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)

    def forward(self, tokens):
        batch, sequence = tokens.shape
        x = self.get("layers.0.word_embeddings_weight")[tokens]
        positions = self.get("layers.0.position_embeddings_weight")
        if positions is not None:
            x = x + positions[torch.arange(sequence)]
        for i in range(1, self.layers):
            x = self.block(x, i)
        # The trunk ends before the last block: each head has a block of its own.
        logits = []
        for at in self.heads_at:
            y = self.norm(self.block(x, at - 1), f"layers.{at}.final_norm")
            logits.append(y @ self.get("layers.0.word_embeddings_weight").t() * self.logits_scale)
        return logits

    def block(self, x, number):
        batch, sequence, _ = x.shape
        future = torch.triu(torch.ones(sequence, sequence, dtype=torch.bool), 1)
        at = f"layers.{number}."
        y = self.norm(x, at + "norm_1")
        query = self.linear(y, at + "self_attn.query").view(batch, sequence, self.heads, self.width).transpose(1, 2)
        key, value = self.linear(y, at + "self_attn.key_value").unsqueeze(1).split(self.width, -1)  # one for all heads
        scores = self.rotate(query) @ self.rotate(key).transpose(-1, -2) * self.scale
        out = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        x = x + self.linear(out.transpose(1, 2).flatten(2), at + "self_attn.dense")
        y = self.linear(self.norm(x, at + "norm_2"), at + "mlp.layer_1")
        return x + self.linear(torch.nn.functional.gelu(y, approximate="tanh"), at + "mlp.layer_2", True)


def plain(name, layers=2, hidden=64, heads=8, vocabulary=101, positions=64, transformer=None, base_model=None, judge=None,
          **options):
    def rename(t):
        return {key.removeprefix("parameters_by_name.").replace("/", "."): value for key, value in t.items()}

    settings = {"vocab_size": vocabulary, "max_position_embeddings": positions, "transformer": {
        "num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, **(transformer or {})}, **(base_model or {})}
    return Case(name, settings, lambda: Plain(layers, hidden, heads, vocabulary, positions, **(judge or {})), rename, **options)


def all_cases(full):
    yield llama("llama-gqa", heads=8, groups=2, tied=False)
    yield llama("llama-mqa", heads=4, groups=1, tied=True)
    yield llama("llama-mha", heads=4, groups=4, tied=False, theta=500000.0)
    yield llama("llama-wide-heads", heads=4, groups=2, tied=True, head_width=24)
    yield llama("llama-recomputed", heads=8, groups=4, tied=False, recompute=True, micro_batch=1)
    yield llama("llama-frozen-mlp", heads=8, groups=4, tied=False, frozen=lambda name: ".mlp." in name,
                transformer={"mlp_lr_scale": [0.0]})
    yield llama("llama-frozen-attention", heads=8, groups=4, tied=True, frozen=lambda name: ".self_attn." in name,
                transformer={"attention_lr_scale": 0.0})
    yield llama("llama-frozen-embeddings-and-norms", heads=4, groups=2, tied=False,
                frozen=lambda name: "embed_tokens" in name or "norm" in name,
                transformer={"embeddings_lr_scale": 0.0, "norm_lr_scale": 0.0})
    for rotary in ROTARIES:
        if rotary != "default":
            yield llama(f"llama-{rotary}", heads=4, groups=2, tied=False, rotary=rotary, theta=500.0)
    yield llama("mistral", heads=8, groups=2, tied=False, family="mistral")
    for window in (1, 4, 40):
        yield llama(f"mistral-window-{window}", heads=8, groups=2, tied=False, family="mistral", sequence=80, samples=2,
                    theirs={"sliding_window": window}, transformer={"window_size": window})
    yield llama("llama-documents", heads=8, groups=2, tied=False, documents=[9, 1, 38])
    yield llama("mistral-documents-in-a-window", heads=4, groups=2, tied=True, family="mistral", documents=[30, 18],
                theirs={"sliding_window": 6}, transformer={"window_size": 6})
    yield llama("qwen2", heads=8, groups=2, tied=True, family="qwen2")
    yield llama("qwen2-window-from-the-second-layer", heads=4, groups=2, tied=False, family="qwen2",
                theirs={"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
                transformer={"window_size": 7, "max_window_layers": 2})
    yield llama("qwen3", heads=4, groups=2, tied=True, family="qwen3", head_width=24)
    yield llama("qwen3-frozen-norms", heads=4, groups=1, tied=False, family="qwen3", recompute=True,
                frozen=lambda name: "norm" in name, transformer={"norm_lr_scale": 0.0})
    # Transformers' own balancing loss is one over all layers together; here it is added by the formula of its paper, layer by layer.
    for name, more in {"mixtral": {}, "mixtral-recomputed": {"recompute": True},
                       "mixtral-frozen-experts": {"frozen": lambda name: ".experts." in name, "transformer": {"mlp_lr_scale": [0.0]}},
                       "mixtral-frozen-router": {"frozen": lambda name: "mlp.gate" in name, "transformer": {"router_lr_scale": 0.0}}}.items():
        router = {"chosen": 2, "balance": 0.5, "z": 0.25}
        transformer = {"expert_auxiliary_loss_coefficient": 0.5, "expert_z_loss_coefficient": 0.25, **more.pop("transformer", {})}
        yield llama(name, heads=4, groups=2, tied=False, family="mixtral", micro_batch=SAMPLES, router=router, transformer=transformer, **more)
    yield llama("mixtral-in-micro-batches", heads=4, groups=2, tied=False, family="mixtral", micro_batch=1, router={"chosen": 2},
                transformer={"expert_auxiliary_loss_coefficient": 0.0})
    yield starcoder2("starcoder2")
    yield starcoder2("starcoder2-window", window=9)
    for activation in ACTIVATIONS:
        if activation != "silu":
            yield llama(f"llama-gated-{activation}", heads=4, groups=2, tied=False, activation=activation)
        if activation != "gelu":
            yield starcoder2(f"starcoder2-{activation}", activation=activation)
    yield gpt2("gpt2")
    yield bigcode("gpt-bigcode")
    yield plain("default")
    yield plain("default-frozen-mlp", frozen=lambda name: "/mlp/" in name, transformer={"mlp_lr_scale": [0.0]})
    yield plain("only-attn-qkv-biases-zero-centered",
                transformer={"add_linear_biases": "only_attn_qkv", "normalization": {"zero_centered": True}},
                judge={"bias": "only_attn_qkv", "zero_centered": True})
    yield plain("interleaved-rotary-and-scales",
                transformer={"add_linear_biases": "nowhere", "rotary": {"type": "default", "triton": False},
                             "attention_softmax_scale_power": 0.75},
                base_model={"logits_scale_factor": 0.4},
                judge={"bias": "nowhere", "interleaved_rotary": True, "softmax_scale_power": 0.75, "logits_scale": 0.4})
    yield plain("z-loss", base_model={"logit_z_loss": 0.02, "logits_scale_factor": 1.5}, judge={"logits_scale": 1.5},
                z_loss=0.02)
    yield plain("three-predictions", layers=3, base_model={
        "prediction_heads": 3, "prediction_loss_coefficient": [1.0, 0.5, 0.25], "logit_z_loss": 0.01},
        judge={"predictions": 3}, coefficients=(1.0, 0.5, 0.25), z_loss=0.01)
    yield plain("two-predictions-of-one-block", layers=1, recompute=True, base_model={
        "prediction_heads": 2}, judge={"predictions": 2}, coefficients=(1.0, 1.0))
    if full:  # the very default model, and a Llama of the size of the benchmark: minutes, and gigabytes
        yield plain("default-full", layers=12, hidden=1024, heads=8, vocabulary=49152, positions=2048, samples=1,
                    micro_batch=1, sequence=256)
        yield llama("llama-benchmark", heads=6, groups=2, tied=True, layers=6, hidden=384, ffn=1024, vocabulary=8192,
                    samples=2, sequence=512,
                    exact=True)


# ------------------------------------------------------------------ one case

def router_losses(logits, chosen):
    """Of one layer: the balancing loss of Switch for any number of choices, and the z-loss."""
    probabilities = logits.softmax(-1)
    choices = torch.zeros_like(logits).scatter(1, logits.topk(chosen, -1).indices, 1.0)
    return {"load_balancing_loss": (probabilities.mean(0) * choices.mean(0)).sum(),
            "router_z_loss": logits.logsumexp(-1).square().mean()}


def judge(case, module, tokens, labels):
    """Losses by name, logits [heads, B, S, V], gradients of what is minimised."""
    if case.documents:
        logits = torch.cat([module(document) for document in tokens.split(case.documents, 1)], 1)
    else:
        logits = module(tokens)
    logits = logits if isinstance(logits, list) else [logits]
    losses, total = {}, 0
    for k, (coefficient, own_logits, own_labels) in enumerate(zip(case.coefficients, logits, labels, strict=True)):
        suffix = f"_{k}" if k else ""
        loss = torch.nn.functional.cross_entropy(own_logits.flatten(0, 1).float(), own_labels.flatten(), ignore_index=-100)
        losses["language_model_loss" + suffix] = loss.item()
        total = total + coefficient * loss
        if case.z_loss:
            z = own_logits.logsumexp(-1)[own_labels != -100].square().mean()
            losses["logit_z_loss" + suffix] = z.item()
            total = total + case.z_loss * z
    if case.router:
        routers = [router_losses(logits.flatten(0, -2), case.router["chosen"]) for logits in module.output.router_logits]
        for name, coefficient in (("load_balancing_loss", case.router.get("balance")), ("router_z_loss", case.router.get("z"))):
            if coefficient is None:
                continue
            losses[name] = sum(own[name] for own in routers).item() / len(routers)
            experts = module.output.router_logits[0].shape[-1] if name == "load_balancing_loss" else 1
            total = total + coefficient * experts * sum(own[name] for own in routers)
    total.backward()
    return losses, torch.stack(logits).detach(), {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def strip(tensors):
    return {name.removeprefix("model.", ) if name.startswith("model.model.") or name.startswith("model.transformer.")
            or name.startswith("model.lm_head.") else name: value for name, value in tensors.items()}


def distance(actual, expected):
    expected = expected.double()
    norm = expected.norm().item()
    return (actual.double() - expected).norm().item() / (norm if norm else 1.0)


def run_case(case, runner, plugin, folder):
    module = randomize(case.make()).train()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not case.frozen(name))
    generator = torch.Generator().manual_seed(5)
    vocabulary = case.base_model["vocab_size"]
    predictions = len(case.coefficients)
    stream = torch.randint(vocabulary, (case.samples, case.sequence + predictions), generator=generator)
    tokens = stream[:, :case.sequence].clone()
    labels = [stream[:, k:case.sequence + k].clone() for k in range(1, predictions + 1)]
    for k, own in enumerate(labels):
        own[0, 5 - k:9] = -100  # as many as no other has

    (folder / "weights").mkdir(parents=True)
    weights = case.rename(strip(dict(module.named_parameters())))
    for name, value in weights.items():
        value.detach().float().contiguous().numpy().tofile(folder / "weights" / f"{name}.f32")
    tokens.numpy().tofile(folder / "tokens.i64")
    for k, own in enumerate(labels):
        own.numpy().tofile(folder / ("labels.i64" if k == 0 else f"labels_{k + 1}.i64"))
    (folder / "job.json").write_text(json.dumps({
        "base_model": case.base_model, "samples": case.samples, "sequence": case.sequence, "micro_batch": case.micro_batch,
        "recompute": case.recompute, "documents": case.documents or [case.sequence], "predictions": predictions}))
    subprocess.run([runner, plugin, folder], check=True)

    losses, logits, gradients = judge(case, module, tokens, labels)
    read = lambda path, shape: torch.from_numpy(numpy.fromfile(path, dtype=numpy.float32)).view(shape)
    our_losses = json.loads((folder / "losses.json").read_text())
    if case.router and "balance" not in case.router:
        del our_losses["load_balancing_loss"]  # of micro-batches, which the judge does not have
    if set(our_losses) != set(losses):
        raise SystemExit(f"{case.name}: expected losses {sorted(losses)}, found {sorted(our_losses)}")
    results = {"loss": max(abs(our_losses[name] - loss) / abs(loss) for name, loss in losses.items()),
               "logits": distance(read(folder / "logits.f32", logits.shape), logits)}
    # The judge's frozen tensors have no gradient; give them an empty place so that joined tensors can be formed.
    placed = strip({name: gradients.get(name, torch.full_like(p, float("nan"))) for name, p in module.named_parameters()})
    expected = {name: value for name, value in case.rename(placed).items() if not value.isnan().all()}
    found = {path.name.removesuffix(".f32") for path in (folder / "gradients").iterdir()}
    if found != set(expected):
        raise SystemExit(f"{case.name}: expected gradients of {sorted(set(expected) - found)} more and of "
                         f"{sorted(found - set(expected))} not")
    for name, value in expected.items():
        results[f"gradient of {name}"] = distance(read(folder / "gradients" / f"{name}.f32", value.shape), value)
    frozen = set((folder / "frozen.txt").read_text().split())
    if frozen != set(weights) - set(expected):
        raise SystemExit(f"{case.name}: expected frozen {sorted(set(weights) - set(expected))}, found {sorted(frozen)}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--case", help="this one only")
    parser.add_argument("--full", action="store_true", help="also the default model in full size")
    parser.add_argument("--verbose", action="store_true", help="every tensor")
    options = parser.parse_args()
    failed, seen = False, 0
    print(f"{'case':36} {'tensors':>7} {'loss':>9} {'logits':>9} {'gradients':>9}  worst")
    for case in all_cases(options.full):
        if options.case and case.name != options.case:
            continue
        seen += 1
        with tempfile.TemporaryDirectory() as folder:
            results = run_case(case, options.runner, str(pathlib.Path(options.plugin).resolve()), pathlib.Path(folder))
        gradients = {name: value for name, value in results.items() if name.startswith("gradient")}
        worst = max(gradients, key=gradients.get)
        good = all(value <= BAR for value in results.values())
        failed |= not good
        print(f"{case.name:36} {len(results):7} {results['loss']:9.1e} {results['logits']:9.1e} {gradients[worst]:9.1e}  "
              f"{worst}{'' if good else f'   ABOVE {BAR}'}", flush=True)
        if options.verbose or not good:
            for name, value in sorted(results.items(), key=lambda item: -item[1]):
                if options.verbose or not value <= BAR:
                    print(f"    {value:9.1e}  {name}")
    if not seen:
        raise SystemExit(f"expected a case, found none of the name {options.case}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
