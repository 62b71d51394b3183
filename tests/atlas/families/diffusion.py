"""Networks of diffusers: denoisers, autoencoders and transformers, at the smallest widths."""

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderOobleck,
    AutoencoderTiny,
    ControlNetModel,
    DiTTransformer2DModel,
    FluxTransformer2DModel,
    PriorTransformer,
    SanaTransformer2DModel,
    SD3Transformer2DModel,
    Transformer2DModel,
    UNet1DModel,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from torch import nn

from atlas.architecture import architecture

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class ByKeyword(nn.Module):
    """Passes positional inputs by keyword, and gives tensors instead of a dataclass."""

    def __init__(self, network: nn.Module, *names: str, **constants: object) -> None:
        super().__init__()
        self.network = network
        self.names = names
        self.constants = constants

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.names, inputs, strict=True))
        outputs = self.network(**named, **self.constants, return_dict=False)
        return tuple(
            tensor
            for output in outputs
            for tensor in (output if isinstance(output, (list, tuple)) else [output])
        )


@architecture("diffusers/unet-2d")
def unet_2d() -> Built:
    network = UNet2DModel(
        sample_size=32,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    inputs = (torch.randn(1, 3, 32, 32), torch.tensor([17]))
    return ByKeyword(network, "sample", "timestep"), inputs


@architecture("diffusers/unet-2d-resnet-sampling")
def unet_2d_resnet_sampling() -> Built:
    network = UNet2DModel(
        sample_size=32,
        block_out_channels=(16, 24),
        layers_per_block=1,
        down_block_types=("ResnetDownsampleBlock2D", "ResnetDownsampleBlock2D"),
        up_block_types=("ResnetUpsampleBlock2D", "ResnetUpsampleBlock2D"),
        time_embedding_type="fourier",
        resnet_time_scale_shift="scale_shift",
        add_attention=False,
        norm_num_groups=8,
        num_class_embeds=5,
    )
    inputs = (torch.randn(1, 3, 32, 32), torch.tensor([17]), torch.tensor([3]))
    return ByKeyword(network, "sample", "timestep", "class_labels"), inputs


@architecture("diffusers/unet-2d-condition")
def unet_2d_condition() -> Built:
    network = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    inputs = (torch.randn(1, 4, 16, 16), torch.tensor([17]), torch.randn(1, 5, 24))
    return ByKeyword(network, "sample", "timestep", "encoder_hidden_states"), inputs


@architecture("diffusers/unet-1d")
def unet_1d() -> Built:
    network = UNet1DModel(
        sample_size=64,
        extra_in_channels=64,
        block_out_channels=(32, 32, 64),
    )
    return ByKeyword(network, "sample", "timestep"), (torch.randn(1, 2, 64), torch.tensor([17]))


@architecture("diffusers/unet-1d-value-function")
def unet_1d_value_function() -> Built:
    network = UNet1DModel(
        sample_size=32,
        in_channels=6,
        out_channels=6,
        time_embedding_type="positional",
        use_timestep_embedding=True,
        flip_sin_to_cos=False,
        freq_shift=1,
        down_block_types=("DownResnetBlock1D", "DownResnetBlock1D"),
        up_block_types=("UpResnetBlock1D",),
        mid_block_type="MidResTemporalBlock1D",
        out_block_type="OutConv1DBlock",
        block_out_channels=(16, 32),
        act_fn="mish",
    )
    return ByKeyword(network, "sample", "timestep"), (torch.randn(1, 6, 32), torch.tensor([17]))


@architecture("diffusers/controlnet")
def controlnet() -> Built:
    network = ControlNetModel(
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=4,
        norm_num_groups=8,
        conditioning_embedding_out_channels=(8, 16),
    )
    names = ("sample", "timestep", "encoder_hidden_states", "controlnet_cond")
    inputs = (
        torch.randn(1, 4, 16, 16),
        torch.tensor([17]),
        torch.randn(1, 5, 24),
        torch.randn(1, 3, 32, 32),
    )
    return ByKeyword(network, *names), inputs


@architecture("diffusers/autoencoder-kl")
def autoencoder_kl() -> Built:
    network = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
    )
    return ByKeyword(network, "sample"), (torch.randn(1, 3, 32, 32),)


