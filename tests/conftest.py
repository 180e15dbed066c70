"""What helpers assert is told as fully as what tests do; and no test looks into the user's own cache of tokens."""

from __future__ import annotations

import os

import pytest

pytest.register_assert_rewrite("tests.fire.forks", "tests.training")


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes that tests start inherit it."""
    os.environ["RLSEQ_CACHE"] = str(tmp_path_factory.mktemp("cache"))
