"""What helpers assert is told as fully as what tests do; and no test looks into the user's own cache of tokens."""

from __future__ import annotations

import gc
import os

import pytest

pytest.register_assert_rewrite("tests.fire.forks", "tests.training")


# An exporter makes millions of objects that live on, beside those of the imports: looked through as often as is usual,
# they take a tenth of its time.
GC_THRESHOLDS = (20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def garbage_of_tests() -> None:
    """Look for garbage less often, and not in what was imported."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes that tests start inherit it."""
    os.environ["RLSEQ_CACHE"] = str(tmp_path_factory.mktemp("cache"))
