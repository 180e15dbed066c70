"""A torch module as an ONNX file: what policies and sequence models share.

torch's exporter (torch.onnx.export, dynamo) is used as it is and its traces are removed: it writes source lines and
absolute paths of the exporting machine into the metadata of every node.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import onnx
import torch
from torch import Tensor, nn

from rlseq.errors import RlseqError, UsageError
from rlseq.files import explained, write_atomic

DEFAULT_OPSET = 18
OPSETS = range(18, 22)  # what torch's exporter writes without down-conversion, up to what old runtimes read
MAX_IR = 10
RECURRENT = (torch.ops.aten.lstm.input, torch.ops.aten.gru.input)


def traced(
    module: nn.Module,
    examples: Sequence[Tensor],
    axes: Sequence[Mapping[int, Any]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int = DEFAULT_OPSET,
) -> onnx.ModelProto:
    """A module as an ONNX model without metadata.

    Args:
        module: takes the examples one by one, gives a tuple of tensors.
        examples: one array for each input. No symbolic axis may be 0 or 1 long: the exporter takes those for constants.
        axes: for each input, which axes are symbolic: `{axis: torch.export.Dim}`.
        inputs, outputs: names.
        opset: of the model.

    Raises:
        UsageError: an opset that is not supported.
        RlseqError: torch could not export the module.
    """
    if opset not in OPSETS:
        raise UsageError(f"--opset {opset} is not supported: choose {OPSETS[0]} to {OPSETS[-1]}.")
    try:
        with _quiet(), _fresh_kernels(), _without_shape_cache(), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                tuple(examples),
                dynamo=True,
                opset_version=opset,
                external_data=False,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=(tuple(dict(named) for named in axes),),
                verbose=False,
            )
    except Exception as error:
        raise RlseqError(f"torch could not export the network: {type(error).__name__}: {error}") from error
    assert program is not None
    return cleaned(program.model_proto)


@contextlib.contextmanager
def _fresh_kernels() -> Iterator[None]:
    """Let the exporter's own LSTM and GRU be found, and be forgotten afterwards.

    torch 2.13 lends these two operators other kernels while it exports, ones without a loop over the example's length,
    but leaves the cache of kernels as it was. Once anything else was cached, by an earlier export or torch.compile, the
    file would take sequences of the example's length only.
    """
    try:
        for operator in RECURRENT:
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator in RECURRENT:
            operator._dispatch_cache.clear()


def _without_shape_cache() -> contextlib.AbstractContextManager[Any]:
    """Let shapes be worked out each time: with symbolic ones, torch 2.13's cache of them costs more than it saves.

    The same file, in three quarters of the time where there are most of them (an encoder-decoder: 4.7 s of 6.6).
    """
    import torch._dynamo.config as config

    return config.patch(fake_tensor_cache_enabled=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's prints and warnings off the user's terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def cleaned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without stack traces, paths, doc strings and the exporter's own notes; the calculation is untouched."""
    clean = onnx.ModelProto()
    clean.CopyFrom(model)
    _strip(clean)
    clean.producer_name, clean.producer_version = "rlseq", ""
    return clean


def _strip(message: onnx.ModelProto) -> None:
    """Clear `doc_string` and `metadata_props` of a protobuf message and of all messages inside it."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None and field.name != "raw_data":
            for inner in value if not hasattr(value, "ListFields") else (value,):
                _strip(inner)


def with_metadata(model: onnx.ModelProto, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """The model with these metadata and no others."""
    described = onnx.ModelProto()
    described.CopyFrom(model)
    del described.metadata_props[:]
    onnx.helper.set_model_props(described, dict(metadata))
    return described


def write_graph(model: onnx.ModelProto, path: Path, called: Path | None = None) -> None:
    """Write the one file, after reading back what a runtime will see; messages call it `called`.

    Raises:
        RlseqError: the opset or IR version is too new, or data is external: an exporter that changed its habits.
    """
    opset = max(entry.version for entry in model.opset_import if entry.domain == "")
    if opset > OPSETS[-1] or model.ir_version > MAX_IR:
        raise RlseqError(
            f"the exporter wrote opset {opset}, IR {model.ir_version}; at most {OPSETS[-1]}, {MAX_IR} were asked for."
        )
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise RlseqError("the exporter put weights into a second file; one file was asked for.")
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString(deterministic=True)
    write_atomic(path, lambda file: _write(file, data), called)


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


@contextlib.contextmanager
def candidate_for(path: Path) -> Iterator[Path]:
    """A name for a file that is still to be proven, which then takes the place of `path`; after an error, nothing does.

    Raises:
        RlseqError: the folder or the file cannot be written.
    """
    candidate = path.with_name(f".{path.stem}.{os.getpid()}.candidate.onnx")
    with explained(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    try:
        yield candidate
        with explained(path, "write"):
            os.replace(candidate, path)
    finally:
        with contextlib.suppress(OSError):  # a name that is too long
            candidate.unlink(missing_ok=True)


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
