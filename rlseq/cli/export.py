"""`rlseq export`: a run's checkpoint as one ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rlseq.card_words import parity_words
from rlseq.cli.output import Output, number, show_pairs, size, write_json
from rlseq.cli.params import CheckpointOption, Imports, Json, PathArgument, Quiet


def export(
    path: PathArgument = None,
    file: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="The .onnx file to write.", show_default="policy.onnx in the run"),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option("--opset", min=1, help="ONNX opset of the file, 18 to 21.", show_default="the exporter's"),
    ] = None,
    checkpoint: CheckpointOption = "best",
    imports: Imports = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a run as one ONNX file, proven to act as its network.

    The file is written only if its values match the network's on recorded
    observations and its episodes give the same returns. A finished run holds
    its policy.onnx already.

    Examples:

      rlseq export                              the newest run, into its folder
      rlseq export runs/my-run --out cartpole.onnx
      rlseq export runs/my-run --checkpoint 20000 --out early.onnx --opset 20
    """
    out = Output(as_json, quiet)
    with out.working():
        from rlseq.locate import locate
        from rlseq.pipeline import export as run

        out.note(f"Exporting {locate(path).name}, and comparing the file with the network ...")
        result = run(path, out=file, opset=opset, checkpoint=checkpoint, imports=imports or ())
    num_bytes, report = result.path.stat().st_size, result.report
    if as_json:
        write_json({"path": str(result.path), "bytes": num_bytes, "parity": report})
        return
    if quiet:
        typer.echo(str(result.path))
        return
    show_pairs({"file": str(result.path), "size": size(num_bytes), **parity_rows(report)})


def parity_rows(report: Mapping[str, Any]) -> dict[str, str]:
    """A parity report for people; empty if there is none."""
    if not report:
        return {}
    if "lengths" in report:
        return {"parity": parity_words(report)}
    batches = ", ".join(map(str, report["batch_sizes"]))
    return {
        "values": f"differ by at most {report['max_error']:.2g} on {report['observations']} observations (batches of "
        f"{batches})",
        "episodes": f"{report['episodes_with_equal_return']} of {report['episodes']} with the same return, "
        f"{number(report['mean_return_network'])} (network) and {number(report['mean_return_onnx'])} (file) on average",
    }
