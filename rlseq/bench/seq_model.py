"""What a sequence model does besides being trained fast, measured: generation, and memory of a training.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rlseq.bench.measure import Side, Tell, Timing, alternate, measurement
from rlseq.bench.seq_training import Shape, job_for, train_ours
from rlseq.errors import RlseqError
from rlseq.seq.batch import TokenBatch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rlseq.nets.build import Network
    from rlseq.planned_sequence import SequenceJob
    from rlseq.seq.tasks.task import Task

UNCACHED = "torch without a cache"
NUM_TOKENS = 256
WRITER = Shape(4, 4, 128, 8, NUM_TOKENS, 60)  # the context holds all that is written
DEEP = Shape(12, 4, 128, 4, 64, 1)
PARTS = 4
LARGEST_ERROR = 1e-6


# Part 4


def measure_generation(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Greedy text of a shortly trained gpt: the exported file by our player, and torch, which reads all of it anew for
    every token. Ours has one thread, torch all cores.

    Raises:
        RlseqError: they write different texts.
    """
    from rlseq.exporter.sequence import export_sequence
    from rlseq.player.sequence import load_sequence
    from rlseq.seq.model import sequence_spec

    job = job_for(data, WRITER)
    tell(f"{WRITER.updates} updates, so that there is something to write")
    net = train_ours(job).trainer.net.eval()
    tokenizer = job.task.signature.tokenizer
    assert tokenizer is not None
    prompt_T = tokenizer.encode(job.task.prompt())
    with tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder:
        path = Path(folder) / "model.onnx"
        export_sequence(net, sequence_spec(net, job.task, job.options), path)
        player = load_sequence(path)
    texts: list[list[int]] = []
    sides: dict[str, Side] = {
        "rlseq": lambda seed: _timed(lambda: generate_cached(player, prompt_T, NUM_TOKENS), texts),
        UNCACHED: lambda seed: _timed(lambda: generate_uncached(net, prompt_T, NUM_TOKENS), texts),
    }
    tell("warm-up: one text of each")
    for side in sides.values():
        side(0)
    timings = alternate(sides, repeats, tell, "tokens")
    check_same_text(texts)
    what = f"greedy text of {NUM_TOKENS} tokens, {WRITER.layers} layers, {WRITER.width} wide, the same on both sides"
    result = measurement(what, timings["rlseq"], timings[UNCACHED], {"name": UNCACHED}, "tokens")
    return {"generation": result}


def generate_cached(player: Any, prompt_T: np.ndarray, num_tokens: int) -> list[int]:
    """The greedy continuation by a `rlseq.player.generate.Stepper`."""
    from rlseq.player.generate import generate
    from rlseq.player.sampling import GREEDY

    return list(generate(player, prompt_T, num_tokens, GREEDY, np.random.default_rng(0)))


def generate_uncached(net: Network, prompt_T: np.ndarray, num_tokens: int) -> list[int]:
    """The greedy continuation by a network that remembers nothing: every token reads the whole text before it."""
    import torch

    from rlseq.engine.device import cpu_settings
    from rlseq.nets.network import NetInput

    written = torch.from_numpy(prompt_T)
    with cpu_settings(0), torch.inference_mode():
        for _ in range(num_tokens):
            logits_BTV = net(NetInput((written[None],)))[0]
            written = torch.cat((written, logits_BTV[0, -1:].argmax(-1)))
    return written[len(prompt_T) :].tolist()


def _timed(write: Callable[[], list[int]], texts: list[list[int]]) -> Timing:
    started = time.perf_counter()
    text = write()
    seconds = time.perf_counter() - started
    texts.append(text)
    return Timing(seconds, len(text))


def check_same_text(texts: list[list[int]]) -> None:
    """Every text must be the first one.

    Raises:
        RlseqError: with the first token that differs.
    """
    for text in texts:
        different = [place for place, (a, b) in enumerate(zip(texts[0], text, strict=True)) if a != b]
        if different:
            raise RlseqError(f"not the same text: from token {different[0]} of {len(text)} on it is another.")


