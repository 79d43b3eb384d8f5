#!/usr/bin/python3
"""Every configuration key, one by one: what it changes in a short run, or that it is refused, or that it says it has no effect.

The table below has an entry for every key that `fastllm-host schema --plugin gpt` lists (the first test compares the two), so a key
that is added without a line here, or stops doing what the line says, is noticed. How a field computes what it computes is checked
elsewhere (tests/parity, tests/unit); here is checked that the key arrives there. FASTLLM_FIELDS, a regular expression, chooses some.
"""
import concurrent.futures
import json
import os
import re
import unittest

from support import HostTest, allocation_lines, overrides, read_metrics, run_host, sample_documents, write_memmap

T = "model.base_model.transformer."
B = "model.base_model."


class Case:
    """One run with the key set, beside one without (both with `also`); `check` says what must be so."""

    def __init__(self, value, check, also=None):
        self.value, self.check, self.also = value, check, also or {}


class Outcome:
    def __init__(self, result, experiment):
        self.code, self.text = result.returncode, result.stdout + result.stderr
        self.experiment = experiment
        self.losses = []
        if (experiment / "runs").exists():
            self.losses = [{k: v for k, v in m.items() if k.endswith("loss")} for m in read_metrics(experiment)]
        self.allocations = allocation_lines(result.stdout)


# ---------------------------------------------------------------- what a key can do

def changes(value, **also):
    """The numbers of training differ."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), plain.text[-2000:] + changed.text[-2000:])
        test.assertNotEqual(plain.losses, changed.losses)
    return Case(value, check, dotted(also))


def nearly(value, **also):
    """The same sums in another order: losses agree to 1e-5, and some bit differs."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), plain.text[-2000:] + changed.text[-2000:])
        test.assertEqual([list(step) for step in plain.losses], [list(step) for step in changed.losses])
        for one, other in zip(plain.losses, changed.losses, strict=True):
            for name, loss in one.items():
                test.assertAlmostEqual(other[name], loss, delta=1e-5 * abs(loss))
        test.assertNotEqual(plain.losses, changed.losses)
    return Case(value, check, dotted(also))


def rescues(value, **also):
    """Without the key nothing runs."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (1, 0), plain.text[-2000:] + changed.text[-2000:])
        test.assertTrue(changed.losses)
    return Case(value, check, dotted(also))


def same(value, note=None, **also):
    """Not a bit of the numbers differs; with `note`, the log says so."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), plain.text[-2000:] + changed.text[-2000:])
        test.assertEqual(plain.losses, changed.losses)
        test.assertTrue(plain.losses)
        if note:
            pattern = note.format(key=re.escape(key))
            test.assertRegex(changed.text, pattern)
            test.assertNotRegex(plain.text, pattern)
    return Case(value, check, dotted(also))


def refused(value, sentence, **also):
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 1), plain.text[-2000:] + changed.text[-2000:])
        test.assertRegex(changed.text, sentence)
        test.assertEqual(changed.losses, [])
    return Case(value, check, dotted(also))


def says(value, pattern, code=0, **also):
    """The log has a line that it has not without."""
    def check(test, key, plain, changed):
        test.assertEqual(changed.code, code, changed.text[-2000:])
        test.assertRegex(changed.text, pattern)
        test.assertNotRegex(plain.text, pattern)
    return Case(value, check, dotted(also))


def silent(value, pattern, **also):
    """The log lacks a line that it has without."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), changed.text[-2000:])
        test.assertRegex(plain.text, pattern)
        test.assertNotRegex(changed.text, pattern)
    return Case(value, check, dotted(also))


def memory(value, **also):
    """The table of what is allocated differs, the numbers do not."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), changed.text[-2000:])
        test.assertNotEqual(plain.allocations, changed.allocations)
        test.assertEqual(plain.losses, changed.losses)
    return Case(value, check, dotted(also))


