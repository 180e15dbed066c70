"""rlseq: train a value-based agent or a sequence model, and ship it as one small ONNX file proven to act like it.

    result = rlseq.train(env="CartPole-v1")      # needs the extra `train`
    policy = rlseq.load(result.run)              # needs numpy, gymnasium and onnxruntime alone
    action = policy(observation)

    result = rlseq.train("seq", data="book.txt")
    rlseq.generate(result.run, prompt="It was ")["text"]

The names below are the public API; they are imported when first used, so that a player never pays for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.events import Event
    from rlseq.pipeline import evaluate, export, generate, load, predict, train
    from rlseq.player.rollout import rollout

__all__ = ["Event", "__version__", "evaluate", "export", "generate", "load", "predict", "rollout", "train"]

_WHERE = {
    "Event": "rlseq.events",
    "evaluate": "rlseq.pipeline",
    "export": "rlseq.pipeline",
    "generate": "rlseq.pipeline",
    "load": "rlseq.pipeline",
    "predict": "rlseq.pipeline",
    "rollout": "rlseq.player.rollout",
    "train": "rlseq.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'rlseq' has no attribute {name!r}; it has {', '.join(__all__)}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
