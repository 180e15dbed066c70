"""What is said before a training begins."""

from __future__ import annotations

import pytest

from rlseq.dqn.train import DqnTrainer
from rlseq.engine.distributed import ALONE, World
from rlseq.ranks import Place
from tests.training import trainer


@pytest.mark.parametrize(("world", "warned"), [(ALONE, False), (World(Place(1, 2, 1, 2)), True)])
def test_several_processes_of_a_small_network_are_said_to_be_slower(world: World, warned: bool) -> None:
    alone = trainer()
    shared = DqnTrainer(alone.options, alone.spec, alone.make, world)
    assert any("2 processes are likely slower than one" in text for text in shared.warnings()) == warned
    alone.close()
    shared.close()
