"""What the card's memory gives: a kernel that only reads, the roof of the streaming products."""

from typing import Final

from torch import Tensor

from ninfer.ops.linear.launcher import Launch, kernel, start

_THREADS: Final = 512
_BLOCKS_EACH: Final = 4
_UNIT: Final = 16
_ROUNDS: Final = 64


def read_all(buffer: Tensor, sink: Tensor) -> None:
    """Read a contiguous buffer of a multiple of 1024 bytes once; `sink` holds one int32."""
    assert buffer.is_contiguous() and buffer.nbytes % (_UNIT * _ROUNDS) == 0, buffer.nbytes
    found = kernel(buffer.device.index, "read.cu", "read_memory", ())
    blocks = _BLOCKS_EACH * found.multiprocessors
    how = Launch(blocks, _THREADS, shared_bytes=0, dependent=False)
    sizes = (buffer.nbytes // (_UNIT * _ROUNDS), _ROUNDS)
    start(found, how, (buffer.data_ptr(), sink.data_ptr()), sizes)
