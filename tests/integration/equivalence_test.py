#!/usr/bin/python3
"""Every way to divide a training over ranks gives the numbers of one process: losses, gradients after the first step, weights after
the first step and after ten."""
import unittest

from support import HostTest, checkpoint_distances, losses_of, read_metrics, run_host

ITERATIONS = 10
PARALLEL = "model__distributed__{}_parallel".format
ZERO = "model__multi_stage__zero_stage"

# name -> (ranks, changes)
DATA = {f"dp{ranks}, ZeRO {zero}": (ranks, {ZERO: zero}) for ranks in (2, 4) for zero in (1, 2, 3)}
# Looped: more stages than ranks, and breadth-first micro-batches.
PIPELINE = {
    "pp2": (2, {PARALLEL("pipeline"): 2}),
    "pp2 of two layers a stage": (2, {PARALLEL("pipeline"): 2, "model__multi_stage__layers_per_stage": 2}),
    "pp2 x dp2": (4, {PARALLEL("pipeline"): 2}),
    "pp2 x dp2, ZeRO 3": (4, {PARALLEL("pipeline"): 2, ZERO: 3}),
}

TENSOR = {
    "tp2": (2, {PARALLEL("tensor"): 2}),
    "tp2 and the sequence": (2, {PARALLEL("tensor"): 2, PARALLEL("sequence_tensor"): True}),
    "dp2 x tp2": (4, {PARALLEL("tensor"): 2}),
    "dp2 x tp2 and the sequence, ZeRO 3": (4, {PARALLEL("tensor"): 2, PARALLEL("sequence_tensor"): True, ZERO: 3}),
    "pp2 x tp2": (4, {PARALLEL("tensor"): 2, PARALLEL("pipeline"): 2}),
    "pp2 x tp2 and the sequence": (4, {PARALLEL("tensor"): 2, PARALLEL("pipeline"): 2, PARALLEL("sequence_tensor"): True}),
}

# Each rank has a part of every sample.
SHARED = {"model__distributed__sequence_data_parallel": 2}
SEQUENCE = {
    "sdp2": (2, SHARED),
    "sdp4, ZeRO 2": (4, {"model__distributed__sequence_data_parallel": 4, ZERO: 2}),
    "dp2 of sdp2, two samples at a time, ZeRO 3": (4, {**SHARED, ZERO: 3, "batch__micro_batch_size": 2}),
    "sdp2 x tp2": (4, {**SHARED, PARALLEL("tensor"): 2}),
    "sdp2 x tp2 and the sequence, two samples at a time": (
        4, {**SHARED, PARALLEL("tensor"): 2, PARALLEL("sequence_tensor"): True, "batch__micro_batch_size": 2}),
    "sdp2 x pp2": (4, {**SHARED, PARALLEL("pipeline"): 2}),
}

# What is trained. Clipping that never binds leaves the gradients as they are in the first moments.
TRANSFORMER = "model__base_model__transformer__"
EXPERTS = {TRANSFORMER + "num_experts": 4, TRANSFORMER + "num_experts_per_token": 2, TRANSFORMER + "expert_z_loss_coefficient": 1e-3}
DROPOUT = {TRANSFORMER + "hidden_dropout": 0.2, TRANSFORMER + "attention_dropout": 0.2}
MODELS = {
    "dense": {},
    "dense, tied": {"model__base_model__tie_word_embeddings": True},
    # One key and value for all heads, biases, layer norms, absolute positions. Without rotation the gradient of the keys' bias is zero but
    # for rounding, which an epsilon of the usual size would make a step of full length.
    "dense, as the default": {
        "model__base_model__tie_word_embeddings": True, TRANSFORMER + "head_groups": 1, TRANSFORMER + "gated": False,
        TRANSFORMER + "add_linear_biases": True, TRANSFORMER + "normalization__type": "layer_norm", TRANSFORMER + "rotary__type": "none",
        "optimizer__epsilon": 1e-4},
    "dense, whole vocabulary": {"model__base_model__parallel_embeddings": False, TRANSFORMER + "query_key_norm": True,
                                "model__base_model__logit_z_loss": 1e-3},
    "experts": EXPERTS,
    "experts, jitter": {**EXPERTS, TRANSFORMER + "moe_jitter_eps": 0.1},
    "experts, jitter, two samples at a time": {**EXPERTS, TRANSFORMER + "moe_jitter_eps": 0.1, "batch__micro_batch_size": 2},
    "experts, sinkhorn": {**EXPERTS, TRANSFORMER + "expert_routing_type": "sinkhorn"},
    "experts, shared and frozen ones": {**EXPERTS, TRANSFORMER + "num_shared_experts": 1, TRANSFORMER + "mlp_lr_scale": [0, 1, 0, 1],
                                        TRANSFORMER + "attention_lr_scale": 0},
    "experts, all but their router frozen": {**EXPERTS, TRANSFORMER + "mlp_lr_scale": [0], TRANSFORMER + "embeddings_lr_scale": 0,
                                             TRANSFORMER + "attention_lr_scale": 0},
    "dense, dropout": DROPOUT,
    "dense, dropout, two samples at a time": {**DROPOUT, "batch__micro_batch_size": 2},
    "dense, window and separate documents": {TRANSFORMER + "window_size": 5, "batch__cross_document_attention": False},
    "dense, MLP and embeddings frozen": {TRANSFORMER + "mlp_lr_scale": [0], TRANSFORMER + "embeddings_lr_scale": 0},
}


