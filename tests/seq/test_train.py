"""Training of sequence models: what a run leaves, exact resumes, data, losses and what ends a training."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.nn import functional as F

from rlseq import pipeline, runs
from rlseq.errors import CorruptFile, Interrupted, NonFiniteLoss, RlseqError, UsageError
from rlseq.events import Event
from rlseq.planning import Request, plan_training
from rlseq.seq.flops import peak_flops, training_flops
from rlseq.seq.train import SeqTrainer
from tests.training import SMALL_SEQ, assert_same_run, curves, merged, small_seq, steps_logged, weights, write_text


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    return tmp_path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt")


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the training is tested elsewhere, and takes longer than these trainings do."""

    def stub(*arguments: Any) -> dict[str, Any]:
        return {"bytes": arguments[6].write_bytes(b"")}

    monkeypatch.setattr("rlseq.trained_sequence.export_sequence_run", stub)


class Crash(Exception):
    pass


def crash_at(step: int) -> Any:
    """A callback that ends the process' training without any saving, as a kill would."""

    def callback(event: Event) -> None:
        if event.kind == "progress" and event.step >= step:
            raise Crash

    return callback


def trainer(text: Path, *changes: dict[str, Any]) -> SeqTrainer:
    """A trainer alone."""
    values = merged(SMALL_SEQ, {"seq": {"data": str(text)}}, *changes)
    plan = plan_training(Request("seq", None, "none", values, source="test"))
    made = plan.job.trainer()
    assert isinstance(made, SeqTrainer)
    return made


def test_what_a_run_leaves(text: Path) -> None:
    told: list[Event] = []
    changes = {"run": {"steps": 120}, "eval": {"every": 40, "sample_tokens": 60}}
    result = small_seq(text, changes, name="a", callbacks=[told.append])
    run, summary = runs.Run(result.run), result.summary
    assert run.algorithm == "seq" and run.exported.name == "model.onnx" and run.status() == "finished"
    assert summary["loss"] < 1.5 < math.log(8)  # the words are of seven letters and two kinds of blank
    assert summary["bits_per_token"] == pytest.approx(summary["loss"] / math.log(2))
    assert summary["perplexity"] == pytest.approx(math.exp(summary["loss"]))
    tokens = len(text.read_text())
    assert summary["tokens"] == tokens - math.floor(0.95 * tokens) - 1
    end = [event.data for event in told][[event.kind for event in told].index("end") + 1 :]
    assert end == [{"scored": summary["tokens"]}, {"exporting": str(run.exported)}]
    assert summary["updates"] == 120 and summary["policy"]["file"] == "model.onnx"
    logged = dict(steps_logged(result.run))
    assert logged["train/loss"] == logged["train/grad_norm"] == logged["train/lr"] == list(range(3, 121, 3))
    assert logged["eval/loss"] == [40, 80, 120]
    assert {"eval/bits_per_token", "eval/perplexity", "eval/word_share", "sample", "sample/best"} <= logged.keys()
    (*_, step) = run.lineage()
    assert (step["task"], step["updates"], len(step["data_sha256"])) == ("text", 120, 64)
    session = onnxruntime.InferenceSession(str(run.exported))
    assert "logits" in [output.name for output in session.get_outputs()]


def test_eval_reproduces_the_summary_with_the_network_and_with_the_file(text: Path) -> None:
    result = small_seq(text, name="a")
    again = pipeline.evaluate(result.run)
    for key in ("loss", "bits_per_token", "perplexity", "word_share", "tokens", "sample"):
        assert again[key] == result.summary[key], key
    by_file = pipeline.evaluate(runs.Run(result.run).exported, data=text)
    assert by_file["loss"] == pytest.approx(result.summary["loss"], rel=1e-5)
    assert by_file["tokens"] == result.summary["tokens"]
    assert pipeline.evaluate(result.run, checkpoint="0")["loss"] > result.summary["loss"]


def test_the_file_writes_as_the_network_does(text: Path) -> None:
    result = small_seq(text, {"run": {"steps": 60}}, name="a")
    by_file = pipeline.generate(result.run, prompt="ab", tokens=30, temperature=0)
    by_network = pipeline.generate(result.run, prompt="ab", tokens=30, temperature=0, checkpoint="best")
    assert by_file["text"] == by_network["text"] and by_file["tokens"] == 30
    pieces: list[str] = []
    streamed = pipeline.generate(result.run, prompt="ab", tokens=30, seed=5, on_text=pieces.append)
    assert "".join(pieces) == "ab" + streamed["text"]
    assert streamed["text"] == pipeline.generate(result.run, prompt="ab", tokens=30, seed=5)["text"]
    assert streamed["text"] != pipeline.generate(result.run, prompt="ab", tokens=30, seed=6)["text"]


