"""Networks that read a whole sequence of values at once and answer once: encoders and recurrent layers both ways.

Shapes: B sequences, T places, F features, D width, O numbers of an answer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlseq.nets.attention import Sinusoids, encode, encoder_layer, initialise, seen_places
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput
from rlseq.nets.readers import ValuesReader
from rlseq.nets.recurrent import recurrent_layers, run_recurrent
from rlseq.nets.sizes import Dimensions, dimensions
from rlseq.sequence import SequenceState, Signature

State = tuple[Tensor, ...]


class EncoderCore(nn.Module):
    """The layers of `nn.TransformerEncoder` with their norm first, and sinusoidal positions.

    Args:
        dims: its dimensions.
        options: everything else.
    """

    def __init__(self, dims: Dimensions, options: SequenceNetOptions) -> None:
        super().__init__()
        self.positions, self.qk_norm = Sinusoids(dims.width), options.qk_norm is True
        layer = encoder_layer(dims, options)
        self.encoder = nn.TransformerEncoder(layer, dims.layers, enable_nested_tensor=False)
        initialise(self.encoder, mimetic=options.mimetic)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x_BTD: Tensor, given_BT: Tensor) -> Tensor:
        places_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        x_BTD = self.dropout(x_BTD + self.positions(places_T))
        return encode(self.encoder, x_BTD, seen_places(given_BT), qk_norm=self.qk_norm)


class BothWaysCore(nn.Module):
    """LSTM or GRU layers, in each of which one half of the units reads forwards and the other backwards.

    What `nn.LSTM(bidirectional=True)` computes of packed sequences. Here the second half reads each row turned round
    within its real length instead, so that padding is never before a real place, and the graph has neither packing nor
    lengths that differ. It is no slower: a training step of two layers, 128 wide, on 32 rows of 50 to 100 places took
    0.10 to 0.14 s (LSTM) and 0.10 to 0.12 s (GRU) on one core, packed 0.21 and 0.12 to 0.16 s.

    Args:
        dims: its dimensions.
        options: everything else.
    """

    def __init__(self, dims: Dimensions, options: SequenceNetOptions) -> None:
        super().__init__()
        half = dims.width // 2
        self.forwards = nn.ModuleList(recurrent_layers(options.core, dims.width, half, 1) for _ in range(dims.layers))
        self.backwards = nn.ModuleList(recurrent_layers(options.core, dims.width, half, 1) for _ in range(dims.layers))
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x_BTD: Tensor, given_BT: Tensor) -> Tensor:
        place_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        length_B1 = given_BT.long().sum(1, keepdim=True)
        turned_BT = torch.where(place_T < length_B1, length_B1 - 1 - place_T, place_T)
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            ahead = run_recurrent(forwards, x_BTD, None)[0]
            back = _taken(run_recurrent(backwards, _taken(x_BTD, turned_BT), None)[0], turned_BT)
            x_BTD = self.dropout(torch.cat((ahead, back), -1))
        return x_BTD


def _taken(x_BTD: Tensor, index_BT: Tensor) -> Tensor:
    """Places of each row in another order."""
    return x_BTD.gather(1, index_BT[..., None].expand(-1, -1, x_BTD.shape[-1]))


# name -> core class: (dimensions, options) -> module with the forward of EncoderCore
CORES: dict[str, Callable[[Dimensions, SequenceNetOptions], EncoderCore | BothWaysCore]] = {
    "encoder": EncoderCore,
    "lstm": BothWaysCore,
    "gru": BothWaysCore,
}


class ReadingNetwork(nn.Module):
    """One answer for each sequence: class logits, or the values that follow.

    Args:
        signature: of kind `classify` or `forecast`.
        options: kind and dimensions of the core.
        context: not used: neither core has a longest sequence.

    Raises:
        UsageError: dimensions that do not fit together.
    """

    one_pass = True
    window: int | None = None
    state_leaves: tuple[SequenceState, ...] = ()

    def __init__(self, signature: Signature, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        dims = dimensions(options)
        self.signature = signature
        self.reader = ValuesReader(signature, dims.width)
        self.core = CORES[options.core](dims, options)
        self.norm = nn.LayerNorm(dims.width, bias=False)
        self.head = nn.Linear(dims.width, signature.num_outputs, bias=False)
        nn.init.normal_(self.head.weight, std=0.02)

    @property
    def stacked(self) -> dict[str, int]:
        """Parameters that are several matrices, one above the other: name -> how many."""
        return {name: 3 for name, _ in self.named_parameters() if name.endswith(".in_proj_weight")}

    def initial_state(self, batch: int) -> State:
        """There is none."""
        return ()

    def forward(self, inputs: NetInput, state: State | None = None) -> tuple[Tensor, State]:
        """Answers `[B, 1, O]`, float32 (float64 in exact tests), and no state.

        A row without a real place is answered by zeros, or by the target's mean if it is forecast.

        Args:
            inputs: `x` holds raw values `[B, T, F]`; `mask` says which places are real; None: all.
        """
        (values_BTF,) = inputs.x
        given_BT = inputs.mask
        if given_BT is None:
            given_BT = torch.ones(values_BTF.shape[:2], dtype=torch.bool, device=values_BTF.device)
        x_BTD = self.norm(self.core(self.reader(values_BTF, given_BT), given_BT))
        length_B1 = given_BT.long().sum(1, keepdim=True)
        if self.signature.kind == "classify":
            weight_BT1 = (given_BT / length_B1.clamp(min=1)).to(x_BTD.dtype)[..., None]
            return _at_least_float32(self.head((x_BTD * weight_BT1).sum(1, keepdim=True))), ()
        last_B1 = (length_B1 - 1).clamp(min=0)
        any_B11 = (length_B1 > 0)[..., None]
        x_B1D, values_B1F = _taken(x_BTD, last_B1), _taken(values_BTF, last_B1)
        x_B1D = x_B1D * any_B11.to(x_B1D.dtype)
        values_B1F = torch.where(any_B11, values_B1F, self.reader.shift)
        return self.reader.in_raw_units(_at_least_float32(self.head(x_B1D)), values_B1F), ()


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
