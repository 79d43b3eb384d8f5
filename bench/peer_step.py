#!/usr/bin/env python3
"""Steps of another implementation with a shape of models.py: forward, backward, clipping, fused AdamW, on random tokens.

    OMP_NUM_THREADS=2 PYTHON bench/peer_step.py transformers-sdpa [--size 13M] [--steps N] [--freeze-mlp]

Prints one line a step, for step.py. Peers: transformers-sdpa, transformers-eager, transformers-compiled, litgpt.
"""
import argparse
import time

import torch

from models import PEERS, SIZES


def make_transformers(size, attention):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=size.vocabulary, tie_word_embeddings=True, num_hidden_layers=size.layers, hidden_size=size.hidden,
        num_attention_heads=size.heads, num_key_value_heads=size.groups, intermediate_size=size.ffn,
        max_position_embeddings=size.sequence, use_cache=False, attn_implementation=attention))


def make_litgpt(size):
    from litgpt import GPT, Config
    model = GPT(Config(
        block_size=size.sequence, vocab_size=size.vocabulary, padded_vocab_size=size.vocabulary, n_layer=size.layers,
        n_embd=size.hidden, n_head=size.heads, n_query_groups=size.groups, intermediate_size=size.ffn, rotary_percentage=1.0,
        parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP"))
    model.lm_head.weight = model.transformer.wte.weight
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--size", choices=SIZES, default="13M")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--freeze-mlp", action="store_true")
    options = parser.parse_args()
    size = SIZES[options.size]
    torch.manual_seed(0)
    if options.peer == "litgpt":
        model = make_litgpt(size)
    else:
        model = make_transformers(size, "eager" if options.peer == "transformers-eager" else "sdpa")
    if options.freeze_mlp:
        for name, parameter in model.named_parameters():
            if ".mlp." in name:
                parameter.requires_grad_(False)
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert sum(p.numel() for p in model.parameters()) == size.parameters
    optimizer = torch.optim.AdamW(trainable, lr=1e-3, fused=True)

    def loss_of(tokens, labels):
        if options.peer != "litgpt":
            return model(input_ids=tokens, labels=labels, shift_labels=labels).loss
        return torch.nn.functional.cross_entropy(model(tokens).view(-1, size.vocabulary), labels.view(-1))

    if options.peer == "transformers-compiled":
        loss_of = torch.compile(loss_of)
    for step in range(1, options.steps + 1):
        tokens, labels = torch.randint(size.vocabulary, (2, size.batch, size.sequence))
        begin = time.perf_counter()
        loss = loss_of(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        print(f"step time: {(time.perf_counter() - begin) * 1000:.2f} ms | step {step} | loss {value:.5f}", flush=True)


if __name__ == "__main__":
    main()
