"""Export: graph, parity, file; the file appears only when both kinds of parity hold."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from rlseq.engine.weights import state_arrays
from rlseq.envs.make import MakeEnv
from rlseq.exporter.graph import DEFAULT_OPSET, build_graph, with_spec, write_graph
from rlseq.exporter.parity import check_parity
from rlseq.files import explained, sha256_arrays
from rlseq.nets.network import QNetwork
from rlseq.nets.policy import TorchPolicy
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import PolicySpec

PARITY_SEED = 2_000_000  # episodes of the parity check, apart from those of selection and score


def export_policy(
    net: QNetwork, spec: PolicySpec, path: Path, make: MakeEnv, *, opset: int | None = None
) -> dict[str, Any]:
    """Write a network as one ONNX file that is proven to act like it.

    Args:
        net: on the CPU.
        spec: of the policy; parity and checksum are filled in.
        path: the file.
        make: makes the environment for the episodes of the proof.
        opset: of the file.

    Returns:
        The parity report.

    Raises:
        ParityError: the graph does not act as the network; no file is left.
        RlseqError: it could not be exported or written; no file is left.
    """
    model = build_graph(net, spec, opset or DEFAULT_OPSET)
    spec = msgspec.structs.replace(spec, weights_sha256=sha256_arrays(state_arrays(net)))
    candidate = path.with_name(f".{path.stem}.{os.getpid()}.candidate.onnx")
    with explained(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    try:
        write_graph(with_spec(model, spec), candidate, path)
        report = check_parity(
            TorchPolicy(net, spec), load_onnx(candidate), make, seed=PARITY_SEED, fresh=spec.env.fresh
        )
        write_graph(with_spec(model, msgspec.structs.replace(spec, parity=report)), candidate, path)
        with explained(path, "write"):
            os.replace(candidate, path)
    finally:
        with contextlib.suppress(OSError):  # a name that is too long
            candidate.unlink(missing_ok=True)
    return report


def _sweep(path: Path) -> None:
    """Remove what exports to this path left that were killed."""
    for left in path.parent.glob(f".{path.stem}.*.candidate.onnx"):
        process = left.name.split(".")[-3]
        if not process.isdecimal() or not _lives(int(process)):
            left.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
