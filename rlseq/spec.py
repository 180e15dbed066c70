"""The policy's contract: what goes in, what comes out, and everything a player must know.

`PolicySpec` is plain JSON. It travels inside an exported file, so that one file plays alone. `Policy` is what
training's evaluation, cards, parity and play all see, be it backed by torch or by ONNX Runtime.

Observations of any supported space travel as a tuple of *leaves*, one array `[B, *leaf.shape]` each, in the order of
`PolicySpec.observation`; a Box is one leaf, a Dict has one or more per key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, RlseqError

SPEC_FORMAT = 1
FORMAT_KEY = "rlseq.format_version"
SPEC_KEY = "rlseq.spec"

Array = TypeVar("Array")
State = tuple[Array, ...]
"""Recurrent state: a tuple of arrays, `()` for a feed-forward policy."""


class Leaf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One array of an observation, as the environment gives it.

    Attributes:
        name: the ONNX input: `obs`, or `obs.<key>` for the parts of a Dict or Tuple.
        path: keys and indices that lead to it in a nested observation.
        kind: `box` and `multi_binary` are fed as numbers, `discrete` and `multi_discrete` become one-hot vectors.
        shape: of one observation.
        dtype: numpy name of what the graph takes; float64 is narrowed to float32.
        sizes: number of values of each discrete element, in C order.
        starts: smallest value of each discrete element.
        scale: factor applied to the raw numbers (1/255 for 8-bit images).
    """

    name: str
    path: tuple[str | int, ...] = ()
    kind: Literal["box", "discrete", "multi_discrete", "multi_binary"] = "box"
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    sizes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    scale: float = 1.0

    @property
    def width(self) -> int:
        """Number of features after one-hot coding and flattening."""
        return sum(self.sizes) if self.sizes else int(np.prod(self.shape, dtype=np.int64))


class StateLeaf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recurrent array: the graph takes it as `name` and returns its successor as `output`; it starts as zeros.

    Attributes:
        shape: the whole shape with the batch axis written as -1.
    """

    name: str
    output: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def zeros(self, batch: int) -> np.ndarray:
        """The state at the start of an episode."""
        return np.zeros([batch if n == -1 else n for n in self.shape], self.dtype)


class ActionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Discrete actions `start .. start + n - 1`."""

    n: int
    start: int = 0


class EnvSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment a policy was trained on.

    Attributes:
        imports: modules that register it. A file cannot make them be imported; it only names them.
    """

    id: str
    kwargs: dict[str, Any] = {}
    imports: tuple[str, ...] = ()
    max_episode_steps: int | None = None
    fresh: bool = False


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a policy but its weights; see `FORMAT_KEY` and `SPEC_KEY` for where it stands in a file.

    Attributes:
        observation: the leaves, in the order of the graph's inputs.
        lineage: how it came to be, oldest step first (train, export, later prune, quantise ...).
        scores: measured returns with episodes and seed; never latencies, which belong to a machine.
        parity: how exported graph and network were compared, and what came out.
        weights_sha256: of the network's weights, independent of the file format (`rlseq.files.sha256_arrays`).
    """

    format_version: int = SPEC_FORMAT
    rlseq_version: str = ""
    algorithm: str = ""
    env: EnvSpec
    observation: tuple[Leaf, ...]
    action: ActionSpec
    state: tuple[StateLeaf, ...] = ()
    outputs: tuple[str, ...] = ("action", "q_values")
    lineage: tuple[dict[str, Any], ...] = ()
    scores: dict[str, Any] = {}
    parity: dict[str, Any] = {}
    weights_sha256: str = ""


class StepInput(NamedTuple, Generic[Array]):
    """What a policy sees in one step of B environments.

    Attributes:
        obs: the leaves, `[B, *leaf.shape]` each.
        reward: `[B]` float32, of the step before; 0 at an episode's start.
        first: `[B]` bool, true where an episode starts.
    """

    obs: tuple[Array, ...]
    reward: Array
    first: Array


class Policy(Protocol[Array]):
    """Acts for B environments at once; holds no memory of an episode itself."""

    spec: PolicySpec

    def initial_state(self, num_envs: int) -> State[Array]:
        """The state at the start of `num_envs` episodes."""

    def act(self, step: StepInput[Array], state: State[Array]) -> tuple[np.ndarray, State[Array]]:
        """Actions `[B]` int64 in the environment's own numbering, and the next state."""


def encode_spec(spec: PolicySpec) -> str:
    """The spec as JSON."""
    return msgspec.json.encode(spec).decode()


