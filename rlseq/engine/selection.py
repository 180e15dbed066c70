"""Which parameters are trained, and how fast: what `optim.freeze` and `optim.lr_multipliers` come to for a network.

Globs are those of a shell over whole names, dots being letters like any other: `core.*` is everything below `core.`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from rlseq.engine.config import OptimOptions
from rlseq.errors import UsageError, did_you_mean


class Selection(NamedTuple):
    """The parameters that an update treats otherwise than the rest, by name.

    Attributes:
        frozen: those that are not trained.
        multipliers: factors of the learning rate, of those whose factor is not 1.
        options: what was asked for.
    """

    frozen: frozenset[str] = frozenset()
    multipliers: Mapping[str, float] = {}
    options: OptimOptions = OptimOptions()

    def describe(self, num_trained: int, num_all: int) -> dict[str, str]:
        """What is not trained as the rest, as label -> text.

        Args:
            num_trained, num_all: numbers in the parameters.
        """
        told: dict[str, str] = {}
        if self.frozen:
            globs = ", ".join(self.options.freeze)
            told["frozen"] = f"{globs}: {num_all - num_trained} of {num_all} parameters"
        if self.multipliers:
            told["rates"] = ", ".join(f"{glob} x {factor:g}" for glob, factor in self.options.lr_multipliers.items())
        return told


EVERYTHING = Selection()


def select(names: Sequence[str], options: OptimOptions) -> Selection:
    """What the options mean for a network with parameters of these names. Where several multipliers match a name, the
    last one counts.

    Raises:
        UsageError: a glob matches nothing, or only what is frozen; or nothing is left to train.
    """
    frozen = {name for glob in options.freeze for name in matching(glob, names, "optim.freeze")}
    if len(frozen) == len(names):
        raise UsageError(
            f"optim.freeze = {', '.join(options.freeze)} holds all {len(names)} parameters of this network, so nothing "
            "would be learnt. Leave some of it out; --from without --freeze trains everything."
        )
    multipliers: dict[str, float] = {}
    for glob, factor in options.lr_multipliers.items():
        matched = matching(glob, names, "optim.lr_multipliers")
        if frozen.issuperset(matched):
            raise UsageError(
                f"optim.lr_multipliers: {glob} matches only parameters that optim.freeze holds, which have no learning "
                "rate. Leave it out, or do not freeze them."
            )
        multipliers |= dict.fromkeys(matched, factor)
    multipliers = {n: factor for n, factor in multipliers.items() if factor != 1.0 and n not in frozen}
    return Selection(frozenset(frozen), multipliers, options)


def matching(glob: str, names: Sequence[str], option: str) -> list[str]:
    """The names that a glob matches, in their order.

    Raises:
        UsageError: there is none; `option` says who asks.
    """
    found = [name for name in names if fnmatchcase(name, glob)]
    if found:
        return found
    raise UsageError(
        f"{option}: {glob!r} matches no parameter of this network.{did_you_mean(glob, [*names, *_globs(names)])} "
        f"It has {', '.join(covering(names, names))}."
    )


def covering(names: Collection[str], among: Iterable[str]) -> list[str]:
    """As few globs as are needed to name just these of the names `among`: `core.*` where all below `core.` are meant,
    but never `*` for everything."""
    wanted, found, among = set(names), [], list(among)
    done: set[str] = set()
    for name in among:
        if name not in wanted or name in done:
            continue
        for end in [place for place, letter in enumerate(name) if letter == "."]:
            below = {other for other in among if other.startswith(name[: end + 1])}
            if below <= wanted and len(below) > 1:
                done |= below
                found.append(f"{name[:end]}.*")
                break
        else:
            found.append(name)
    return found


def _globs(names: Iterable[str]) -> list[str]:
    """Every `core.*`, `core.blocks.*`, ... that matches something."""
    return list(dict.fromkeys(f"{name[:k]}.*" for name in names for k, letter in enumerate(name) if letter == "."))
