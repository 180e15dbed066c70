"""The version of rlseq: the one place that holds it."""

__version__ = "0.1.0"
