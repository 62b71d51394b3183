"""Text models of `transformers`: encoders, decoders, mixtures of experts, encoder-decoders.

Each is a row of a table: the class of the model and what its configuration changes from `SIZES`.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from atlas.architecture import architecture

VOCABULARY = 99
BATCH = 2
LENGTH = 10

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Arguments of nearly every configuration, by the names that all of them understand."""

EVERYWHERE = {"initializer_range": 0.15, "init_std": 0.15, "num_labels": 7}
"""Arguments of all. At the usual range of 0.02, scores of attention in 32 channels are so small
that softmax is uniform."""


@dataclass(frozen=True)
class TransformersModel:
    """A model of `transformers` with the arguments of its configuration."""

    name: str
    """The architecture, without the package."""
    model: str
    """The class of `transformers`."""
    config: dict[str, Any] = field(default_factory=dict)
    attention: str = "sdpa"
    """How attention is computed, where the model gives a choice: users have both."""
    outputs: tuple[str, ...] = ("last_hidden_state",)
    """Fields of the result to return."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Further arguments of every call, other than tensors."""
    rejects: tuple[str, ...] = ()
    """Usual sizes that the configuration refuses."""
    mask: torch.dtype = torch.int64
    """Type of the mask; models that subtract it from 1.0 are exported only with floats."""

    def build(self, sizes: dict[str, Any]) -> nn.Module:
        """Build it with random weights."""
        # Here, since the import takes seconds and the names should not wait for it.
        import transformers

        transformers.logging.set_verbosity_error()
        model_class = getattr(transformers, self.model)
        config_class = model_class.config_class
        names = config_class.attribute_map
        usual = {
            names.get(name, name): value
            for name, value in (sizes | EVERYWHERE).items()
            if name not in self.rejects
        }
        config = config_class(**usual | self.config)
        config.use_cache = False
        # Experts are computed by batched products: the loop over those in use cannot be exported.
        experts = {}
        if model_class._can_set_experts_implementation():
            experts["experts_implementation"] = "batched_mm"
        attention = self.attention if model_class._supports_sdpa else "eager"
        return model_class._from_config(config, attn_implementation=attention, **experts)


