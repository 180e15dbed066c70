"""Options of the update step that DQN has no use for are refused, not ignored."""

from __future__ import annotations

from typing import Any

import pytest

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError


@pytest.mark.parametrize(
    ("optim", "message"),
    [
        ({"schedule": "plateau"}, r"--set: optim.schedule = plateau .*DQN does not have.*linear"),
        ({"ema": 0.99}, r"--set: optim.ema = 0.99: DQN does not average.*none.*dqn.target_update=soft"),
    ],
)
def test_what_dqn_cannot_do_is_refused(optim: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(DqnTraining, Layer("--set", {"optim": optim}))