@architecture("diffusers/autoencoder-tiny")
def autoencoder_tiny() -> Built:
    network = AutoencoderTiny(
        encoder_block_out_channels=(16, 16),
        decoder_block_out_channels=(16, 16),
        num_encoder_blocks=(1, 2),
        num_decoder_blocks=(2, 1),
    )
    return ByKeyword(network, "sample"), (torch.randn(1, 3, 32, 32),)


@architecture("diffusers/autoencoder-oobleck")
def autoencoder_oobleck() -> Built:
    network = AutoencoderOobleck(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        channel_multiples=[1, 2],
        decoder_channels=8,
        decoder_input_channels=4,
        audio_channels=2,
    )
    return ByKeyword(network, "sample"), (torch.randn(1, 2, 256),)


@architecture("diffusers/vq-model")
def vq_model() -> Built:
    network = VQModel(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        num_vq_embeddings=32,
        norm_num_groups=8,
    )
    return ByKeyword(network, "sample"), (torch.randn(1, 3, 32, 32),)


@architecture("diffusers/dit-transformer-2d")
def dit_transformer_2d() -> Built:
    network = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=2,
        sample_size=16,
        num_embeds_ada_norm=10,
    )
    inputs = (torch.randn(1, 4, 16, 16), torch.tensor([17]), torch.tensor([3]))
    return ByKeyword(network, "hidden_states", "timestep", "class_labels"), inputs


@architecture("diffusers/transformer-2d")
def transformer_2d() -> Built:
    network = Transformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=16,
        num_layers=2,
        norm_num_groups=8,
        cross_attention_dim=24,
    )
    inputs = (torch.randn(1, 16, 8, 8), torch.randn(1, 5, 24))
    return ByKeyword(network, "hidden_states", "encoder_hidden_states"), inputs


@architecture("diffusers/prior-transformer")
def prior_transformer() -> Built:
    network = PriorTransformer(
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=2,
        embedding_dim=24,
        num_embeddings=5,
    )
    names = ("hidden_states", "timestep", "proj_embedding", "encoder_hidden_states")
    inputs = (torch.randn(1, 24), torch.tensor([17]), torch.randn(1, 24), torch.randn(1, 5, 24))
    return ByKeyword(network, *names), inputs


@architecture("diffusers/sana-transformer")
def sana_transformer() -> Built:
    network = SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=2,
        num_cross_attention_heads=2,
        cross_attention_head_dim=16,
        cross_attention_dim=32,
        caption_channels=24,
        sample_size=8,
    )
    names = ("hidden_states", "encoder_hidden_states", "timestep")
    inputs = (torch.randn(1, 4, 8, 8), torch.randn(1, 5, 24), torch.tensor([17]))
    return ByKeyword(network, *names), inputs


@architecture("diffusers/sd3-transformer")
def sd3_transformer() -> Built:
    network = SD3Transformer2DModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        caption_projection_dim=32,
        pooled_projection_dim=20,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
    )
    names = ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep")
    inputs = (
        torch.randn(1, 4, 16, 16),
        torch.randn(1, 5, 24),
        torch.randn(1, 20),
        torch.tensor([17]),
    )
    return ByKeyword(network, *names), inputs


@architecture("diffusers/flux-transformer")
def flux_transformer() -> Built:
    network = FluxTransformer2DModel(
        in_channels=8,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        pooled_projection_dim=20,
        axes_dims_rope=(4, 6, 6),
    )
    names = (
        "hidden_states",
        "encoder_hidden_states",
        "pooled_projections",
        "timestep",
        "img_ids",
        "txt_ids",
    )
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0))
    inputs = (torch.randn(1, 16, 8), torch.randn(1, 5, 24), torch.randn(1, 20), torch.tensor([0.3]))
    return ByKeyword(network, *names), (*inputs, places, torch.zeros(5, 3))
