"""Which network a core and a task ask for, and what is refused."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rlseq.errors import UsageError
from rlseq.nets.build import NETWORKS, Network, sequence_network
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.reading import ReadingNetwork
from rlseq.nets.sequence import SequenceNetwork
from rlseq.nets.sizes import CORE_KINDS, SIZES
from rlseq.nets.translation import TranslationNetwork
from rlseq.sequence import Kind, Signature

VALUES: dict[str, Any] = {"features": ("a", "b", "c"), "shift": (1.0, 2.0, 3.0), "scale": (2.0, 0.5, 1.0)}
SIGNATURES: dict[Kind, Signature] = {
    "tokens": Signature(vocabulary=65),
    "translate": Signature(kind="translate", vocabulary=65, start=63, end=64),
    "classify": Signature(kind="classify", classes=("x", "y"), **VALUES),
    "forecast": Signature(kind="forecast", target=1, horizon=3, quantiles=(0.1, 0.5), **VALUES),
}
EVERY: list[tuple[Any, Kind, bool | None]] = [
    ("gpt", "tokens", None),
    ("gpt", "classify", None),
    ("gpt", "forecast", None),
    ("lstm", "tokens", None),
    ("lstm", "classify", None),
    ("lstm", "classify", False),
    ("lstm", "forecast", None),
    ("lstm", "forecast", True),
    ("gru", "tokens", False),
    ("gru", "classify", True),
    ("gru", "classify", False),
    ("gru", "forecast", None),
    ("gru", "forecast", True),
    ("encoder", "classify", None),
    ("encoder", "forecast", None),
    ("transformer", "translate", None),
]
every_network = pytest.mark.parametrize(("core", "kind", "bidirectional"), EVERY)


def built(core: Any, kind: Kind, bidirectional: bool | None = None, **options: Any) -> Network:
    chosen = SequenceNetOptions(**{"core": core, "size": "tiny", "bidirectional": bidirectional, **options})
    return sequence_network(SIGNATURES[kind], chosen, 32)


def test_every_core_has_a_network_sizes_and_kinds_of_task() -> None:
    assert list(NETWORKS) == list(SIZES) == list(CORE_KINDS)
    assert {(core, kind) for core, kind, _ in EVERY} == {(core, k) for core, kinds in CORE_KINDS.items() for k in kinds}
    assert {kind for kinds in CORE_KINDS.values() for kind in kinds} == set(get_args(Kind))


@every_network
def test_a_network_that_must_see_everything_reads_in_one_pass(core: str, kind: Kind, bidirectional: bool) -> None:
    net = built(core, kind, bidirectional)
    if core == "transformer":
        assert isinstance(net, TranslationNetwork)
    elif core == "encoder" or bidirectional or (kind == "classify" and bidirectional is None and core != "gpt"):
        assert isinstance(net, ReadingNetwork)
    else:
        assert isinstance(net, SequenceNetwork)
    assert net.one_pass == isinstance(net, ReadingNetwork) == (net.state_leaves == ())
    assert len(net.initial_state(2)) == len(net.state_leaves)


@every_network
def test_hidden_matrices_and_only_they_lie_in_the_core(core: str, kind: Kind, bidirectional: bool) -> None:
    net = built(core, kind, bidirectional)
    outside = {name for name, p in net.named_parameters() if p.ndim == 2 and not name.startswith("core.")}
    assert outside == {"head.weight", "embedding.weight" if kind in ("tokens", "translate") else "reader.linear.weight"}
    names = {name for name, parameter in net.named_parameters() if parameter.ndim == 2}
    assert all(name in names for name in net.stacked)
    assert (len(net.stacked) > 0) == (core not in ("lstm", "gru"))


@pytest.mark.parametrize(
    ("core", "kind", "options", "words"),
    [
        ("gpt", "translate", {}, "net.core = gpt cannot do a task of kind 'translate'.* one of: transformer"),
        ("transformer", "tokens", {}, "net.core = transformer .* 'tokens'.* one of: gpt, lstm, gru"),
        ("encoder", "tokens", {}, "net.core = encoder cannot"),
        ("transformer", "classify", {}, "one of: gpt, lstm, gru, encoder"),
        ("lstm", "tokens", {"bidirectional": True}, "net.bidirectional = true would show .* leave it out"),
        ("gpt", "classify", {"bidirectional": True}, "net.bidirectional = True .* net.core=lstm or gru"),
        ("encoder", "classify", {"bidirectional": False}, "net.bidirectional = False means nothing"),
        (
            "gru",
            "classify",
            {"width": 33},
            "net.width = 33 .*both directions; set net.width=34, or net.bidirectional=f",
        ),
        ("gru", "forecast", {"tied": True}, "net.tied = true means nothing for a task of kind 'forecast'"),
        ("encoder", "classify", {"tied": True}, "net.tied = true means nothing"),
        ("encoder", "forecast", {"activation": "relu2"}, "net.activation = relu2 .* gelu or relu"),
        ("transformer", "translate", {"activation": "swiglu"}, "net.activation = swiglu .* net.core = transformer"),
        ("transformer", "translate", {"window": 4}, "net.window = 4 means nothing"),
        ("gpt", "tokens", {"mimetic": True}, "net.mimetic = True means nothing for net.core = gpt"),
        ("encoder", "classify", {"checkpoint_activations": True}, "net.checkpoint_activations = True means nothing"),
        ("lstm", "tokens", {"activation": "gelu"}, "net.activation = gelu means nothing for net.core = lstm"),
        ("gru", "tokens", {"qk_norm": False}, "net.qk_norm = False means nothing for net.core = gru"),
        ("encoder", "classify", {"width": 62}, "net.width = 62 cannot be shared equally by net.heads = 4"),
        ("transformer", "translate", {"width": 35, "heads": 5}, "net.width = 35 is odd, .* set net.width=40"),
    ],
)
def test_what_does_not_go_together_is_refused(core: str, kind: Kind, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        built(core, kind, **options)


def test_runs_of_older_versions_name_gpts_own_values_for_every_core() -> None:
    assert isinstance(built("lstm", "tokens", activation="relu2", qk_norm=True, width=33), SequenceNetwork)
