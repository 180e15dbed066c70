"""Which network a core and a task ask for."""

from __future__ import annotations

from collections.abc import Callable

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.reading import ReadingNetwork
from rlseq.nets.sequence import SequenceNetwork
from rlseq.nets.sizes import check_core, reads_both_ways
from rlseq.nets.translation import TranslationNetwork
from rlseq.sequence import Signature

Network = SequenceNetwork | ReadingNetwork | TranslationNetwork

# core -> network; a recurrent core that reads both ways is a ReadingNetwork
NETWORKS: dict[str, Callable[[Signature, SequenceNetOptions, int], Network]] = {
    "gpt": SequenceNetwork,
    "lstm": SequenceNetwork,
    "gru": SequenceNetwork,
    "encoder": ReadingNetwork,
    "transformer": TranslationNetwork,
}


def sequence_network(signature: Signature, options: SequenceNetOptions, context: int) -> Network:
    """A network with fresh weights.

    Args:
        signature: what it reads and answers.
        options: kind and dimensions of the core.
        context: places of a training sequence.

    Raises:
        UsageError: a core that cannot do this kind of task, or options that do not fit together.
    """
    check_core(options, signature.kind)
    if reads_both_ways(options, signature.kind):
        return ReadingNetwork(signature, options, context)
    return NETWORKS[options.core](signature, options, context)
