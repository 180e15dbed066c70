"""How much of what a GPU could do a training does (model FLOPs utilisation)."""

from __future__ import annotations

from torch import nn

from rlseq.nets.build import Network
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import num_parameters
from rlseq.nets.sizes import dimensions

# Dense products in bfloat16 or float16, multiplications and additions a second, by NVIDIA's data sheets.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "V100": 125e12, "T4": 65e12}


def peak_flops(device_name: str) -> float | None:
    """What a GPU could do at most in half precision; None for one that is not in the table."""
    return next((peak for name, peak in PEAKS.items() if name in device_name), None)


def training_flops(options: SequenceNetOptions, net: Network, context: int) -> float:
    """Operations of forward and backward for a token: 6 a weight, and 12 a layer, position and number of its width for
    attention (Chowdhery et al. 2022, arXiv 2204.02311, appendix B); an encoder-decoder has three attentions a layer."""
    d = dimensions(options)
    attentions = {"gpt": 1, "encoder": 1, "transformer": 3}.get(options.core, 0)
    looked_up = sum(module.weight.numel() for module in net.modules() if isinstance(module, nn.Embedding))
    return 6.0 * (num_parameters(net) - looked_up) + 12 * attentions * d.layers * d.width * context
