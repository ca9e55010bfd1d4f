"""One run of rows through `delta_net`, in pieces of any lengths, held or not, on any device."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ninfer import ops
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

SLOT = 1
Sizes = tuple[int, int, int, int]  # Hk, Hv, Dk, Dv


@dataclass(frozen=True)
class Scene:
    """Sizes, number types and device of a run."""

    sizes: Sizes = (1, 2, 32, 16)
    taps: int = 4
    window: int = 0
    dtype: torch.dtype = torch.float32
    kept: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def channels(self) -> int:
        """Of the convolution."""
        shared, heads, key, value = self.sizes
        return 2 * shared * key + heads * value

    def noise(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Normal numbers."""
        return torch.randn(shape).to(self.device, dtype or self.dtype)

    def rows(self, count: int) -> DeltaRows:
        """Random projections of `count` rows."""
        shared, heads, key, value = self.sizes
        return DeltaRows(
            *(self.noise(count, shared, key) for _ in range(2)),
            *(self.noise(count, heads, value) for _ in range(2)),
            *(self.noise(count, heads) for _ in range(2)),
        )

    def weights(self) -> DeltaWeights:
        """Random weights."""
        heads, value = self.sizes[1], self.sizes[3]
        return DeltaWeights(
            self.noise(self.taps, self.channels),
            *(self.noise(heads, dtype=torch.float32) for _ in range(2)),
            self.noise(value),
        )

    def empty(self, slots: int = 2) -> tuple[ConvState, DeltaState]:
        """States at zero, and windows of NaN: nothing of them may be read before it is written."""
        shared, heads, key, value = self.sizes
        pending = torch.zeros(slots, dtype=torch.int64, device=self.device)

        def full(*shape: int, dtype: torch.dtype = self.dtype, fill: float = torch.nan) -> Tensor:
            return torch.full((slots, *shape), fill, dtype=dtype, device=self.device)

        conv = ConvState(
            full(self.taps - 1, self.channels, fill=0.0), full(self.window, self.channels), pending
        )
        gates = [full(self.window, heads, dtype=torch.float32) for _ in range(2)]
        delta = DeltaState(
            full(heads, value, key, dtype=self.kept, fill=0.0),
            full(self.window, shared, key),
            full(self.window, heads, value),
            *gates,
            pending,
            torch.zeros(slots, shared, dtype=torch.int32, device=self.device),
        )
        return conv, delta

    def ragged(self, stop: int, count: int, *, held: bool = False) -> RaggedRows:
        """The `count` rows before position `stop` of one sequence."""

        def integers(*values: int) -> Tensor:
            return torch.tensor(values, device=self.device)

        flags = torch.tensor([held], device=self.device)
        return RaggedRows(
            integers(0, count), integers(stop), integers(0).unsqueeze(0), integers(SLOT), flags
        )


def part_of(x: DeltaRows, start: int, stop: int) -> DeltaRows:
    """Copies of rows start..stop - 1."""
    return DeltaRows(*(getattr(x, f.name)[start:stop].clone() for f in fields(x)))


def joined(x: DeltaRows, y: DeltaRows) -> DeltaRows:
    """Rows of one behind those of the other."""
    return DeltaRows(*(torch.cat((getattr(x, f.name), getattr(y, f.name))) for f in fields(x)))


def run(
    x: DeltaRows,
    weights: DeltaWeights,
    state: tuple[ConvState, DeltaState],
    rows: RaggedRows,
) -> Tensor:
    """One call."""
    return ops.delta_net(x, weights, *state, rows, eps=1e-6)


def committed(state: tuple[ConvState, DeltaState]) -> tuple[Tensor, Tensor]:
    """What the sequence's slot holds."""
    return state[0].inputs[SLOT], state[1].matrix[SLOT]


def in_pieces(
    scene: Scene, x: DeltaRows, weights: DeltaWeights, cuts: list[int], behind: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs and final state of a run of rows, cut there, from position `behind` on."""
    state, start, outputs = scene.empty(), 0, []
    for stop in cuts:
        rows = scene.ragged(behind + stop, stop - start)
        outputs.append(run(part_of(x, start, stop), weights, state, rows))
        start = stop
    return torch.cat(outputs), *committed(state)


def in_windows(
    scene: Scene, x: DeltaRows, weights: DeltaWeights, count: int, behind: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in windows of random lengths, of which a random part is accepted.

    Rejected rows are noise; the last row of all commits what is pending.
    """
    generator = torch.Generator().manual_seed(seed)
    state, start, outputs = scene.empty(), 0, []
    while start < count:
        length = int(torch.randint(1, scene.window + 1, (1,), generator=generator))
        accepted = min(int(torch.randint(0, length + 1, (1,), generator=generator)), count - start)
        held = accepted < length or bool(torch.randint(0, 2, (1,), generator=generator))
        piece = joined(part_of(x, start, start + accepted), scene.rows(length - accepted))
        rows = scene.ragged(behind + start + length, length, held=held)
        outputs.append(run(piece, weights, state, rows)[:accepted])
        state[1].pending[SLOT] = accepted if held else 0
        start += accepted
    last = run(part_of(x, count, count + 1), weights, state, scene.ragged(behind + count + 1, 1))
    assert not bool(state[1].arrivals.any())
    return torch.cat((*outputs, last)), *committed(state)


def with_long(rows: RaggedRows, longest: int | None) -> RaggedRows:
    """The rows with what the host knows of their lengths."""
    return replace(rows, longest=longest)
