"""Loads damaged sequence models and lets them write, in a process of its own, which ONNX Runtime may bring down.

`python -m tests.fire.sequence_cases FOLDER FIRST END`: a line of JSON before each case and one after it.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path

import numpy as np

from rlseq.errors import RlseqError
from rlseq.player.answering import answer
from rlseq.player.generate import generate
from rlseq.player.sampling import GREEDY
from rlseq.player.sequence import load_sequence
from tests.fire.mutate import mutate_bytes
from tests.fire.mutate_onnx import mutate_description, mutate_graph

SEED = 23
LIMIT_SECONDS = 20
MUTATIONS = (mutate_bytes, mutate_description, mutate_description, mutate_graph, mutate_graph)


def main(folder: Path, first: int, end: int) -> None:
    """Run the cases."""
    sources = sorted(folder.glob("sound*.onnx"))
    for number in range(first, end):
        rng = np.random.default_rng([SEED, number])
        path = folder / "damaged.onnx"
        shutil.copy(sources[number % len(sources)], path)
        said = MUTATIONS[int(rng.integers(len(MUTATIONS)))](rng, path)
        print(json.dumps({"number": number, "said": said}), flush=True)
        signal.alarm(LIMIT_SECONDS)  # its default action ends the process, also within ONNX Runtime
        try:
            model = load_sequence(path)
            signature = model.spec.signature
            if not signature.reads_tokens:
                model.whole(np.ones((2, 5, len(signature.features))), np.arange(5) < np.array([[5], [0]]))
            else:
                for _ in generate(model, np.array([0] * 5), 20, GREEDY, rng):
                    pass
            if signature.start is not None:
                answer(model, [np.zeros(length, np.int64) for length in (3, 1, 0)], limit=5)
            if model.spec.tokenizer is not None:
                model.spec.tokenizer.decode(np.arange(model.spec.vocabulary)).encode()
            message = ""
        except RlseqError as error:
            message = str(error)
        except Exception:  # told to the test, which fails
            message = traceback.format_exc()
        signal.alarm(0)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"number": number, "message": message, "rss": rss}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
