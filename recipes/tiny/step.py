"""Forward and backward passes over batches of one shape: as they come, or as one CUDA graph."""

from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from recipes.tiny.batch import Batch
from recipes.tiny.documents import Documents
from recipes.tiny.losses import Losses, losses
from recipes.tiny.model import DemoModel

_WARM_UP: Final = 3
# Members of a batch, beside its documents, that the captured part reads.
_READ: Final = ("ids", "weights", "targets", "positions")


class Pass:
    """Adds the gradients of batches of one shape to the parameters' `grad`, which must exist.

    Embeddings and the vision tower, whose shapes vary, run outside of what is captured.
    """

    def __init__(self, model: DemoModel, depth: int, pool: Any = None) -> None:
        """`pool` is a handle of memory for captured graphs, which may share it; None: no graphs."""
        self._model, self._depth, self._pool = model, depth, pool
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Batch, scale: Tensor) -> Losses:
        """Gradients of `scale` [] times the total loss; the losses stay valid until the next call.

        `batch` and `scale` are on the model's device.
        """
        rows = self._model.embed(batch)
        if self._pool is None:
            found, grad = self._run(batch, rows.detach().requires_grad_(), scale)
        else:
            if self._graph is None:
                self._record(batch, rows, scale)
            assert self._graph is not None
            _copy(batch, self._batch)
            with torch.no_grad():
                self._rows.copy_(rows)
            self._scale.copy_(scale)
            self._graph.replay()
            found, grad = self._found, self._grad
        rows.backward(grad)
        return found

    def _run(self, batch: Batch, rows: Tensor, scale: Tensor) -> tuple[Losses, Tensor]:
        found = losses(self._model, batch, rows, self._depth)
        grads = torch.autograd.grad(
            found.total * scale, [rows, *self._parameters], allow_unused=True
        )
        pairs = zip(self._parameters, grads[1:], strict=True)
        used = [(_grad(p), new) for p, new in pairs if new is not None]
        with torch.no_grad():
            torch._foreach_add_([old for old, _ in used], [new for _, new in used])
        return found, grads[0]

    def _record(self, batch: Batch, rows: Tensor, scale: Tensor) -> None:
        self._batch = _clone(batch)
        self._rows = rows.detach().clone().requires_grad_()
        self._scale = scale.clone()
        kept = [_grad(p).clone() for p in self._parameters]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._run(self._batch, self._rows, self._scale)
        torch.cuda.current_stream().wait_stream(side)
        torch._foreach_copy_([_grad(p) for p in self._parameters], kept)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=self._pool):
            self._found, self._grad = self._run(self._batch, self._rows, self._scale)


def _grad(parameter: Tensor) -> Tensor:
    """The gradient, which a captured step adds to in place."""
    assert parameter.grad is not None
    return parameter.grad


def _tensors(batch: Batch) -> list[Tensor]:
    """Those that the captured part reads."""
    return [
        *(getattr(batch, name) for name in _READ),
        batch.documents.offsets,
        batch.documents.starts,
    ]


def _copy(source: Batch, target: Batch) -> None:
    torch._foreach_copy_(_tensors(target), _tensors(source))


def _clone(batch: Batch) -> Batch:
    """A batch with tensors of its own wherever the captured part reads."""
    *own, offsets, starts = (tensor.clone() for tensor in _tensors(batch))
    named: dict[str, Any] = dict(zip(_READ, own, strict=True))
    return replace(batch, **named, documents=Documents(offsets, starts), slices=None)
