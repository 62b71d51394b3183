"""Networks of MONAI for medical images, with few channels, on images and small volumes."""

import torch
from monai.networks import nets
from monai.networks.nets.restormer import Restormer
from monai.networks.nets.vnet import DownTransition, InputTransition, OutputTransition, UpTransition
from torch import nn

from atlas.architecture import architecture

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class OnlyOutput(nn.Module):
    """The first output of a network whose others are lists."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x)[0]


def on_image(network: nn.Module, channels: int = 1, size: int = 32) -> Built:
    return network, (torch.randn(1, channels, size, size),)


def on_volume(network: nn.Module, size: int = 32) -> Built:
    return network, (torch.randn(1, 1, size, size, size),)


@architecture("monai/unet")
def unet() -> Built:
    return on_image(nets.UNet(2, 1, 3, channels=(8, 16, 32), strides=(2, 2), num_res_units=2))


@architecture("monai/unet-3d")
def unet_3d() -> Built:
    return on_volume(nets.UNet(3, 1, 3, channels=(4, 8, 16), strides=(2, 2), norm="batch"), 16)


@architecture("monai/basic-unet")
def basic_unet() -> Built:
    return on_image(nets.BasicUNet(2, 1, 3, features=(8, 8, 16, 16, 32, 8)))


@architecture("monai/basic-unet-nontrainable")
def basic_unet_nontrainable() -> Built:
    features = (8, 8, 16, 16, 32, 8)
    return on_image(nets.BasicUNet(2, 1, 3, features, upsample="nontrainable", norm="batch"))


@architecture("monai/basic-unet-plus-plus")
def basic_unet_plus_plus() -> Built:
    return on_image(OnlyOutput(nets.BasicUNetPlusPlus(2, 1, 3, features=(8, 8, 16, 16, 32, 8))))


@architecture("monai/unetr")
def unetr() -> Built:
    network = nets.UNETR(
        1, 3, img_size=64, feature_size=4, hidden_size=48, mlp_dim=64, num_heads=4, spatial_dims=2
    )
    return on_image(network, size=64)


class NarrowVNet(nn.Module):
    """Two levels of a V-Net from the package's blocks; the widths of its own class are fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.start = InputTransition(3, 1, 4, "elu")
        self.down_8 = DownTransition(3, 4, 1, "elu")
        self.down_16 = DownTransition(3, 8, 2, "elu")
        self.up_16 = UpTransition(3, 16, 16, 2, "elu")
        self.up_8 = UpTransition(3, 16, 8, 1, "elu")
        self.end = OutputTransition(3, 8, 2, "elu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        full = self.start(x)
        half = self.down_8(full)
        return self.end(self.up_8(self.up_16(self.down_16(half), half), full))


@architecture("monai/vnet")
def vnet() -> Built:
    return on_volume(NarrowVNet(), 16)


@architecture("monai/attention-unet")
def attention_unet() -> Built:
    return on_image(nets.AttentionUnet(2, 1, 3, channels=(8, 16, 32), strides=(2, 2)))


@architecture("monai/densenet121")
def densenet() -> Built:
    return on_image(
        nets.DenseNet(2, 1, 5, init_features=8, growth_rate=4, block_config=(6, 12, 24, 16))
    )


@architecture("monai/autoencoder")
def autoencoder() -> Built:
    return on_image(
        nets.AutoEncoder(
            2,
            1,
            1,
            channels=(8, 16),
            strides=(2, 2),
            inter_channels=[16, 16],
            inter_dilations=[1, 2],
        )
    )


@architecture("monai/resnet10")
def resnet() -> Built:
    widths = [8, 12, 16, 24]
    return on_volume(
        nets.ResNet("basic", [1, 1, 1, 1], widths, n_input_channels=1, num_classes=5), 24
    )


@architecture("monai/senet")
def senet() -> Built:
    # The layers' widths are fixed multiples of 64, so that two stages of one block remain.
    network = nets.SENet(
        2,
        1,
        "se_resnet_bottleneck",
        [1, 1, 1, 1],
        groups=1,
        reduction=16,
        dropout_prob=None,
        inplanes=16,
        input_3x3=False,
        num_classes=5,
    )
    network.layer3, network.layer4 = nn.Identity(), nn.Identity()
    network.last_linear = nn.Linear(512, 5)
    return on_image(network)


@architecture("monai/dynunet")
def dynunet() -> Built:
    return on_image(
        nets.DynUNet(
            2,
            1,
            3,
            kernel_size=[3, 3, 3, 3],
            strides=[1, 2, 2, 2],
            upsample_kernel_size=[2, 2, 2],
            filters=[8, 16, 24, 32],
            res_block=True,
        )
    )


@architecture("monai/highresnet")
def highresnet() -> Built:
    layers = [
        {"name": "conv_0", "n_features": 8, "kernel_size": 3},
        {"name": "res_1", "n_features": 8, "kernels": (3, 3), "repeat": 2},
        {"name": "res_2", "n_features": 12, "kernels": (3, 3), "repeat": 2},
        {"name": "res_3", "n_features": 16, "kernels": (3, 3), "repeat": 2},
        {"name": "conv_1", "n_features": 16, "kernel_size": 1},
        {"name": "conv_2", "kernel_size": 1},
    ]
    return on_volume(nets.HighResNet(3, 1, 3, layer_params=layers), 16)


@architecture("monai/vit")
def vit() -> Built:
    network = nets.ViT(
        1,
        32,
        8,
        32,
        64,
        num_layers=2,
        num_heads=4,
        spatial_dims=2,
        classification=True,
        num_classes=5,
    )
    return on_image(OnlyOutput(network))


@architecture("monai/efficientnet")
def efficientnet() -> Built:
    blocks = [
        "r1_k3_s11_e1_i32_o8_se0.25",
        "r2_k3_s22_e6_i8_o12_se0.25",
        "r1_k5_s22_e6_i12_o16_se0.25",
    ]
    return on_image(
        nets.EfficientNet(blocks, 2, 1, num_classes=5, width_coefficient=1.0, image_size=32)
    )


@architecture("monai/mednext")
def mednext() -> Built:
    return on_image(
        nets.MedNeXt(
            2,
            8,
            1,
            3,
            kernel_size=5,
            use_residual_connection=True,
            blocks_down=(1, 1, 1, 1),
            blocks_bottleneck=1,
            blocks_up=(1, 1, 1, 1),
        )
    )


@architecture("monai/restormer")
def restormer() -> Built:
    return on_image(
        Restormer(
            2, 1, 1, dim=8, num_blocks=(1, 1, 1, 1), heads=(1, 2, 2, 4), num_refinement_blocks=1
        )
    )


@architecture("monai/swin-unetr")
def swin_unetr() -> Built:
    return on_image(
        nets.SwinUNETR(
            1,
            3,
            depths=(2, 2, 1, 1),
            num_heads=(2, 2, 4, 4),
            window_size=4,
            feature_size=12,
            spatial_dims=2,
        ),
        size=64,
    )


@architecture("monai/segresnet")
def segresnet() -> Built:
    return on_image(
        nets.SegResNet(
            2,
            init_filters=8,
            in_channels=1,
            out_channels=3,
            blocks_down=(1, 2, 2),
            blocks_up=(1, 1),
        )
    )
