"""Options of the network."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlseq.fields import Options


class NetOptions(Options, frozen=True, kw_only=True):
    """Encoder, core and head."""

    core: Annotated[Literal["mlp"], Meta(description="kind of network between encoder and head")] = "mlp"
    hidden: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(description="widths of the hidden layers, [] for a linear network")
    ] = (256, 256)
    activation: Annotated[
        Literal["relu", "tanh", "gelu", "silu", "elu"], Meta(description="activation after each hidden layer")
    ] = "relu"
