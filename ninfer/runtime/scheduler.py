"""Scheduler: who waits, who runs, which rows of whom go into the next pass, who gives way."""

from collections import deque
from collections.abc import Callable, Iterator

from ninfer.errors import CapacityError
from ninfer.runtime.batch import Piece
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig, pages_for
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.sequence import Sequence, Status
from ninfer.runtime.state_slots import StateSlotPool

# Generated tokens that a preempted sequence processes again in one pass. Below a chunk of the delta
# rule, so that they go row by row, as they did when they were drawn.
REPLAY_ROWS = PAGE_SIZE - 1


class Scheduler:
    """First come, first served. Pages are taken as a sequence grows; when they run out, the
    youngest running sequence waits again and later does its work once more, to the same bits.

    It owns the queues and moves pages and state slots; it never looks at tensors.
    """

    def __init__(
        self,
        runtime: RuntimeConfig,
        pages: PagePool,
        slots: StateSlotPool,
        *,
        reclaim: Callable[[int], object] = lambda pages: None,
        let_go: Callable[[], bool] = lambda: False,
        is_ready: Callable[[Sequence], bool] = lambda sequence: True,
        released: Callable[[Sequence], None] = lambda sequence: None,
        commits_pages: bool = False,
    ) -> None:
        """`reclaim(n)` tries to free n pages that only caches hold; `let_go` gives up what is held
        for sequences that wait, and says whether that was anything; a sequence starts once
        `is_ready`; `released` hears of every sequence that lost its pages and slot. With
        `commits_pages` no decode piece with drafts reaches across a page border, so that all rows
        before it are committed there."""
        self._runtime = runtime
        self._pages = pages
        self._slots = slots
        self._reclaim = reclaim
        self._let_go = let_go
        self._is_ready = is_ready
        self._released = released
        self._commits_pages = commits_pages
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # oldest first
        self.preemptions = 0
        self.replays = 0  # of sequences that had given way
        self.replayed_tokens = 0

    def add(self, *sequences: Sequence) -> None:
        """Queue sequences. Raises CapacityError, queuing none, when there is no place for all of
        them or one can never fit."""
        places = self._runtime.state_slots - len(self.running) + self._runtime.max_pending
        if len(self.waiting) + len(sequences) > places:
            raise CapacityError(
                f"{len(self.waiting)} requests are waiting already; try again later or raise "
                "--max-pending-requests"
            )
        most = max(s.prompt_length + s.max_tokens - 1 for s in sequences)
        if pages_for(most) > self._pages.capacity:
            raise CapacityError(
                f"prompt and answer need {most} cached tokens, --kv-capacity gives "
                f"{self._pages.capacity * PAGE_SIZE}; ask for fewer tokens or raise it"
            )
        self.waiting.extend(sequences)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is; its pages and slot are free afterwards."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
            self._release(sequence)
        elif sequence.status is Status.WAITING:
            self.waiting.remove(sequence)
        sequence.status = Status.FINISHED

    def admit(self) -> Iterator[Sequence]:
        """Start waiting sequences while there are places and pages for their prompts.

        Yields each with a cleared state slot and no pages yet, for a fork or prefix reuse to fill.
        Those that wait for another one's prompt are passed over.
        """
        while self._slots.free_count:
            sequence = next((s for s in self.waiting if s.leader is None), None)
            if sequence is None or not self._is_ready(sequence):
                return
            needed = pages_for(len(sequence.tokens) + self._runtime.window) - sequence.inherits
            if self.running and not self._available(needed):
                return
            self.waiting.remove(sequence)
            sequence.state_slot = self._slots.allocate()
            sequence.status = Status.RUNNING
            self.running.append(sequence)
            self.replays += sequence.preemptions > 0
            yield sequence

    def plan(self) -> list[Piece]:
        """Pieces of the next pass: every decoding sequence, and one chunk of the oldest other.

        So a long prompt never holds the others back for more than one chunk. Sequences whose media
        are not encoded yet take no part.
        """
        pieces: list[Piece] = []
        chunked = False
        for sequence in list(self.running):
            if sequence.status is not Status.RUNNING or not sequence.is_encoded:
                continue
            if chunked and not sequence.decodes:
                continue
            piece = self._piece(sequence)
            if self._grow(sequence, sequence.cached + piece.count):
                chunked = chunked or not sequence.decodes
                pieces.append(piece)
        return [piece for piece in pieces if piece.sequence.status is Status.RUNNING]

    def _piece(self, sequence: Sequence) -> Piece:
        if sequence.decodes:
            # The last token that may be produced needs no draft behind it.
            drafts = min(len(sequence.drafts), self._runtime.window - 1, sequence.remaining - 1)
            if self._commits_pages:
                left = PAGE_SIZE - sequence.cached % PAGE_SIZE
                drafts = min(drafts, max(left - 2, 0))
            # Without drafts nothing can be rejected, and committing at once is less work.
            return Piece(sequence, 1 + drafts, logits=1 + drafts, held=drafts > 0)
        if sequence.cached < sequence.prompt_length:
            return self._prefill(sequence)
        rest = len(sequence.tokens) - 1 - sequence.cached
        return Piece(sequence, min(rest, REPLAY_ROWS), logits=0)

    def _prefill(self, sequence: Sequence) -> Piece:
        """The next chunk of a prompt; it stops where a prefix is worth keeping."""
        rest = sequence.prompt_length - sequence.cached
        ahead = [border - sequence.cached for border in sequence.borders]
        stop = next((count for count in ahead if count > 0), rest)
        count = min(rest, self._runtime.prefill_chunk, stop)
        wants = count == rest and sequence.generated == 0
        return Piece(sequence, count, logits=int(wants))

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give a sequence the pages that its first `tokens` tokens need; others may give way."""
        missing = pages_for(tokens) - len(sequence.pages)
        while not self._available(missing):
            if self._let_go():
                continue
            youngest = self.running[-1]
            self.preempt(youngest)
            if youngest is sequence:
                return False
        sequence.pages.extend(self._pages.allocate(max(missing, 0)))
        return True

    def room(self, sequence: Sequence, drafts: int) -> int:
        """How many of that many drafts have a place; takes free pages, but nobody else's."""
        missing = pages_for(sequence.cached + 1 + drafts) - len(sequence.pages)
        granted = min(max(missing, 0), self._pages.free_count)
        sequence.pages.extend(self._pages.allocate(granted))
        return max(min(drafts, len(sequence.pages) * PAGE_SIZE - sequence.cached - 1), 0)

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Give a sequence pages for its first `tokens` tokens, if no other has to give way."""
        missing = pages_for(tokens) - len(sequence.pages)
        if not self._available(missing):
            return False
        sequence.pages.extend(self._pages.allocate(max(missing, 0)))
        return True

    def _available(self, pages: int) -> bool:
        """Whether so many pages are free, after caches have given back what they can."""
        if pages > self._pages.free_count:
            self._reclaim(pages - self._pages.free_count)
        return pages <= self._pages.free_count

    def computed(self, sequence: Sequence, rows: int) -> None:
        """Move a sequence's frontier by rows that a pass has computed."""
        before = sequence.cached
        sequence.cached += rows
        self.replayed_tokens += max(min(sequence.lost, sequence.cached) - before, 0)

    def preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's pages and slot; it waits in front and keeps its tokens."""
        self.running.remove(sequence)
        sequence.lost = max(sequence.lost, sequence.cached)
        self._release(sequence)
        sequence.status = Status.WAITING
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._pages.free(sequence.pages)
        self._slots.free(sequence.state_slot)
        sequence.pages = []
        sequence.state_slot = -1
        sequence.cached = 0
        sequence.drafts = []
        self._released(sequence)
