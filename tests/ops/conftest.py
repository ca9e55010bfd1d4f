"""Kernels compiled for the processor take minutes: `make soak` runs all, `make e2e` a sample."""

import pytest

# Every so-manieth test of these files, counted from the first.
EMULATED = (
    "test_ops_attention_cuda_host.py",
    "test_ops_cuda_host_draw.py",
    "test_ops_cuda_host_moe.py",
    "test_ops_delta_cuda_host.py",
)
STEP = 8


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the sample before anything is chosen by its marks."""
    for name in EMULATED:
        own = [item for item in items if item.path.name == name]
        for item in own[::STEP]:
            item.add_marker(pytest.mark.e2e)
