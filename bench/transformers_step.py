#!/usr/bin/env python3
"""Step time of Transformers' Llama with the shape of bench/benchmark.yaml: forward, backward, clipping, AdamW, eager.

    OMP_NUM_THREADS=2 python bench/transformers_step.py [--freeze-mlp] [--steps N]
"""
import argparse
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--freeze-mlp", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=8192, tie_word_embeddings=True, num_hidden_layers=6, hidden_size=384, num_attention_heads=6,
        num_key_value_heads=2, intermediate_size=1024, max_position_embeddings=512, use_cache=False))
    if options.freeze_mlp:
        for layer in model.model.layers:
            layer.mlp.requires_grad_(False)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3, fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {sum(p.numel() for p in trainable):,} trainable, "
          f"{torch.get_num_threads()} threads")
    times = []
    for step in range(1, options.steps + 1):
        tokens = torch.randint(8192, (4, 512))
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        times.append(time.perf_counter() - begin)
        print(f"step {step:3} | {times[-1] * 1000:8.2f} ms | loss {value:.5f}", flush=True)
    settled = times[len(times) // 4:]
    print(f"median of the last {len(settled)}: {statistics.median(settled) * 1000:.2f} ms, fastest {min(settled) * 1000:.2f} ms")


if __name__ == "__main__":
    main()
