"""`python -m rlseq` is the command `rlseq`."""

from __future__ import annotations

from rlseq.cli.main import main

if __name__ == "__main__":
    main()
