"""A whole round asks nothing of the host: every shape and drafter, at full size, without a card.

What runs here has no memory, so whatever waits for a number fails, and so does a copy from the
host: neither can be captured into a graph.
"""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ninfer.convert.synthetic_model import synthetic_model
from ninfer.errors import UsageError
from ninfer.kits.decode_calls import SHAPES, decode_calls, round_calls
from ninfer.kits.launches import models
from ninfer.models.qwen3_6 import recipe_for
from ninfer.ops import dispatch
from ninfer.ops.launch import redirected
from ninfer.ops.tiers import PORTABLE

DENSE, MOE = "qwen3.6-27b", "qwen3.6-35b-a3b"


class Watch(TorchDispatchMode):
    """Counts what torch itself would launch; takes down tensors of the host."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: Counter[str] = Counter()
        self.of_host: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # torch's own
        given = tree_leaves((args, kwargs or {}))
        if any(isinstance(x, torch.Tensor) and x.device.type != "meta" for x in given):
            self.of_host.append(str(func))
        if not func.is_view and "empty" not in str(func):
            self.launched[str(func)] += 1
        return func(*args, **(kwargs or {}))


def watched(call: Callable[[], object]) -> tuple[Watch, Counter[str]]:
    """What torch launches in a call, and what the kernels' launcher does."""
    kernels: Counter[str] = Counter()

    def count(kernel, grid, values, options):  # as the launcher
        kernels[getattr(kernel, "__name__", None) or kernel.fn.__name__] += 1

    with redirected(count, 90), Watch() as watch:
        call()
    return watch, kernels


@pytest.fixture(autouse=True)
def portable():  # a fixture
    with dispatch.using("portable", only=PORTABLE.ops):
        yield


@pytest.mark.parametrize(
    ("like", "spec", "drafter", "most"),
    [
        (DENSE, None, None, 13),
        (MOE, None, None, 13),
        (DENSE, "mtp", None, 38),
        (MOE, "mtp", None, 38),
        (MOE, "dflash", None, 22),
        (DENSE, "dflash2", "dflash2", 60),
    ],
)
def test_a_round_waits_for_nothing(
    like: str, spec: str | None, drafter: str | None, most: int
) -> None:
    made = synthetic_model(like, "full", drafter=drafter)
    recipe = recipe_for(made.config, made.identity.weights_id)
    shapes = ((1, 1), (3, 4))
    calls = list(round_calls(made.config, recipe, spec, shapes=shapes))
    assert len(calls) == (2 if spec else 1)
    for call in calls:
        watch, kernels = watched(call)
        assert not watch.of_host
        assert sum(watch.launched.values()) <= most, watch.launched
        assert kernels["prepare"] == kernels["count_right"] == 1


def test_the_launches_of_a_round_are_those_of_its_layers() -> None:
    """The model's own part is what a pass launches; a round adds a dozen kernels."""
    made = synthetic_model(DENSE, "full")
    recipe = recipe_for(made.config, made.identity.weights_id)
    (call,) = round_calls(made.config, recipe, None, shapes=((1, 1),))
    _, kernels = watched(call)
    text = made.config.text
    assert kernels["delta_net_rows"] == len(text.gdn_layers)
    assert kernels["attend_splits"] == len(text.attention_layers)
    assert sum(kernels.values()) <= 18 * text.layers


def test_rounds_of_a_registered_model_are_listed_with_each_drafter() -> None:
    plain = sum(width == 1 for _, width in SHAPES)
    of_mtp = sum(width <= 6 for _, width in SHAPES)
    (name,) = [name for name in models() if name == "qwen3.6-35b-a3b/groupwise-int"]
    assert len(decode_calls(name)) == plain + of_mtp + len(SHAPES)
    with pytest.raises(UsageError, match="'gpt' has no list of kernels"):
        decode_calls("gpt")