VARIANTS: dict[str, dict[str, Any]] = {
    "muon": {},
    "adamw, parts of unequal size, dropout, plateau": {
        "optim": {"name": "adamw", "accumulate": 4, "schedule": "plateau", "weight_decay": 0.1},
        "net": {"dropout": 0.2},
    },
    "averaged weights, one cycle": {"optim": {"ema": 0.9, "schedule": "one_cycle"}},
    "lstm, dropout between layers": {"net": {"core": "lstm", "layers": 2, "dropout": 0.3}},
    "gru, tied": {"net": {"core": "gru", "tied": True}},
    "bf16": {"engine": {"amp": "bf16"}},
}


@pytest.mark.usefixtures("no_export")
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
def test_a_crashed_run_resumes_exactly_also_the_second_time(text: Path, variant: dict[str, Any]) -> None:
    whole = small_seq(text, variant, name="whole").run
    with pytest.raises(Crash):
        small_seq(text, variant, name="crashed", callbacks=[crash_at(9)])
    crashed = Path(os.environ["RLSEQ_RUNS"]) / "crashed"
    with pytest.raises(Crash):
        small_seq(None, resume=crashed, callbacks=[crash_at(15)])
    assert int(runs.Run(crashed).checkpoint("last").name) < 15  # so something has to be done again
    small_seq(None, resume=crashed)
    assert_same_run(whole, crashed)


@pytest.mark.usefixtures("no_export")
def test_dropout_goes_on_from_checkpoints_that_were_not_made_within_the_loop(text: Path) -> None:
    """The first one, and one that replaces another after an evaluation that a signal had cut off."""
    dropout = {"net": {"dropout": 0.2}}
    whole = small_seq(text, dropout, name="whole").run
    with pytest.raises(Crash):
        small_seq(text, dropout, name="crashed", callbacks=[crash_at(3)])
    crashed = Path(os.environ["RLSEQ_RUNS"]) / "crashed"
    assert runs.Run(crashed).checkpoint("last").name == "0"
    torch.rand(1)  # whatever else draws from torch's own stream
    small_seq(None, resume=crashed)
    assert_same_run(whole, crashed)


@pytest.mark.usefixtures("no_export")
def test_the_same_seed_gives_the_same_run_and_another_another(text: Path) -> None:
    first, second, other = (small_seq(text, name=name, seed=seed).run for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert_same_run(first, second)
    assert curves(first) != curves(other)


@pytest.mark.usefixtures("no_export")
def test_evaluation_does_not_touch_the_training(text: Path) -> None:
    change = {"net": {"dropout": 0.2}, "optim": {"name": "adamw"}}
    often = small_seq(text, change, {"eval": {"every": 2}}, name="often").run
    seldom = small_seq(text, change, {"eval": {"every": 24}}, name="seldom").run
    a, b = (weights(runs.Run(run).checkpoint("last")) for run in (often, seldom))
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


@pytest.mark.usefixtures("no_export")
def test_parts_make_the_same_update(text: Path) -> None:
    whole = small_seq(text, name="whole").run
    parts = small_seq(text, {"optim": {"accumulate": 4}}, name="parts").run
    a, b = ({(s, t): v for s, t, v in curves(run) if t == "train/loss"} for run in (whole, parts))
    for key, loss in a.items():
        assert b[key] == pytest.approx(loss, rel=1e-4), key


@pytest.mark.usefixtures("no_export")
def test_a_signal_saves_and_the_run_goes_on_exactly(text: Path) -> None:
    import signal

    def interrupt(event: Event) -> None:
        if event.kind == "progress" and event.step == 9:
            signal.raise_signal(signal.SIGTERM)

    whole = small_seq(text, {"optim": {"accumulate": 3}}, name="whole").run
    with pytest.raises(Interrupted, match=r"stopped at step (9|10) of 24.*\n  rlseq train seq --resume"):
        small_seq(text, {"optim": {"accumulate": 3}}, name="stopped", callbacks=[interrupt])
    stopped = Path(os.environ["RLSEQ_RUNS"]) / "stopped"
    small_seq(None, resume=stopped)
    a, b = (weights(runs.Run(run).checkpoint("last")) for run in (whole, stopped))
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


@pytest.mark.usefixtures("no_export")
def test_a_resume_notices_other_data_and_finds_moved_data(text: Path, tmp_path: Path) -> None:
    run = small_seq(text, name="a").run
    other = write_text(tmp_path / "other.txt", seed=1)
    with pytest.raises(UsageError, match=r"was trained on other data than .*other\.txt.* --data PATH"):
        small_seq(other, {"run": {"steps": 30}}, resume=run)
    moved = text.rename(tmp_path / "moved.txt")
    with pytest.raises(UsageError, match=r"text\.txt"):
        small_seq(None, {"run": {"steps": 30}}, resume=run)
    result = small_seq(moved, {"run": {"steps": 30}}, resume=run)
    assert result.summary["steps"] == 30
    assert pipeline.evaluate(run, data=moved)["tokens"] == result.summary["tokens"]


@pytest.mark.usefixtures("no_export")
def test_a_training_that_diverges_says_so_and_keeps_its_checkpoint(text: Path) -> None:
    change = {"optim": {"name": "sgd", "lr": 1e30, "clip_norm": "none"}}
    with pytest.raises(NonFiniteLoss, match=r"update \d+ gave loss .* smaller learning rate \(--lr 1e\+29\)"):
        small_seq(text, change, name="a")
    run = runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "a")
    assert all(
        np.isfinite(array).all() for array in weights(run.checkpoint("last")).values() if array.dtype.kind == "f"
    )


