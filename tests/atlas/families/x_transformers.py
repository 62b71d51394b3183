"""Transformers of x-transformers: one for each choice of positions, norms, gates and heads."""

import torch
from torch import nn
from x_transformers import (
    AttentionPool,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)
from x_transformers.continuous import ContinuousTransformerWrapper

from atlas.architecture import architecture

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
SMALL = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8, "verbose": False}


def language_model(layers: nn.Module, **options: object) -> Built:
    """Logits of tokens."""
    network = TransformerWrapper(num_tokens=50, max_seq_len=24, attn_layers=layers, **options)
    return network, (torch.randint(0, 50, (2, 12)),)


# What each adds to a plain decoder.
DECODERS = {
    "decoder": {},
    "rotary": {"rotary_pos_emb": True},
    "xpos": {"rotary_xpos": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
    "relative-position-bias": {"rel_pos_bias": True},
    "dynamic-position-bias": {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": True},
    "swiglu": {"ff_glu": True, "ff_swish": True, "ff_no_bias": True},
    "relu-squared": {"ff_relu_squared": True, "ff_post_act_ln": True},
    "rmsnorm": {"use_rmsnorm": True},
    "scalenorm": {"use_scalenorm": True},
    "dynamic-tanh": {"use_dynamic_tanh": True},
    "qk-norm": {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True},
    "gated-residual": {"gate_residual": True},
    "scaled-residual": {"scale_residual": True},
    "sandwich-norm": {"sandwich_norm": True},
    "post-norm": {"pre_norm": False},
    "one-kv-head": {"attn_one_kv_head": True},
    "grouped-queries": {"attn_kv_heads": 2, "rotary_pos_emb": True},
    "talking-heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "gated-values": {"attn_gate_values": True, "attn_gate_value_heads": True},
    "residual-attention": {"residual_attn": True},
    "value-residual": {"add_value_residual": True, "depth": 3},
    "shifted-tokens": {"shift_tokens": 1},
    "macaron": {"macaron": True},
    "tied-layers": {"weight_tie_layers": True, "depth": 3},
    "sparse-top-k": {"attn_sparse_topk": 4},
    "flash": {"attn_flash": True, "rotary_pos_emb": True, "use_rmsnorm": True},
    "hyper-connections": {"num_residual_streams": 2},
}

for choice, options in DECODERS.items():

    @architecture(f"x-transformers/{choice}")
    def decoder(options: dict[str, object] = options) -> Built:
        return language_model(Decoder(**SMALL | options))


@architecture("x-transformers/encoder")
def encoder() -> Built:
    return language_model(Encoder(**SMALL))


@architecture("x-transformers/memory-tokens")
def memory_tokens() -> Built:
    return language_model(Encoder(**SMALL, attn_num_mem_kv=3), num_memory_tokens=5)


@architecture("x-transformers/class-token")
def class_token() -> Built:
    return language_model(Encoder(**SMALL), use_cls_token=True, logits_dim=5)


@architecture("x-transformers/tied-embedding")
def tied_embedding() -> Built:
    return language_model(Decoder(**SMALL), tie_embedding=True, post_emb_norm=True)


@architecture("x-transformers/continuous")
def continuous() -> Built:
    network = ContinuousTransformerWrapper(
        dim_in=10, dim_out=6, max_seq_len=24, attn_layers=Encoder(**SMALL, use_rmsnorm=True)
    )
    return network, (torch.randn(2, 12, 10),)


@architecture("x-transformers/vit-wrapper")
def vit_wrapper() -> Built:
    network = ViTransformerWrapper(
        image_size=32,
        patch_size=8,
        num_classes=7,
        num_register_tokens=2,
        attn_layers=Encoder(**SMALL),
    )
    return network, (torch.randn(2, 3, 32, 32),)


class Captioner(nn.Module):
    """A decoder that attends to features of an image."""

    def __init__(self) -> None:
        super().__init__()
        image = Encoder(**SMALL)
        self.image = ViTransformerWrapper(image_size=32, patch_size=8, attn_layers=image)
        decoder = Decoder(**SMALL, cross_attend=True)
        self.text = TransformerWrapper(num_tokens=50, max_seq_len=24, attn_layers=decoder)

    def forward(self, image: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.text(tokens, context=self.image(image, return_embeddings=True))


@architecture("x-transformers/image-captioner")
def image_captioner() -> Built:
    return Captioner(), (torch.randn(2, 3, 32, 32), torch.randint(0, 50, (2, 9)))


class CrossAttending(nn.Module):
    """Layers that attend to a context and nothing else, then pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = CrossAttender(**SMALL)
        self.pool = AttentionPool(32, num_pooled_tokens=3, heads=4, dim_head=8)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return self.pool(self.layers(x, context=context))


@architecture("x-transformers/cross-attender")
def cross_attender() -> Built:
    return CrossAttending(), (torch.randn(2, 7, 32), torch.randn(2, 9, 32))


class Translator(nn.Module):
    """Logits of an encoder and a decoder; the package's own forward gives a loss."""

    def __init__(self) -> None:
        super().__init__()
        layers = {"depth": 2, "heads": 4, "max_seq_len": 24, "attn_dim_head": 8}
        self.network = XTransformer(
            dim=32,
            enc_num_tokens=40,
            dec_num_tokens=50,
            **{f"enc_{key}": value for key, value in layers.items()},
            **{f"dec_{key}": value for key, value in layers.items()},
        )

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        encoded = self.network.encoder(source, return_embeddings=True)
        return self.network.decoder.net(target, context=encoded)


@architecture("x-transformers/encoder-decoder")
def encoder_decoder() -> Built:
    return Translator(), (torch.randint(0, 40, (2, 11)), torch.randint(0, 50, (2, 9)))