def leaves(value, pattern, **also):
    """A file matching the pattern is in the experiment's folder, and not without."""
    def check(test, key, plain, changed):
        test.assertEqual(changed.code, 0, changed.text[-2000:])
        test.assertTrue(list(changed.experiment.glob(pattern)), sorted(map(str, changed.experiment.rglob("*"))))
        test.assertFalse(list(plain.experiment.glob(pattern)))
    return Case(value, check, dotted(also))


def nothing_left(value, pattern, **also):
    """No file matches the pattern in the experiment's folder, and one does without; the numbers are the same as far as they are kept."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), changed.text[-2000:])
        test.assertTrue(list(plain.experiment.glob(pattern)))
        test.assertFalse(list(changed.experiment.glob(pattern)))
    return Case(value, check, dotted(also))


def stores(value, **also):
    """What is saved differs although the numbers do not."""
    def check(test, key, plain, changed):
        test.assertEqual((plain.code, changed.code), (0, 0), changed.text[-2000:])
        test.assertEqual(plain.losses, changed.losses)
        test.assertNotEqual(*((run.experiment / "checkpoint/4/rank_0.safetensors").read_bytes() for run in (plain, changed)))
    return Case(value, check, dotted({"training__checkpoint__interval": 4, **also}))


def dotted(also):
    """Keys of `also` are written with __ for dots; a leading t or b stands for the long beginnings."""
    names = {}
    for key, value in also.items():
        key = key.replace("__", ".")
        key = T + key[2:] if key.startswith("t.") else B + key[2:] if key.startswith("b.") else key
        names[key] = value
    return names


NO_EFFECT = "{key}: no effect here"


def without_effect(value, **also):
    return same(value, note=NO_EFFECT, **also)


# ---------------------------------------------------------------- the keys

FIELDS = {}

# The run: where its output goes.
FIELDS |= {
    "run.tensor_logs.save": leaves(True, "runs/0/artifacts/0/*", model__multi_stage__debug_layer_outputs=3),
    "run.tensor_logs.show": silent(False, r"Global param: \S+", model__multi_stage__debug_param_init=2, run__tensor_logs__save=True),
    "run.tensor_logs.max_elements": says(2, r"step 255: \S+ \S+ \.\.\.", model__multi_stage__debug_param_init=6,
                                         run__tensor_logs__save=True),
    "run.structured_logs": nothing_left(False, "runs/0/logs/*"),
    "run.experiment_dir": nothing_left(None, "config.yaml"),
    "run.enable_all_loggers": without_effect(True),
    "run.log_timestamps": silent(False, r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} Training"),
    "run.experiment_name": without_effect("a name"),
    "run.torch_dynamo_enable": without_effect(False),
    "run.enable_triton_kernels": without_effect(False),
    "run.triton_linear_kernels": without_effect(True),
    "run.threads": same(1),
}

# The model: architecture.
FIELDS |= {T + key: case for key, case in {
    "normalization.type": changes("layer_norm"),
    "normalization.epsilon": changes(0.1),
    "normalization.zero_centered": stores(True),
    "normalization.implementation": without_effect("torch"),
    "normalization.initialization_range": changes(0.1),
    "num_layers": changes(1),
    "hidden_size": changes(16),
    "num_attention_heads": changes(2),
    "head_groups": changes(1),
    "add_linear_biases": changes(True),
    "ffn_hidden_size": changes(32),
    "kv_channels": changes(16),
    "rotary.type": changes("none"),
    "rotary.theta": changes(100.0),
    "rotary.triton": changes(False),
    "rotary.scale_factor": changes(4.0, t__rotary__type="llama3", t__rotary__original_context_length=16),
    "rotary.low_frequency_factor": changes(2.0, t__rotary__type="llama3", t__rotary__original_context_length=16),
    "rotary.high_frequency_factor": changes(8.0, t__rotary__type="llama3", t__rotary__original_context_length=16),
    "rotary.original_context_length": changes(16, t__rotary__type="llama3"),
    "rotary.attention_factor": changes(2.0, t__rotary__type="yarn", t__rotary__original_context_length=16),
    "rotary.beta_fast": changes(1.0, t__rotary__type="yarn", t__rotary__original_context_length=64),
    "rotary.beta_slow": changes(0.1, t__rotary__type="yarn", t__rotary__original_context_length=64),
    "gated": changes(False),
    "activation_type": changes("relu"),
    "window_size": changes(4),
    "query_key_norm": changes(True),
    "max_window_layers": changes(2, t__window_size=4),
    "attention_softmax_scale_power": changes(1.0),
    # experts
    "num_experts": changes(4),
    "num_shared_experts": changes(1, t__num_experts=4),
    "num_experts_per_token": changes(2, t__num_experts=4),
    "expert_routing_type": changes("sinkhorn", t__num_experts=4),
    "expert_auxiliary_loss_coefficient": changes(0.5, t__num_experts=4),
    "expert_z_loss_coefficient": changes(0.5, t__num_experts=4),
    "moe_jitter_eps": changes(0.5, t__num_experts=4),
    "router_lr_scale": changes(0.5, t__num_experts=4, t__num_experts_per_token=2),
    "dropless_moe": without_effect(False),
    "dropless_dynamic_shape": without_effect(True),
    # initial values
    "init_method_std": changes(0.1),
    "init_method_max": changes(0.05),
    "init_method_min": changes(-0.05),
    "init_method_std_qkv": changes(0.3),
    "init_method_max_qkv": changes(0.05),
    "init_method_min_qkv": changes(-0.05),
    "init_method_std_attn_proj": changes(0.3),
    "init_method_max_attn_proj": changes(0.05),
    "init_method_min_attn_proj": changes(-0.05),
    "init_method_std_mlp_1": changes(0.3),
    "init_method_max_mlp_1": changes(0.05),
    "init_method_min_mlp_1": changes(-0.05),
    "init_method_std_mlp_2": changes(0.3),
    "init_method_max_mlp_2": changes(0.05),
    "init_method_min_mlp_2": changes(-0.05),
    "random_bias_init": changes(True, t__add_linear_biases=True),
    # training
    "attention_dropout": changes(0.5),
    "hidden_dropout": changes(0.5),
    "full_precision_residual": changes(True, model__distributed__training_dtype="bfloat16"),
    "use_flash_attention": without_effect(False),
    "mlp_recompute_level": same("full"),
    "debug_transformer": says(1, r"layers\.1 attention output \[128, 32\]"),
    "debug_transformer_memory": says(True, r"layers\.1 attention output \| resident [\d.]+ MiB"),
    "mlp_lr_scale": changes([0.5]),
    "attention_lr_scale": changes(0.5),
    "embeddings_lr_scale": changes(0.5),
    "output_lr_scale": changes(0.5),
    "norm_lr_scale": changes(0.5),
}.items()}
FIELDS |= {B + key: case for key, case in {
    "max_position_embeddings": refused(16, "max_position_embeddings", b__use_position_embeddings=True),
    "vocab_size": changes(65),
    "use_position_embeddings": changes(True),
    "tie_word_embeddings": changes(True),
    "init_method_std_embed": changes(0.3),
    "init_method_max_embed": changes(0.05),
    "init_method_min_embed": changes(-0.05),
    "cross_entropy_impl": without_effect("torch"),
    "cross_entropy_splits": same(4),  # of this size not a bit; the length of pieces: head_test.cpp
    "parallel_embeddings": same(False),
    "sequence_first": without_effect(True),
    "logit_z_loss": changes(0.1),
    "logits_scale_factor": changes(0.5),
    "prediction_heads": changes(2),
    "prediction_loss_coefficient": changes([1.0, 0.5], b__prediction_heads=2),
    "use_megatron_initialization": refused(True, "use_megatron_initialization"),
}.items()}

# Stages, ranks.
FIELDS |= {"model.multi_stage." + key: case for key, case in {
    "full_precision_gradients": changes(False, model__distributed__training_dtype="bfloat16"),
    "store_frozen_weights_in_optimization_precision": memory(False, **{T + "embeddings_lr_scale": 0}),
    "debug_layer_outputs": says(2, r"layer \S+ fw"),
    "debug_layer_gradients": says(2, r"layer \S+ bw"),
    "debug_param_init": says(2, r"Global param: \S+"),
    "debug_param_gradients": says(2, r"Global gradient"),
    "debug_all_param_gradients": says(2, r"Global gradient: \S+"),
    "debug_param_update": says(2, r"Global param: \S+"),
    "debug_global_tensors": says(False, r"Local param: \S+", model__multi_stage__debug_param_init=2),
    "debug_activation_memory": says(True, r"layers\.1\.hidden: activations [\d.]+ MiB"),
    "debug_tensor_parallel": same(True),
    "compile_all": without_effect(True),
    "layers_per_stage": memory(2.0),
    "stages_per_pipeline_stage": refused(2, "stages_per_pipeline_stage"),
    "num_weight_buffers": memory(2, batch__micro_batch_size=1),
    "num_grad_buffers": memory(2, batch__micro_batch_size=1),
    "zero_stage": memory(3, batch__micro_batch_size=1),
    "pipeline_delay": without_effect(1.0),
}.items()}
FIELDS |= {"model.distributed." + key: case for key, case in {
    "tensor_parallel": refused(2, "tensor_parallel"),
    "pipeline_parallel": refused(2, "pipeline_parallel"),
    "sequence_tensor_parallel": same(True, note="{key}: .*replaced by false"),
    "sequence_data_parallel": refused(2, "sequence_data_parallel"),
    "world_size": refused(2, "world_size"),
    "rank": refused(1, "rank"),
    "local_world_size": refused(2, "local_world_size"),
    "pipeline_first": same(True),
    "timeout": same(10.0),  # of one rank; of several: data_parallel_test.py
    "heartbeat_timeout": same(10.0),  # of one rank; of several: faults_test.py
    "seed": changes(1),
    "training_dtype": changes("bfloat16"),
    "optimization_dtype": refused("bfloat16", "optimization_dtype"),
    "dp_seed_shift": without_effect(1),
    "pp_seed_shift": without_effect(1),
    "pp_gen_seed_shift": changes(1, t__hidden_dropout=0.5),
    "pp_gen_init_seed_shift": changes(1),
    "tp_seed_shift": without_effect(1),
    "tp_gen_seed_shift": changes(1, t__hidden_dropout=0.5),
    "tp_gen_init_seed_shift": changes(1),
    "sample_seed_shift": without_effect(1),
    "train_seed_shift": changes(1, t__hidden_dropout=0.5),
    "valid_seed_shift": without_effect(1),
    "test_seed_shift": without_effect(1),
    "reproducible_init": without_effect(True),
}.items()}

# Where to start from.
FIELDS |= {"pretrained." + key: case for key, case in {
    "format": same("llama"),
    "path": refused("/nowhere", "pretrained.path"),
    "model_weights": same(False),
    "optimizer_state": same(True),
    "timeout": same(10.0),
    "load_config": same("none"),
}.items()}

# The loop. {data}, {other} and {text} are data sets.
DATA, OTHER = {"type": "memmap", "path": "{data}"}, {"type": "memmap", "path": "{other}"}
VALIDATION = {"data__datasets__Validation": OTHER, "training__validation__iterations": 1}
SAVING = {"training__checkpoint__interval": 1}
NO_EXPORT = r"(?s)export.*(not supported|expected)"
FIELDS |= {"training." + key: case for key, case in {
    "train_iters": changes(2),
    "test_iters": says(1, r"test @ iteration", data__datasets__Test=OTHER),
    "num_workers": same(0),
    "prefetch_factor": same(1),
    "timeout": same(10.0),  # of one rank; of several: data_parallel_test.py
    "recompute_activations": same(True),
    "validation.interval": says(1, r"validation @ iteration", **VALIDATION),
    "validation.offset": says(1, r"validation @ iteration +1/", training__validation__interval=2, **VALIDATION),
    "validation.iterations": says(1, r"validation @ iteration", data__datasets__Validation=OTHER, training__validation__interval=3),
    "logs.interval": silent(3, r"training @ iteration +2/"),
    "logs.offset": silent(1, r"training @ iteration +2/", training__logs__interval=2),
    "checkpoint.interval": leaves(1, "checkpoint/1"),
    "checkpoint.offset": leaves(1, "checkpoint/1", training__checkpoint__interval=2),
    "checkpoint.keep": says(1, r"Deleting checkpoint", **SAVING),
    "checkpoint.keep_every": leaves(1, "checkpoint/1", training__checkpoint__keep=1, **SAVING),
    "checkpoint.callback.script": refused(["true"], "callback.script"),
    "checkpoint.callback.environment": same({"A": "1"}),
    "export.interval": refused(1, NO_EXPORT),
    "export.offset": same(1),
    "export.format": same("llama"),
    "export.model_weights": same(False),
    "export.optimizer_state": same(False),
    "export.parameters_per_file": same(2 ** 21),
    "export.data_type": same("bfloat16"),
    "export.keep": same(1),
    "export.keep_every": same(1),
    "export.callback.script": refused(["true"], "callback.script"),
    "export.callback.environment": same({"A": "1"}),
    "shutdown.interval": changes(2, **SAVING),
    "shutdown.offset": changes(1, training__shutdown__interval=3, **SAVING),
    "checkpoint.seconds": leaves(1e-6, "checkpoint/1", training__checkpoint__interval=4),
    "logs.seconds": says(1e-9, r"training @ iteration +2/", training__logs__interval=4),
    "validation.seconds": says(1e-9, r"validation\S* @ iteration +1/", **VALIDATION),
    "wall_clock_limit": changes(0.001, **SAVING),
    "divergence.policy": says("skip", r"training @ iteration +4/", training__divergence__loss_threshold=1.0),
    "divergence.loss_threshold": says(1.0, r"(?i)diverge", code=4),
    # Weights that stay: a loss is then above the mean of those before it every other time.
    "divergence.loss_factor": says(1.0001, r"(?i)diverge", code=4, training__train_iters=16, optimizer__learning_rate__base=1e-9),
    "divergence.max_skipped": says(2, r"Stopped after iteration 1 since the next diverged", code=4, training__divergence__loss_threshold=1.0,
                                   training__divergence__policy="skip"),
    "wandb.alert.interval": without_effect(100),
    "wandb.alert.offset": without_effect(1),
    "wandb.alert.status_updates": without_effect(False),
    "wandb.group_name": without_effect("a"),
    "wandb.project_name": without_effect("a"),
    "wandb.entity_name": refused("a", "wandb.entity_name"),
}.items()}

FIELDS |= {"batch." + key: case for key, case in {
    "micro_batch_size": nearly(2),
    "depth_first_micro_batches": nearly(2),
    "breadth_first_micro_batches": nearly(2),
    "sequential_micro_batches": same(9),
    "batch_size": changes(2),
    "sequence_length": changes(16),
    "micro_sequence_length": refused(16, "micro_sequence_length"),
    "cross_document_attention": changes(False),
}.items()}

FIELDS |= {"schedule." + key: case for key, case in {
    "pipeline_overlap": without_effect(False),
    "data_overlap": without_effect(False),
    "data_batch_warn_time_ms": says(1e-6, r"Data loading took"),
    "throttle_cpu": without_effect(False),
    "throttle_cpu_rate": without_effect(2),
    "throttle_cpu_delay": without_effect(2),
    "debug_schedule": says(True, r"(?i)forward"),
    "debug_send_recv": without_effect(True),
    "profile_schedule": leaves(True, "runs/0/artifacts/0/schedule_profile*step_4*"),
    "estimate_critical_batch": refused(True, "estimate_critical_batch"),
    "skip_step": changes(True),
}.items()}

# Data.
LEGACY = {"data__datasets": {}, "data__path": ["{data}"]}
# Of the byte tokenizer with four ids more, the markers. Documents end with its end of text, 257.
FIM = {"data__datasets": {}, "data__path": ["{text}"], "data__tokenizer__path": "bytes", "b__vocab_size": 263, "data__fim__rate": 1.0}
FIELDS |= {"data." + key: case for key, case in {
    "datasets.Training": changes(OTHER),
    "datasets.Validation": says(OTHER, r"validation @ iteration", training__validation__interval=1, training__validation__iterations=1),
    "datasets.Test": says(OTHER, r"test @ iteration", training__test_iters=1),
    "sampling.seed": changes(1),
    "sampling.gpu": same(True, note="{key}: no effect here"),
    "sampling.use_loss_masking_spans": says(True, "holds no spans"),
    "sampling.shuffle": changes("disabled"),
    "sampling.maximum_document_length": changes(8, batch__cross_document_attention=False),
    "sampling.truncate_documents": changes(False),
    "data_sample_warn_time_ms": says(1e-9, r"took .* ms to load"),
    "multiprocessing_context": without_effect("fork"),
    "tokenizer.path": refused("/nowhere", "/nowhere", **FIM),
    "tokenizer.format": same("TokenizerFromFile"),
    "split": changes([1, 1, 1], **LEGACY),
    "format": rescues("random", data__datasets={}),
    "path": rescues(["{data}"], data__datasets={}),
}.items()}
FIELDS |= {"data.fim." + key: case for key, case in {
    "rate": changes(0.5, **FIM),
    "max_middle_len": changes(1, **FIM),
    "split_sample": changes("a", **FIM),
    "fragment_rate": changes(1.0, data__fim__split_sample="a", **FIM),
    "ignore_prefix": changes("a", **FIM),
    "spm_rate": changes(1.0, **FIM),
    "truncate_or_pad": changes(True, **FIM),
    "prefix_token": refused("<fim_suffix>", "prefix_token and suffix_token to be different tokens", **FIM),
    "middle_token": refused("<fim_prefix>", "prefix_token and middle_token to be different tokens", **FIM),
    "suffix_token": refused("<fim_middle>", "middle_token and suffix_token to be different tokens", **FIM),
    "pad_token": changes("<fim_prefix>", **FIM),
}.items()}

# Profiles of steps.
PROFILE = {"profiling__cpu": True, "profiling__trace": True}
FIELDS |= {"profiling." + key: case for key, case in {
    "cpu": leaves(True, "runs/0/artifacts/0/profile*", profiling__trace=True),
    "cuda": without_effect(True),
    "skip": leaves(0, "runs/0/artifacts/0/profile*step_2*", **PROFILE),
    "wait": silent(5, "Saving artifact", **PROFILE),
    "warmup": silent(5, "Saving artifact", **PROFILE),
    "cycles": leaves(2, "runs/0/artifacts/0/profile*step_4*", **PROFILE),
    "averages": leaves(True, "runs/0/artifacts/0/profile_averages*", profiling__cpu=True),
    "trace": leaves(True, "runs/0/artifacts/0/profile*", profiling__cpu=True),
    "export": leaves(True, "runs/0/artifacts/0/profile_chrome*", profiling__cpu=True),
    "table_width": same(200),
    "ranks": silent([1], "Saving artifact", **PROFILE),
    "log": silent(True, "Saving artifact", profiling__cpu=True, profiling__averages=True),
}.items()}

# The optimizer.
SCALED = {"model__distributed__training_dtype": "float16"}
DECAY = {"optimizer__learning_rate__decay_style": "power", "optimizer__learning_rate__decay_iterations": 10}
FIELDS |= {"optimizer." + key: case for key, case in {
    "learning_rate.base": changes(0.001),
    "learning_rate.decay_style": changes("cosine", optimizer__learning_rate__decay_iterations=10),
    "learning_rate.decay_iterations": changes(20, **DECAY),
    "learning_rate.decay_power": changes(2.0, **DECAY),
    "learning_rate.warmup_iterations": changes(3),
    "learning_rate.minimum": changes(0.001, **DECAY),
    "learning_rate.schedule": changes("linear,10,0,0.001;constant,-1,0.001"),
    "gradient_scaler.constant": says(8.0, r"loss scale: +8", **SCALED),
    "gradient_scaler.initial": says(128.0, r"loss scale: +128", **SCALED),
    "gradient_scaler.minimum": says(2.0 ** 30, r"loss scale: 1073741824", optimizer__gradient_scaler__initial=2.0 ** 30,
                                    optimizer__gradient_scaler__hysteresis=1, **SCALED),
    "gradient_scaler.window": says(1, r"loss scale: 131072", **SCALED),
    "gradient_scaler.hysteresis": says(1, r"Setting loss scale to 536870912", optimizer__gradient_scaler__initial=2.0 ** 30,
                                       training__train_iters=1, **SCALED),
    "weight_decay": changes(0.5),
    "beta_1": changes(0.5),
    "beta_2": changes(0.5),
    "epsilon": changes(1.0),
    "gradient_norm_clipping": changes(0.01),
    "default_learning_rate_scale": changes(0.5),
}.items()}


class Fields(HostTest):
    ITERATIONS = 4

    def setUp(self):
        super().setUp()
        self.data, self.other = self.folder / "data", self.folder / "other"
        write_memmap(self.data, sample_documents())
        write_memmap(self.other, sample_documents(seed=2))
        self.text = self.folder / "text"
        write_memmap(self.text, [[*f"a line of text, number {i}".encode(), 257] for i in range(60)])

    def expand(self, value):
        if isinstance(value, dict):
            return {key: self.expand(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.expand(inner) for inner in value]
        return re.sub(r"\{(data|other|text)\}", lambda m: str(getattr(self, m.group(1))), value) if isinstance(value, str) else value

    def run_with(self, name, values):
        experiment = self.folder / name
        more = overrides(self.expand({"run.experiment_dir": str(experiment), **values}))
        result = run_host(*self.tiny_arguments(iterations=self.ITERATIONS), *more)
        return Outcome(result, experiment)

    def test_the_table_has_every_key(self):
        schema = json.loads(self.assert_ok(run_host("schema", "--plugin", "gpt")).stdout)

        def keys(block, path=()):
            for name, inner in block.get("properties", {}).items():
                if inner.get("description", "").startswith("Old name of"):
                    continue
                if "properties" in inner:
                    yield from keys(inner, (*path, name))
                else:
                    yield ".".join((*path, name))
        known = set(keys(schema))
        self.assertEqual(sorted(known - set(FIELDS)), [], "keys without a line in the table")
        self.assertEqual(sorted(set(FIELDS) - known), [], "lines for keys that are no more")

    def test_every_key_does_what_the_table_says(self):
        chosen = {key: case for key, case in FIELDS.items() if re.search(os.environ.get("FASTLLM_FIELDS", ""), key)}
        plain, changed = {}, {}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number, (key, case) in enumerate(chosen.items()):
                also = json.dumps(case.also)
                if also not in plain:
                    plain[also] = pool.submit(self.run_with, f"plain-{number}", case.also)
                changed[key] = pool.submit(self.run_with, f"changed-{number}", {**case.also, key: case.value})
            for key, case in chosen.items():
                with self.subTest(key):
                    case.check(self, key, plain[json.dumps(case.also)].result(), changed[key].result())


if __name__ == "__main__":
    unittest.main()
