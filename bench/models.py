"""The models that are measured, once for all who take part: Llama-like, tied, float32. And who takes part besides us."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int
    hidden: int
    heads: int
    groups: int
    ffn: int
    vocabulary: int
    batch: int = 4  # samples of a step
    sequence: int = 512  # tokens of a sample

    @property
    def parameters(self):
        width = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.groups * width * self.hidden
        return self.vocabulary * self.hidden + self.hidden + self.layers * (
            attention + 3 * self.ffn * self.hidden + 2 * self.hidden)

    def overrides(self):
        """For fastllm-host, on top of bench/benchmark.yaml."""
        at = "model.base_model.transformer."
        return [f"model.base_model.vocab_size={self.vocabulary}", f"{at}num_layers={self.layers}",
                f"{at}hidden_size={self.hidden}", f"{at}num_attention_heads={self.heads}", f"{at}head_groups={self.groups}",
                f"{at}ffn_hidden_size={self.ffn}", f"batch.batch_size={self.batch}", f"batch.sequence_length={self.sequence}"]


SIZES = {
    "1M": Size(layers=4, hidden=128, heads=4, groups=2, ffn=344, vocabulary=2048),
    "13M": Size(layers=6, hidden=384, heads=6, groups=2, ffn=1024, vocabulary=8192),
    "50M": Size(layers=9, hidden=640, heads=10, groups=2, ffn=1728, vocabulary=16384),
}

PEERS = ("transformers-sdpa", "transformers-eager", "transformers-compiled", "litgpt")