class Caller(nn.Module):
    """Calls a model and returns some fields of its result."""

    def __init__(self, row: TransformersModel, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._outputs = row.outputs
        self._fixed = row.fixed

    def call(self, **inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        result = self.model(**inputs, **self._fixed)
        fields = [result[name] for name in self._outputs]
        tensors = [t for f in fields for t in (f if isinstance(f, tuple) else (f,))]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


class TextCaller(Caller):
    def forward(self, input_ids, attention_mask):
        return self.call(input_ids=input_ids, attention_mask=attention_mask)


class EncoderDecoderCaller(Caller):
    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return self.call(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
        )


def token_ids(length: int = LENGTH) -> torch.Tensor:
    """Random tokens, none of them special."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def build_text(row: TransformersModel) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Build a model of one sequence of tokens."""
    ids = token_ids()
    return TextCaller(row, row.build(SIZES)), (ids, torch.ones_like(ids, dtype=row.mask))


def build_encoder_decoder(row: TransformersModel) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Build a model that reads one sequence and continues another."""
    ids = token_ids()
    inputs = (ids, torch.ones_like(ids, dtype=row.mask), token_ids(length=7))
    return EncoderDecoderCaller(row, row.build(SIZES | ENCODER_DECODER_SIZES)), inputs


Row = TransformersModel
LOGITS = ("logits",)
GROUPED_QUERIES = {"num_key_value_heads": 2}

ENCODERS = (
    Row("bert", "BertForMaskedLM", attention="eager", outputs=LOGITS),
    Row(
        "minilm",
        "BertModel",
        {"num_hidden_layers": 3, "hidden_size": 24, "intermediate_size": 96},
        outputs=("last_hidden_state", "pooler_output"),
    ),
    Row("bert-sequence-classification", "BertForSequenceClassification", outputs=LOGITS),
    Row("roberta", "RobertaForMaskedLM", outputs=LOGITS),
    Row("xlm-roberta-question-answering", "XLMRobertaForQuestionAnswering",
        {"num_labels": 2}, attention="eager", outputs=("start_logits", "end_logits")),
    Row("distilbert", "DistilBertForMaskedLM", {"hidden_dim": 48}, outputs=LOGITS),
    Row("albert", "AlbertForMaskedLM", {"embedding_size": 16}, outputs=LOGITS),
    Row("mpnet", "MPNetForMaskedLM", attention="eager", outputs=LOGITS),
    Row("electra", "ElectraForPreTraining", {"embedding_size": 16}, outputs=LOGITS),
    Row("deberta", "DebertaModel",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, attention="eager"),
    Row("deberta-v2", "DebertaV2Model",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8,
         "share_att_key": True, "norm_rel_ebd": "layer_norm"},
        attention="eager"),
    Row("modernbert", "ModernBertForMaskedLM", {"local_attention": 4, "num_hidden_layers": 4,
        "cls_token_id": 1, "sep_token_id": 2}, outputs=LOGITS),
    Row("funnel", "FunnelModel", {"block_sizes": [1, 1], "num_decoder_layers": 1, "n_head": 4,
        "d_model": 32, "d_head": 8, "d_inner": 48}, attention="eager",
        rejects=("num_hidden_layers",)),
    Row("xlnet", "XLNetModel", {"d_inner": 48}, attention="eager",
        rejects=("max_position_embeddings",), mask=torch.float32),
    Row("xlm", "XLMModel", attention="eager"),
    Row("roformer", "RoFormerForMaskedLM", {"embedding_size": 32}, attention="eager",
        outputs=LOGITS),
    Row("convbert", "ConvBertModel", {"embedding_size": 32, "head_ratio": 2,
        "conv_kernel_size": 3}, attention="eager"),
    Row("squeezebert", "SqueezeBertModel", {"embedding_size": 32, "q_groups": 2, "k_groups": 2,
        "v_groups": 2, "post_attention_groups": 1, "intermediate_groups": 2, "output_groups": 2},
        attention="eager"),
    Row("mobilebert", "MobileBertModel", {"embedding_size": 16, "intra_bottleneck_size": 16,
        "true_hidden_size": 16}, attention="eager"),
    Row("fnet", "FNetModel", attention="eager"),
    Row("rembert", "RemBertModel", {"input_embedding_size": 16}, attention="eager"),
    Row("esm", "EsmForMaskedLM", {"mask_token_id": 3, "position_embedding_type": "rotary",
        "token_dropout": True}, outputs=LOGITS),
    Row("nomic-bert", "NomicBertModel"),
    Row("eurobert", "EuroBertModel", GROUPED_QUERIES, attention="eager"),
    Row("megatron-bert", "MegatronBertModel", attention="eager"),
    Row("ibert", "IBertModel", attention="eager"),
    Row("canine", "CanineModel", {"local_transformer_stride": 4, "downsampling_rate": 2,
        "upsampling_kernel_size": 2, "num_hash_functions": 4, "num_hash_buckets": 50},
        attention="eager"),
)  # fmt: skip

DECODERS = (
    Row("gpt2", "GPT2LMHeadModel", attention="eager", outputs=LOGITS),
    Row("gpt-neo", "GPTNeoForCausalLM", {"attention_types": [[["global", "local"], 1]],
        "window_size": 4}, attention="eager", outputs=LOGITS),
    Row("gptj", "GPTJForCausalLM", {"rotary_dim": 4}, attention="eager", outputs=LOGITS),
    Row("gpt-neox", "GPTNeoXForCausalLM", outputs=LOGITS),
    Row("gpt-bigcode", "GPTBigCodeForCausalLM", outputs=LOGITS),
    Row("codegen", "CodeGenForCausalLM", {"rotary_dim": 4}, attention="eager", outputs=LOGITS),
    Row("opt", "OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 16}, outputs=LOGITS),
    Row("bloom", "BloomForCausalLM", attention="eager", outputs=LOGITS),
    Row("mpt", "MptForCausalLM", {"expansion_ratio": 2}, attention="eager", outputs=LOGITS),
    Row("falcon", "FalconForCausalLM", outputs=LOGITS),
    Row("ctrl", "CTRLLMHeadModel", {"dff": 48}, attention="eager", outputs=LOGITS),
    Row("openai-gpt", "OpenAIGPTLMHeadModel", attention="eager", outputs=LOGITS),
    Row("biogpt", "BioGptForCausalLM", outputs=LOGITS),
    Row("xglm", "XGLMForCausalLM", {"ffn_dim": 48}, attention="eager", outputs=LOGITS),
    Row("llama", "LlamaForCausalLM", GROUPED_QUERIES, outputs=LOGITS),
    Row("llama-eager", "LlamaForCausalLM", GROUPED_QUERIES | {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
        attention="eager", outputs=LOGITS),
    Row("mistral", "MistralForCausalLM", GROUPED_QUERIES | {"sliding_window": 4},
        attention="eager", outputs=LOGITS),
    Row("qwen2", "Qwen2ForCausalLM", GROUPED_QUERIES, outputs=LOGITS),
    Row("qwen3", "Qwen3ForCausalLM", GROUPED_QUERIES | {"head_dim": 16}, attention="eager",
        outputs=LOGITS),
    Row("gemma", "GemmaForCausalLM", {"num_key_value_heads": 1, "head_dim": 8}, outputs=LOGITS),
    Row("gemma2", "Gemma2ForCausalLM", GROUPED_QUERIES | {"head_dim": 8, "sliding_window": 4},
        attention="eager", outputs=LOGITS),
    Row("gemma3", "Gemma3ForCausalLM", GROUPED_QUERIES | {"head_dim": 8, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"]}, outputs=LOGITS),
    Row("phi", "PhiForCausalLM", attention="eager", outputs=LOGITS),
    Row("phi3", "Phi3ForCausalLM", GROUPED_QUERIES, outputs=LOGITS),
    Row("stablelm", "StableLmForCausalLM", GROUPED_QUERIES | {"use_qkv_bias": True},
        outputs=LOGITS),
    Row("olmo", "OlmoForCausalLM", {"clip_qkv": 0.5}, attention="eager", outputs=LOGITS),
    Row("olmo2", "Olmo2ForCausalLM", GROUPED_QUERIES, outputs=LOGITS),
    Row("cohere", "CohereForCausalLM", GROUPED_QUERIES | {"use_qk_norm": True},
        attention="eager", outputs=LOGITS),
    Row("cohere2", "Cohere2ForCausalLM", GROUPED_QUERIES | {"sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"]}, outputs=LOGITS),
    Row("granite", "GraniteForCausalLM", GROUPED_QUERIES | {"embedding_multiplier": 3.0,
        "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 2.0},
        outputs=LOGITS),
    Row("starcoder2", "Starcoder2ForCausalLM", GROUPED_QUERIES | {"sliding_window": 4},
        attention="eager", outputs=LOGITS),
    Row("glm4", "Glm4ForCausalLM", GROUPED_QUERIES | {"head_dim": 8}, outputs=LOGITS),
    Row("nemotron", "NemotronForCausalLM", GROUPED_QUERIES, attention="eager", outputs=LOGITS),
    Row("persimmon", "PersimmonForCausalLM", attention="eager", outputs=LOGITS),
    Row("smollm3", "SmolLM3ForCausalLM", GROUPED_QUERIES | {"no_rope_layers": [1, 0]},
        outputs=LOGITS),
    Row("diffllama", "DiffLlamaForCausalLM", GROUPED_QUERIES, attention="eager",
        outputs=LOGITS),
    Row("bitnet", "BitNetForCausalLM", GROUPED_QUERIES, outputs=LOGITS),
    Row("apertus", "ApertusForCausalLM", GROUPED_QUERIES, attention="eager", outputs=LOGITS),
    Row("lfm2", "Lfm2ForCausalLM", GROUPED_QUERIES | {"layer_types": ["conv", "full_attention"],
        "block_multiple_of": 8}, attention="eager", outputs=LOGITS),
    Row("recurrent-gemma", "RecurrentGemmaForCausalLM", {"num_hidden_layers": 3,
        "lru_width": 32, "attention_window_size": 4, "num_key_value_heads": 1},
        attention="eager", outputs=LOGITS),
    Row("mixtral", "MixtralForCausalLM", GROUPED_QUERIES | {"num_local_experts": 4},
        outputs=LOGITS),
    Row("qwen2-moe", "Qwen2MoeForCausalLM", GROUPED_QUERIES | {"num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 32}, outputs=LOGITS),
    Row("olmoe", "OlmoeForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2},
        attention="eager", outputs=LOGITS),
    Row("granitemoe", "GraniteMoeForCausalLM", {"num_local_experts": 4,
        "num_experts_per_tok": 2}, outputs=LOGITS),
    Row("gpt-oss", "GptOssForCausalLM", GROUPED_QUERIES | {"num_local_experts": 4, "head_dim": 8,
        "num_experts_per_tok": 2, "sliding_window": 4}, attention="eager", outputs=LOGITS),
    Row("deepseek-v3", "DeepseekV3ForCausalLM", {"num_key_value_heads": 4,
        "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "q_lora_rank": 16, "kv_lora_rank": 16,
        "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "first_k_dense_replace": 1}, attention="eager", outputs=LOGITS),
)  # fmt: skip

ENCODER_DECODER_SIZES = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
T5_SIZES = {"d_ff": 48, "d_kv": 8, "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 8}  # fmt: skip

ENCODER_DECODERS = (
    Row("t5", "T5ForConditionalGeneration", T5_SIZES, attention="eager", outputs=LOGITS),
    Row("mt5", "MT5ForConditionalGeneration", T5_SIZES | {"feed_forward_proj": "gated-gelu",
        "is_gated_act": True, "dense_act_fn": "gelu_new"}, attention="eager", outputs=LOGITS),
    Row("umt5", "UMT5ForConditionalGeneration", T5_SIZES, attention="eager", outputs=LOGITS),
    Row("longt5", "LongT5ForConditionalGeneration", T5_SIZES | {"local_radius": 3},
        attention="eager", outputs=LOGITS),
    Row("bart", "BartForConditionalGeneration", outputs=LOGITS),
    Row("mbart", "MBartForConditionalGeneration", attention="eager", outputs=LOGITS),
    Row("pegasus", "PegasusForConditionalGeneration", outputs=LOGITS),
    Row("marian", "MarianMTModel", {"decoder_vocab_size": VOCABULARY}, attention="eager",
        outputs=LOGITS),
    Row("m2m-100", "M2M100ForConditionalGeneration", outputs=LOGITS),
    Row("blenderbot-small", "BlenderbotSmallForConditionalGeneration", attention="eager",
        outputs=LOGITS),
    Row("prophetnet", "ProphetNetForConditionalGeneration", {"num_encoder_layers": 2,
        "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4, "ngram": 2}, attention="eager", outputs=LOGITS,
        rejects=("num_hidden_layers", "encoder_layers", "decoder_layers"),
        mask=torch.float32),
)  # fmt: skip

for _rows, _build in (
    (ENCODERS + DECODERS, build_text),
    (ENCODER_DECODERS, build_encoder_decoder),
):
    for _row in _rows:
        architecture(f"transformers/{_row.name}")(functools.partial(_build, _row))
