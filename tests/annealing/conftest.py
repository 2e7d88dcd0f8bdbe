import pytest


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly(quick_compilation):
    """Most of the time here goes to compilation."""
