"""What helpers assert is told as fully as what tests do."""

import pytest

pytest.register_assert_rewrite("tests.fire.forks", "tests.training")