class EquivalenceCase(HostTest):
    references = {}

    def setUp(self):
        super().setUp()
        self.data = self.tiny_data()

    def train(self, name, ranks, changes):
        experiment = self.folder / name
        launcher = ["--nproc", str(ranks)] if ranks > 1 else []
        arguments = self.tiny_arguments(experiment, ITERATIONS, **{
            "batch__batch_size": 8, "batch__micro_batch_size": 1, "optimizer__gradient_norm_clipping": 1e9,
            "training__checkpoint__interval": 1, "training__checkpoint__keep": ITERATIONS, **changes})
        self.assert_ok(run_host(*launcher, *arguments, OMP_NUM_THREADS="1"))
        return experiment

    def assert_near(self, found, expected, iteration, most):
        """By parameter. One whose norm is far below the others' (a gradient that is zero but for rounding) counts in the sum alone."""
        for state, parameters in checkpoint_distances(self, found, expected, iteration).items():
            whole = sum(norm**2 for _, norm in parameters.values())**0.5
            self.assertGreater(whole, 0)
            self.assertLessEqual(sum(d**2 for d, _ in parameters.values())**0.5, most * whole, state)
            for name, (difference, norm) in parameters.items():
                self.assertLessEqual(difference, most * max(norm, 1e-3 * whole), (iteration, state, name, norm, whole))

    def check(self, meshes, model):
        with self.subTest(model=model):
            expected = self.train("one", 1, MODELS[model])
        for mesh, (ranks, changes) in meshes.items():
            with self.subTest(mesh=mesh, model=model):
                found = self.train(f"{mesh}, {model}", ranks, {**MODELS[model], **changes})
                for a, b in zip(read_metrics(found), read_metrics(expected), strict=True):
                    for name, loss in losses_of(b).items():
                        most = (1e-5 if b["iteration"] <= 1 else 1e-4) * abs(loss)
                        self.assertLessEqual(abs(losses_of(a)[name] - loss), most, (b["iteration"], name, losses_of(a)[name], loss))
                self.assert_near(found, expected, 1, 1e-5)  # the first moments are the gradients times 1 - beta_1
                self.assert_near(found, expected, ITERATIONS, 1e-4)


class EquivalenceData(EquivalenceCase):
    def test_dense(self):
        self.check(DATA, "dense")

    def test_frozen(self):
        self.check(DATA, "dense, MLP and embeddings frozen")


class EquivalencePipeline(EquivalenceCase):
    def test_dense(self):
        self.check(PIPELINE, "dense")

    def test_tied(self):
        self.check(PIPELINE, "dense, tied")

    def test_frozen(self):
        self.check(PIPELINE, "dense, MLP and embeddings frozen")


class EquivalenceSequence(EquivalenceCase):
    def test_dense(self):
        self.check(SEQUENCE, "dense")

    def test_tied(self):
        self.check(SEQUENCE, "dense, tied")

    def test_frozen(self):
        self.check(SEQUENCE, "dense, MLP and embeddings frozen")

    def test_experts(self):
        self.check({mesh: case for mesh, case in SEQUENCE.items() if "batch__micro_batch_size" not in case[1]}, "experts, jitter")

    def test_experts_with_two_samples_at_a_time(self):
        two = ("sdp2", "sdp2 x tp2 and the sequence, two samples at a time")
        self.check({mesh: SEQUENCE[mesh] for mesh in two}, "experts, jitter, two samples at a time")

    def test_experts_balanced_over_the_ranks_of_a_sample(self):
        self.check({mesh: SEQUENCE[mesh] for mesh in ("sdp2", "sdp2 x tp2")}, "experts, sinkhorn")

    def test_window_and_documents(self):
        self.check(SEQUENCE, "dense, window and separate documents")

    def test_dropout(self):
        """Random numbers follow from the place of a token in its sample. Micro-batches of equal size, since each draws anew."""
        self.check({mesh: case for mesh, case in SEQUENCE.items() if "batch__micro_batch_size" not in case[1]}, "dense, dropout")

    def test_dropout_of_two_samples_at_a_time(self):
        self.check({mesh: SEQUENCE[mesh] for mesh in ("sdp2", "sdp2 x tp2 and the sequence, two samples at a time")},
                   "dense, dropout, two samples at a time")


class EquivalenceTensor(EquivalenceCase):
    def test_dense(self):
        self.check(TENSOR, "dense")

    def test_tied(self):
        self.check(TENSOR, "dense, tied")

    def test_as_the_default(self):
        self.check(TENSOR, "dense, as the default")

    def test_whole_vocabulary(self):
        self.check(TENSOR, "dense, whole vocabulary")

    def test_frozen(self):
        self.check(TENSOR, "dense, MLP and embeddings frozen")


class EquivalenceExperts(EquivalenceCase):
    def test_data(self):
        self.check(DATA, "experts")

    def test_pipeline(self):
        self.check(PIPELINE, "experts")

    def test_tensor(self):
        self.check(TENSOR, "experts")

    def test_frozen(self):
        self.check({**DATA, **PIPELINE, **TENSOR}, "experts, shared and frozen ones")

    def test_frozen_but_the_router(self):
        few = {name: {**DATA, **PIPELINE, **TENSOR}[name] for name in ("dp2, ZeRO 3", "pp2", "tp2", "tp2 and the sequence")}
        self.check(few, "experts, all but their router frozen")


if __name__ == "__main__":
    unittest.main()
