"""Sequence networks by the name of their core."""

from __future__ import annotations

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature

Network = SequenceNetwork


def sequence_network(signature: Signature, options: SequenceNetOptions, context: int) -> Network:
    """A network for what is to be read and answered.

    Raises:
        UsageError: dimensions that do not fit together.
    """
    return SequenceNetwork(signature.vocabulary, options, context)
