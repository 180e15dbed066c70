"""The policy's description and what it takes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rlseq.errors import CorruptFile, NewerFormat, RlseqError
from rlseq.spec import (
    ActionSpec,
    EnvSpec,
    Leaf,
    PolicySpec,
    StateLeaf,
    cast,
    check_finite,
    decode_spec,
    encode_observations,
    encode_spec,
    pick,
)

SPEC = PolicySpec(
    env=EnvSpec(id="E-v0", kwargs={"a": 1}),
    observation=(Leaf(name="obs.p", path=("p",), shape=(2,)), Leaf(name="obs.q.0", path=("q", 0), dtype="int64")),
    action=ActionSpec(n=3, start=-1),
    state=(StateLeaf(name="h", output="h_out", shape=(2, -1, 4)),),
    lineage=({"step": "train"},),
)


def test_there_and_back() -> None:
    assert decode_spec(encode_spec(SPEC), "f") == SPEC


def test_newer_and_damaged_descriptions() -> None:
    tree = json.loads(encode_spec(SPEC))
    with pytest.raises(NewerFormat, match=r"f has format_version 2.*update rlseq"):
        decode_spec(json.dumps({**tree, "format_version": 2, "something": "new"}), "f")
    damaged: list[Any] = ["", "{", "[]", "3", "null", b"\xff", "[" * 100_000]
    damaged += [json.dumps({**tree, key: value}) for key in tree for value in (None, -1.5, {"x": [1]})]
    damaged += [json.dumps({k: v for k, v in tree.items() if k != key}) for key in ("env", "observation", "action")]
    fine = 0
    for text in damaged:
        try:
            decode_spec(text, "f")
            fine += 1  # a value that the field allows, such as {} for scores
        except CorruptFile as error:
            assert str(error).startswith("f ")
    assert fine <= 3


@pytest.mark.parametrize(
    ("value", "leaf", "result"),
    [
        (np.array([1.0, 2.0]), Leaf(name="o", shape=(2,)), np.float32([1, 2])),
        ([1, 2], Leaf(name="o", shape=(2,)), np.float32([1, 2])),
        (np.uint8([1, 255]), Leaf(name="o", shape=(2,)), np.float32([1, 255])),
        (3, Leaf(name="o", dtype="int64"), np.array(3)),
        (3.0, Leaf(name="o", dtype="int64"), np.array(3)),
        ([7, 0], Leaf(name="o", shape=(2,), dtype="uint8"), np.uint8([7, 0])),
        ([True, False], Leaf(name="o", shape=(2,), dtype="int8"), np.int8([1, 0])),
    ],
)
def test_values_are_cast_as_the_leaf_says(value: Any, leaf: Leaf, result: np.ndarray) -> None:
    np.testing.assert_array_equal(cast(value, leaf), result, strict=True)


@pytest.mark.parametrize(
    ("value", "leaf", "message"),
    [
        ([1.0, 2.0, 3.0], Leaf(name="o", shape=(2,)), r"o has shape \(3,\).*\(2,\)"),
        ([1.0, float("nan")], Leaf(name="o", shape=(2,)), r"o holds NaN"),
        ([1, 256], Leaf(name="o", shape=(2,), dtype="uint8"), r"uint8"),
        ([1, -1], Leaf(name="o", shape=(2,), dtype="uint8"), r"uint8"),
        ([0.5, 1], Leaf(name="o", shape=(2,), dtype="int64"), r"int64"),
        (["a", "b"], Leaf(name="o", shape=(2,)), r"no numbers"),
        ([None, 1], Leaf(name="o", shape=(2,)), r"no numbers"),
    ],
)
def test_what_would_lose_its_meaning_is_refused(value: Any, leaf: Leaf, message: str) -> None:
    with pytest.raises(RlseqError, match=message):
        cast(value, leaf)


def test_nested_observations() -> None:
    p, q = encode_observations([{"p": [1, 2], "q": (5,)}, {"p": [3, 4], "q": [6]}], SPEC)
    np.testing.assert_array_equal(p, np.float32([[1, 2], [3, 4]]), strict=True)
    np.testing.assert_array_equal(q, np.array([5, 6]), strict=True)
    for wrong in ({"p": [1, 2]}, {"p": [1, 2], "q": ()}, [1, 2], None):
        with pytest.raises(RlseqError, match=r"lacks.*obs\.q\.0"):
            pick(wrong, SPEC.observation[1])


def test_widths_and_states() -> None:
    assert Leaf(name="o", shape=(2, 3)).width == 6
    assert Leaf(name="o").width == 1
    assert Leaf(name="o", kind="multi_discrete", shape=(2,), sizes=(3, 4), starts=(0, 0)).width == 7
    zeros = SPEC.state[0].zeros(5)
    assert (zeros.shape, zeros.dtype, zeros.sum()) == ((2, 5, 4), np.float32, 0)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.int8([-1]), "uint8"),
        (np.int64([-1]), "uint8"),
        (np.uint8([200]), "int8"),
        (np.uint64([2**63 + 5]), "int64"),
        (np.float64([1e300]), "float32"),
        (np.float64([1e300]), "int64"),
        (np.float64([np.inf]), "int64"),
    ],
)
def test_a_number_that_the_dtype_cannot_hold_never_becomes_another(value: np.ndarray, dtype: str) -> None:
    with pytest.raises(RlseqError, match=rf"o holds .*{dtype}"):
        cast(value, Leaf(name="o", shape=(1,), dtype=dtype))


def test_infinities_stay_and_float64_is_rounded() -> None:
    found = cast([np.inf, -np.inf, 0.1], Leaf(name="o", shape=(3,)))
    np.testing.assert_array_equal(found, np.float32([np.inf, -np.inf, 0.1]), strict=True)


@pytest.mark.parametrize("start", [0, 5, -3])
def test_defaults_stand_in_the_json_of_others(start: int) -> None:
    """A file by another program may leave out what has a default."""
    text = f'{{"format_version": 1, "env": {{"id": "E"}}, "observation": [], "action": {{"n": 2, "start": {start}}}}}'
    spec = decode_spec(text, "f")
    assert (spec.action, spec.state, spec.outputs) == (ActionSpec(n=2, start=start), (), ("action", "q_values"))


def test_unknown_entries_are_refused() -> None:
    tree = json.loads(encode_spec(SPEC))
    with pytest.raises(CorruptFile, match="surprise"):
        decode_spec(json.dumps({**tree, "surprise": 1}), "f")


@pytest.mark.parametrize("value", [[[1, 2], [3]], [[1, 2], 3]])
def test_a_ragged_list_is_refused_like_any_wrong_shape(value: Any) -> None:
    with pytest.raises(RlseqError, match=r"o .*\(2, 2\)"):
        cast(value, Leaf(name="o", shape=(2, 2)))


@pytest.mark.parametrize("change", [("1", "0"), ("1", "-1"), ('"E-v0"', '"\udcff"')])
def test_a_version_or_a_text_that_cannot_be_is_damage(change: tuple[str, str]) -> None:
    field = "id" if "E" in change[0] else "format_version"
    text = encode_spec(SPEC).replace(f'"{field}":{change[0]}', f'"{field}":{change[1]}', 1)
    with pytest.raises(CorruptFile, match=r"^f "):
        decode_spec(text, "f")


def test_truncated_descriptions_are_damage_at_every_length() -> None:
    text = encode_spec(SPEC)
    for length in range(len(text)):
        with pytest.raises(CorruptFile, match=r"^f "):
            decode_spec(text[:length], "f")


def test_truth_values_are_cast_and_other_numbers_are_no_truth_values() -> None:
    leaf = Leaf(name="o", shape=(2,), dtype="bool")
    np.testing.assert_array_equal(cast([1, 0], leaf), np.array([True, False]), strict=True)
    with pytest.raises(RlseqError, match="bool"):
        cast([2, 0], leaf)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinity_are_told_from_the_largest_numbers(dtype: str) -> None:
    """A warning here would be an error; the bounds of many spaces are the largest float32."""
    large, leaf = np.finfo(dtype).max, Leaf(name="o", shape=(2,))
    check_finite(np.array([large, -large], dtype), leaf)
    check_finite(np.array([], dtype), leaf)
    for values, what in (([np.inf, 0], "infinity"), ([np.inf, np.nan], "NaN"), ([0, np.nan], "NaN")):
        with pytest.raises(RlseqError, match=f"o holds {what}"):
            check_finite(np.array(values, dtype), leaf)


def test_discrete_values_outside_their_space_are_refused() -> None:
    leaf = Leaf(name="o", kind="multi_discrete", shape=(2,), dtype="int64", sizes=(3, 2), starts=(0, 5))
    np.testing.assert_array_equal(cast([2, 6], leaf), [2, 6])
    for wrong, message in (([3, 5], "holds 3, outside of its space 0 to 2"), ([0, 4], "holds 4, .* 5 to 6")):
        with pytest.raises(RlseqError, match=message):
            cast(wrong, leaf)