# Part 5


def measure_memory(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Bytes kept for the backward pass with activation checkpointing and without.

    Before that: the gradient of a batch in parts of unequal token counts, in float64, is that of the whole batch.

    Raises:
        RlseqError: checkpointing changes the gradients, or the parts do not add up to the whole.
    """
    import torch

    error = accumulation_error(job_for(data, Shape(*WRITER[:3], 8, 64, 1)))
    tell(f"a batch in {PARTS} parts of unequal token counts: gradient {error:.1e} off, float64")
    if not error <= LARGEST_ERROR:
        raise RlseqError(f"the gradient of {PARTS} parts is {error:.1e} off that of the whole batch.")
    (kept, gradient), (all_kept, all_gradient) = (
        kept_for_backward(job_for(data, DEEP, {"net": {"checkpoint_activations": on}})) for on in (True, False)
    )
    if not torch.equal(gradient, all_gradient):
        raise RlseqError("activation checkpointing changes the gradients.")
    tell(f"kept for the backward pass: {kept} bytes with checkpointing, {all_kept} without; identical gradients")
    ratio = all_kept / kept
    what = (
        f"kept for the backward pass, {DEEP.layers} layers, activation checkpointing, identical gradients; "
        f"and a batch in {PARTS} unequal parts: gradient {error:.1e} off (float64)"
    )
    return {
        "memory": {
            "what": what,
            "unit": "bytes",
            "ours": {"bytes": kept},
            "peer": {"name": "without checkpointing", "bytes": all_kept},
            "ratio": ratio,
            "ratios": [ratio],
            "spread": [ratio, ratio],
            "accumulation_error": error,
        }
    }


class UnevenTask:
    """A task whose sequences end at different places: row k of a batch has a mask of k + 1 shares of its tokens."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = slice(None)) -> TokenBatch[np.ndarray]:
        """A batch of the task, masked."""
        inputs_BT, targets_BT, *_ = self._task.sample(rng, batch_size, rows)
        length = inputs_BT.shape[1]
        lengths_B1 = np.arange(1, batch_size + 1)[rows, None] * length // batch_size
        return TokenBatch(inputs_BT, targets_BT, np.arange(length) < lengths_B1)


def accumulation_error(job: SequenceJob) -> float:
    """Norm of the difference between the gradients of a batch whole and in `PARTS` parts, by that of the gradient."""
    gradients = []
    with float64():
        for parts in (1, PARTS):
            optim = msgspec.structs.replace(job.options.optim, accumulate=parts, clip_norm=None)
            options = msgspec.structs.replace(job.options, optim=optim)
            trainer = train_ours(job._replace(options=options, task=UnevenTask(job.task))).trainer
            gradients.append(trainer.update_step.flat.grad)
    whole, accumulated = gradients
    return float((accumulated - whole).norm() / whole.norm())


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Let torch build everything in float64 for a while."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def kept_for_backward(job: SequenceJob) -> tuple[int, Tensor]:
    """Bytes that the forward pass of one batch keeps, and the gradient that the backward pass then gives."""
    import torch

    trainer = job.trainer()
    batch = job.task.sample(np.random.default_rng(0), job.options.seq.batch_size).map(torch.from_numpy)
    kept, loss = saved_bytes(trainer.net, lambda: trainer.loss(batch).mean)
    loss.backward()
    return kept, trainer.update_step.flat.grad


def saved_bytes(net: nn.Module, forward: Callable[[], Tensor]) -> tuple[int, Tensor]:
    """Bytes of the tensors that autograd saves during `forward`, weights apart, each counted once; and its result."""
    from torch.autograd.graph import saved_tensors_hooks

    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()  # what is saved lives on, so no other gets its address
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    return sum(sizes.values()), result
