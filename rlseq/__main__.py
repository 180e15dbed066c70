"""The command `rlseq`, also as `python -m rlseq`."""

from __future__ import annotations


def main() -> None:
    """Run the command; a Ctrl-C while its parts are still being imported is one too."""
    try:
        from rlseq.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