def decode_spec(text: str | bytes, where: str) -> PolicySpec:
    """Read a spec.

    Args:
        text: JSON.
        where: the file, for messages.

    Raises:
        NewerFormat: written by a newer rlseq.
        CorruptFile: no valid spec.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).format_version
        if version < 1:
            raise CorruptFile(f"{where} states the format_version {version}, which never was.")
        if version > SPEC_FORMAT:
            raise NewerFormat(
                f"{where} has format_version {version}; this rlseq reads up to {SPEC_FORMAT}: update rlseq."
            )
        return msgspec.json.decode(text, type=PolicySpec)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CorruptFile(f"{where} holds a damaged policy description: {str(error)[:300]}.") from None


class _Version(msgspec.Struct):
    format_version: int


def pick(obs: Any, leaf: Leaf) -> Any:
    """The part of a nested observation that belongs to a leaf.

    Raises:
        RlseqError: the observation lacks it.
    """
    for key in leaf.path:
        try:
            obs = obs[key]
        except (KeyError, IndexError, TypeError):
            raise RlseqError(f"the observation lacks {key!r}, which the policy's input {leaf.name} needs.") from None
    return obs


def cast(value: Any, leaf: Leaf) -> np.ndarray:
    """One observation's value as the array the policy takes: `leaf.shape`, `leaf.dtype`.

    float64, integers, lists and so on are converted; what would lose its meaning is refused.

    Raises:
        RlseqError: wrong shape (both are named), NaN, or a number the dtype cannot hold.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise RlseqError(f"{leaf.name} is no array; the policy was trained on shape {leaf.shape}.") from None
    if array.shape != leaf.shape:
        raise RlseqError(f"{leaf.name} has shape {array.shape}, the policy was trained on shape {leaf.shape}.")
    dtype = np.dtype(leaf.dtype)
    if array.dtype.kind not in "biuf":
        raise RlseqError(f"{leaf.name} holds {array.dtype}, which are no numbers; the policy takes {leaf.dtype}.")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise RlseqError(f"{leaf.name} holds NaN; the policy cannot act on it. Mend the environment's observation.")
    if leaf.sizes:
        _check_range(array, leaf)
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if not _holds(dtype, array, result):
        raise RlseqError(f"{leaf.name} holds values that {leaf.dtype}, the dtype of the policy's input, cannot hold.")
    return result


def _check_range(array: np.ndarray, leaf: Leaf) -> None:
    values = array.ravel() - np.array(leaf.starts)
    wrong = np.flatnonzero((values < 0) | (values >= np.array(leaf.sizes)))
    if wrong.size:
        k = int(wrong[0])
        raise RlseqError(
            f"{leaf.name} holds {array.ravel()[k]}, outside of its space {leaf.starts[k]} to "
            f"{leaf.starts[k] + leaf.sizes[k] - 1}. Mend the environment's observation or its space."
        )


def _holds(dtype: np.dtype, array: np.ndarray, result: np.ndarray) -> bool:
    """Whether no number became another one (but for rounding to float32)."""
    if array.size == 0:
        return True
    if dtype.kind == "f":
        return bool((np.isfinite(result) | ~np.isfinite(array)).all())
    if dtype.kind == "b":
        return bool((result == array).all())
    bounds = np.iinfo(dtype)
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        return False
    return bounds.min <= int(array.min()) and int(array.max()) <= bounds.max


FEW = 16  # numbers that Python adds quicker (0.4 us) than numpy is called (0.75)
SMALL = 8_192  # numbers; OpenBLAS starts threads for the dot product of longer vectors


def check_finite(array: np.ndarray, leaf: Leaf) -> None:
    """Refuse an observation from which no network computes a number.

    Raises:
        RlseqError: NaN or infinity, named.
    """
    flat = array.ravel()
    if flat.size <= SMALL:  # either is finite only if every number is, and quicker than looking at each one
        total = sum(flat.tolist()) if flat.size <= FEW else np.vdot(flat, flat)
        if math.isfinite(total):
            return
    if np.isfinite(flat).all():
        return
    what = "NaN" if np.isnan(flat).any() else "infinity"
    raise RlseqError(f"{leaf.name} holds {what}; the policy cannot act on it. Mend the environment's observation.")


def encode_observations(observations: Sequence[Any], spec: PolicySpec) -> tuple[np.ndarray, ...]:
    """Raw observations of B environments as leaves `[B, *leaf.shape]`.

    Raises:
        RlseqError: as `cast`.
    """
    return tuple(np.stack([cast(pick(obs, leaf), leaf) for obs in observations]) for leaf in spec.observation)
