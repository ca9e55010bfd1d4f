"""Steps of binding that drafters share: a dense object by name, rows of a matrix as a view."""

from torch import Tensor

from ninfer.models.qwen3_6.weights import WeightSource
from ninfer.ops.tensors import Weight


def dense(source: WeightSource, name: str) -> Tensor:
    """A stored object that is a plain tensor in every artifact: a norm, a bias, a table."""
    tensor = source(name)
    assert isinstance(tensor, Tensor), name
    return tensor


def row_view(weight: Weight, start: int, stop: int) -> Weight:
    """Rows start..stop - 1 of a matrix, without a copy.

    Raises FormatError for a packed form that cannot be cut there.
    """
    return weight[start:stop] if isinstance(weight, Tensor) else weight.rows(start, stop)
