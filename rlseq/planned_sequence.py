"""The training of a sequence model as a job: planned and checked, and what comes of its best weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rlseq import runs
from rlseq.errors import UsageError, did_you_mean, require
from rlseq.parents import Terms, terms
from rlseq.seq.config import SeqTraining
from rlseq.trained import export_record
from rlseq.trained_sequence import export_sequence_run, load_sequence_network, read_task, score_sequence

if TYPE_CHECKING:
    from rlseq.engine.distributed import World
    from rlseq.engine.session import Session
    from rlseq.seq.tasks.task import Task
    from rlseq.seq.train import SeqTrainer

# What weights may mean otherwise than before -> where the lineage has its digest.
MEANINGS = {"characters": "tokenizer_sha256", "tokens or columns": "inputs_digest", "answers": "answers_digest"}


class SequenceJob(NamedTuple):
    """A training of a sequence model as it was planned; see `rlseq.planning.Job`."""

    algorithm: str
    options: SeqTraining
    task: Task

    @property
    def stem(self) -> str:
        """Beginning of a made-up run name."""
        return f"{self.task.name}-{self.options.net.core}"

    @property
    def facts(self) -> dict[str, Any]:
        """What the lineage says of this training."""
        return {
            "task": self.task.name,
            "data_sha256": self.task.sha256,
            **_meanings(self.task),
        }

    def check_parent(self, parent: runs.Run, *, new_head: bool = False) -> Terms:
        """See `rlseq.planning.Job`. Weights of other tokens or columns would fit, and mean something else.

        Raises:
            UsageError: the run trained a policy, or a network of another kind; or its data means something else, and
                no new head is wanted.
        """
        found = terms(parent, self.algorithm, self.options, ())
        trained = [step for step in parent.lineage() if step.get("step") == "train"]
        theirs, own = (trained[-1] if trained else {}), self.facts
        odd = [what for what, key in MEANINGS.items() if key in theirs and theirs[key] != own[key]]
        if not new_head:
            if odd:
                raise UsageError(
                    f"--from {parent.path}: it was trained on other {odd[0]} than this task has, so its weights mean "
                    f"something else ({self.task.name}: {self.task.description}). Add --new-head, which begins the "
                    f"ends of the network anew; or give data with the same {odd[0]}."
                )
            return found
        both = self.options.net.tied or any(what != "answers" for what in odd)
        return found._replace(anew=("head.", "embedding.", "reader.") if both else ("head.",))

    def trainer(self, world: World | None = None) -> SeqTrainer:
        """Network and update step."""
        from rlseq.engine.distributed import ALONE
        from rlseq.seq.train import SeqTrainer

        return SeqTrainer(self.options, self.task, world or ALONE)

    def finish(self, trainer: SeqTrainer, session: Session, run: runs.Run, checkpoint: Path) -> dict[str, Any]:
        """Score the best weights on the whole validation split, and export them."""
        trained, world = session.seconds, session.world
        net = world.together(lambda: load_sequence_network(self.options, self.task, checkpoint))
        score, shows = score_sequence(
            net, self.task, self.options, world, lambda scored: session.tell("finishing", {"scored": scored})
        )
        scored = session.seconds
        if not world.first:
            return {}
        session.log.texts({"sample/best": shows.text} if shows.text else {}, session.step)
        session.log.pictures({f"{name}/best": png for name, png in shows.pictures.items()}, session.step)
        session.tell("finishing", {"exporting": str(run.exported)})
        parity = export_sequence_run(net, self.task, self.options, run, checkpoint, score, run.exported)
        return {
            "task": self.task.name,
            **score,
            "sample": shows.text,
            "data": self.task.description,
            "data_sha256": self.task.sha256,
            "scoring_seconds": round(scored - trained, 3),
            "export_seconds": round(session.seconds - scored, 3),
            **export_record(run, checkpoint, parity),
        }


def tokenizer_digest(task: Task) -> str | None:
    """The SHA-256 of what the tokens stand for; None where they are no text."""
    tokenizer = task.signature.tokenizer
    return None if tokenizer is None else hashlib.sha256(msgspec.json.encode(tokenizer)).hexdigest()


def _meanings(task: Task) -> dict[str, str | None]:
    """Digests of what the numbers that a model reads, and those that it answers with, stand for."""
    signature = task.signature
    read = (signature.reads_tokens, signature.vocabulary, signature.start, signature.end, signature.features)
    answered = (signature.kind, signature.classes, signature.features[signature.target : signature.target + 1])
    return {
        "tokenizer_sha256": tokenizer_digest(task),
        "inputs_digest": hashlib.sha256(msgspec.json.encode(read)).hexdigest()[:16],
        "answers_digest": hashlib.sha256(msgspec.json.encode(answered)).hexdigest()[:16],
    }


def plan_sequence(options: SeqTraining, typed: Mapping[str, Any], resumed: runs.Run | None) -> SequenceJob:
    """Read the data and check that it suffices.

    Args:
        options: resolved.
        typed: the option values that the user gave by hand.
        resumed: the run that goes on.

    Raises:
        UsageError: unfit data, or a file would import a loss function.
    """
    require("torch", "training")
    _check_typed(options, typed, resumed)
    if options.optim.accumulate > options.seq.batch_size:
        raise UsageError(
            f"optim.accumulate = {options.optim.accumulate} parts of seq.batch_size = {options.seq.batch_size} "
            f"sequences: a part has at least one. Give --accumulate {options.seq.batch_size} or less, or a larger "
            "--batch-size."
        )
    options = placed(options)
    task = read_task(options)
    if options.net.window is not None and options.net.window > task.context:
        raise UsageError(
            f"net.window = {options.net.window} is more than the {task.context} places of a sequence (seq.context, or "
            "seq.length), and nothing that far back is ever trained: give a smaller window, or longer sequences."
        )
    _check_metric(options, task)
    return SequenceJob("seq", options, task)


def placed(options: SeqTraining) -> SeqTraining:
    """With the whole path of the data, because a run may be resumed from another folder."""
    if not options.seq.data:
        return options
    place = str(Path(options.seq.data).expanduser().absolute())
    return msgspec.structs.replace(options, seq=msgspec.structs.replace(options.seq, data=place))


def _check_metric(options: SeqTraining, task: Task) -> None:
    o = options.eval
    if o.metric != "auto" and o.metric not in task.metrics:
        raise UsageError(
            f"eval.metric = {o.metric}: the task {task.name} measures {', '.join(task.metrics)}."
            f"{did_you_mean(o.metric, task.metrics)}"
        )
    if o.metric == "word_share" and o.sample_tokens == 0:
        raise UsageError(
            "eval.metric = word_share is measured on a sample, and eval.sample_tokens = 0: give --set "
            "eval.sample_tokens=300, or choose by the loss."
        )


def _check_typed(options: SeqTraining, typed: Mapping[str, Any], resumed: runs.Run | None) -> None:
    seq = typed.get("seq")
    given = seq.get("loss") if isinstance(seq, Mapping) else None
    if ":" in options.seq.loss and given is None:
        where = f"{resumed.path / 'config.json'}" if resumed is not None else "the recipe"
        raise UsageError(
            f"{where} names the loss {options.seq.loss}, which would import code; a file may not do that. "
            f"If you trust it, type it yourself: --loss {options.seq.loss}"
        )
