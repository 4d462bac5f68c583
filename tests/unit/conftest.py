"""What every unit test leaves as it was."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A command that was run here starts logging, which others would find in what they log."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