@pytest.mark.usefixtures("no_export")
def test_early_ends(text: Path) -> None:
    reached = small_seq(text, {"eval": {"target": 2.3, "every": 2}, "run": {"steps": 200}}, name="target").summary
    assert reached["stopped"] == "evaluation reached the target 2.3" and reached["best_evaluation"] <= 2.3
    assert reached["steps"] < 200
    frozen = {"optim": {"lr": 1e-12}, "eval": {"patience": 2, "every": 2}}
    patient = small_seq(text, frozen, name="patience").summary
    assert patient["stopped"] == "2 evaluations without improvement"
    assert patient["steps"] in (6, 8)


@pytest.mark.usefixtures("no_export")
def test_the_best_weights_are_those_of_the_chosen_metric(text: Path) -> None:
    change = {"eval": {"metric": "word_share", "every": 4, "sample_tokens": 40}}
    result = small_seq(text, change, name="a")
    shares = {step: value for step, tag, value in curves(result.run) if tag == "eval/word_share"}
    assert result.summary["best_evaluation"] == pytest.approx(max(shares.values()), rel=1e-6)
    assert shares[result.summary["best_step"]] == max(shares.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval": {"metric": "los"}}, r"eval\.metric = los: the task text measures loss, .*Did you mean loss"),
        ({"eval": {"metric": "word_share", "sample_tokens": 0}}, "measured on a sample"),
        ({"seq": {"loss": "huber"}}, "seq.loss"),
        ({"seq": {"task": "copi"}}, "seq.task"),
        ({"net": {"width": 15}}, "15"),
        ({"net": {"window": 13}}, r"net\.window = 13 is more than the 12 places"),
        ({"optim": {"name": "adamw", "adam_lr": 0.1}}, r"optim\.adam_lr = 0\.1"),
        ({"optim": {"accumulate": 7}}, r"optim\.accumulate = 7 parts of seq\.batch_size = 6"),
        ({"optim": {"accumulate": 7}}, r"optim\.accumulate = 7 parts of seq\.batch_size = 6 .* --accumulate 6 or less"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    text: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        small_seq(text, change, name="a")
    assert not (Path(os.environ["RLSEQ_RUNS"]) / "a").exists()


def test_an_empty_word_for_the_data_is_not_the_current_folder() -> None:
    with pytest.raises(UsageError, match="the data '' is neither a file nor a folder"):
        pipeline.train("seq", data="")


def squared(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """A loss of one's own."""
    one_hot = F.one_hot(targets_BT, logits_BTV.shape[-1]).to(logits_BTV.dtype)
    return (logits_BTV.softmax(-1) - one_hot).square().sum(-1)


@pytest.mark.usefixtures("no_export")
def test_an_own_loss_is_typed_and_never_taken_from_a_file(text: Path, tmp_path: Path) -> None:
    own = f"{__name__}:squared"
    run = small_seq(text, name="a", loss=own).run
    first = next(value for _, tag, value in curves(run) if tag == "train/loss")
    assert first < 1.2  # a squared error of probabilities, not nats
    with pytest.raises(UsageError, match=r"config\.json names the loss .*:squared, which would import code"):
        small_seq(None, {"run": {"steps": 30}}, resume=run)
    assert small_seq(None, {"run": {"steps": 30}}, resume=run, loss=own).summary["steps"] == 30
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'algorithm = "seq"\n[seq]\nloss = "{own}"\n')
    with pytest.raises(UsageError, match="would import code"):
        small_seq(text, name="b", recipe=recipe)


def test_precision_is_timed_and_leaves_no_trace(text: Path) -> None:
    plain, mixed = trainer(text), trainer(text, {"engine": {"amp": "bf16"}})
    before = {name: p.detach().clone() for name, p in mixed.net.named_parameters()}
    state = torch.get_rng_state()
    assert plain.describe()["precision"] == "float32"
    told = mixed.describe()["precision"]
    assert told.startswith("bfloat16: ") and "times as fast" in told
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], p) for name, p in mixed.net.named_parameters())
    assert mixed.task.sample(np.random.default_rng(1), 2).inputs.shape == (2, 12)


def test_a_compiler_that_is_missing(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise TorchDynamoException("InvalidCxxCompiler: no compiler.\nA page of advice.")

    monkeypatch.setattr(torch, "compile", lambda net: broken)
    made = trainer(text, {"engine": {"compile": True}})
    with pytest.raises(RlseqError, match=r"failed here: InvalidCxxCompiler: no compiler\. .* engine\.compile=false$"):
        made._learn(made._batches.take(), 0)


def test_a_compiler_that_ctrl_c_ended_has_not_failed(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's Ctrl-C reaches it too."""

    def ended(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise TorchDynamoException("CppCompileError: C++ compile error")

    monkeypatch.setattr(torch, "compile", lambda net: ended)
    with pytest.raises(
        Interrupted, match=r"^stopped at once; .* last checkpoint.*\n  rlseq train seq --resume"
    ) as stop:
        small_seq(text, {"engine": {"compile": True}}, name="a")
    assert stop.value.signum == signal.SIGINT


def test_fp16_s_skipped_update_advances_nothing(text: Path) -> None:
    made = trainer(text, {"engine": {"amp": "fp16"}, "optim": {"schedule": "linear"}})
    rate = made.update_step.lr
    made.update_step.scaler.load_state_dict(
        {**made.update_step.scaler.state_dict(), "scale": 2.0**60, "_growth_tracker": 0}
    )
    made.net.train()
    made._learn(made._batches.take(), 0)
    assert (made.updates, made.update_step.skipped, made.update_step.lr) == (0, 1, rate)
    assert made.update_step.scaler.get_scale() < 2.0**60
    assert made.curves().points["amp/skipped"] == 1.0


@pytest.mark.usefixtures("no_export")
def test_a_changed_checkpoint_is_refused(text: Path) -> None:
    with pytest.raises(Crash):
        small_seq(text, name="a", callbacks=[crash_at(12)])
    run = runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "a")
    config = json.loads((run.path / "config.json").read_text())
    config["options"]["optim"]["name"] = "sgd"
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptFile, match="does not fit the run's options, or was changed"):
        small_seq(None, resume=run.path)


@pytest.mark.usefixtures("no_export")
def test_compiled_and_eager_load_each_other(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.nn.Module] = []

    def quick(net: torch.nn.Module) -> Any:
        compiled.append(net)
        return whole_compile(net, backend="eager")

    whole_compile = torch.compile
    monkeypatch.setattr(torch, "compile", quick)
    with pytest.raises(Crash):
        small_seq(text, {"engine": {"compile": True}}, name="a", callbacks=[crash_at(12)])
    assert len(compiled) == 1
    run = runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "a")
    eager = trainer(text)
    names = {name.partition("/")[2] for name in weights(run.checkpoint("last")) if name.startswith("model/")}
    assert names == set(eager.net.state_dict())
    config = json.loads((run.path / "config.json").read_text())
    config["options"]["engine"]["compile"] = False
    (run.path / "config.json").write_text(json.dumps(config))
    assert small_seq(None, resume=run.path).summary["steps"] == 24


def test_the_work_of_a_token_by_hand(text: Path) -> None:
    made = trainer(text)
    block = 16 * 48 + 16 * 16 + 2 * 16 * 64 + 2 * 16  # qkv, out, up and down, two norms
    head = 16 * made.task.signature.vocabulary + 16
    assert training_flops(made.options.net, made.net, 12) == 6 * (block + head) + 12 * 1 * 16 * 12
    assert peak_flops("NVIDIA H200") == 989e12 and peak_flops("GeForce 256") is None


@pytest.mark.usefixtures("no_export")
def test_beginning_from_another_run(text: Path, tmp_path: Path) -> None:
    parent = small_seq(text, name="a").run
    child = small_seq(text, {"optim": {"lr": 1e-12}}, name="b", init_from=parent)
    best = weights(runs.Run(parent).checkpoint("best"))
    for name, array in weights(runs.Run(child.run).checkpoint("0")).items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(array, best[name], err_msg=name)
    assert [step["step"] for step in runs.Run(child.run).lineage()] == ["train", "train"]
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("a", "x"))  # as many characters, but others
    with pytest.raises(UsageError, match="trained on other characters than"):
        small_seq(other, name="c", init_from=parent)


def test_policies_and_sequence_models_are_told_apart(text: Path) -> None:
    run = small_seq(text, name="a").run
    for wrong in (run, runs.Run(run).exported):
        with pytest.raises(UsageError, match="rlseq generate"):
            pipeline.play(wrong)
    with pytest.raises(UsageError, match="not in an environment"):
        pipeline.train("seq", env="CartPole-v1")
    with pytest.raises(UsageError, match="is a training of seq: rlseq train seq --resume"):
        pipeline.train("dqn", resume=run)
