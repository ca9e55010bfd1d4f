"""The tree of cached pages: one node a page, shared beginnings once, states at some borders."""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.prefix_keys import PageContent, PrefixKey, difference, root_hash
from ninfer.runtime.state_snapshots import Snapshot

# A miss compares with so many cached conversations at most, the newest first.
_NEAREST: Final = 256


@dataclass(slots=True, eq=False)
class Boundary:
    """A state kept behind a page, and how it has been used."""

    snapshot: Snapshot
    used: int  # tick of the last use
    uses: int = 1


@dataclass(slots=True, eq=False)
class Node:
    """A cached page; a root has no page, and a salt instead."""

    chain: bytes
    depth: int  # pages up to and with this one
    page: int = -1
    content: PageContent | None = None
    parent: "Node | None" = None
    children: dict[bytes, "Node"] = field(default_factory=dict)
    boundary: Boundary | None = None
    lost: bool = False  # it had a state once
    salt: bytes = b""

    def upwards(self) -> Iterator["Node"]:
        """This node and the pages before it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    @property
    def base(self) -> int:
        """Depth of the nearest border with a state before this page, 0 without one."""
        node = self.parent
        while node is not None and node.boundary is None:
            node = node.parent
        return 0 if node is None else node.depth

    @property
    def tail(self) -> list["Node"]:
        """Pages that only this leaf's state makes reusable, itself first."""
        pages, node = [self], self.parent
        while node is not None and node.parent is not None:
            if node.boundary is not None or len(node.children) > 1:
                break
            pages.append(node)
            node = node.parent
        return pages

    @property
    def path(self) -> list["Node"]:
        """The pages from the first to this one."""
        return list(self.upwards())[::-1]


class PrefixTree:
    """Pages by what they hold. Every leaf has a state: pages behind the last one are of no use."""

    def __init__(self) -> None:
        self._roots: dict[bytes, Node] = {}
        self.borders: dict[Node, Boundary] = {}

    def walk(self, key: PrefixKey, limit: int) -> list[Node]:
        """The longest chain of cached pages with equal content, at most `limit` of them."""
        node = self._roots.get(key.salt)
        path: list[Node] = []
        while node is not None and len(path) < limit:
            node = node.children.get(key.chain(len(path) + 1))
            # Equal hashes are a hint only.
            if node is None or node.content != key.page(len(path)):
                break
            path.append(node)
        return path

    def extend(self, key: PrefixKey, path: list[Node], pages: Items[int]) -> list[Node] | None:
        """Append pages behind `path`; the last node must get a boundary.

        None, changing nothing, when a page with other content has the same hash.
        """
        parent = path[-1] if path else self._root(key.salt)
        if pages and key.chain(parent.depth + 1) in parent.children:
            return None
        longer = list(path)
        for page in pages:
            depth = parent.depth + 1
            node = Node(key.chain(depth), depth, page, key.page(depth - 1), parent)
            parent.children[node.chain] = node
            longer.append(node)
            parent = node
        return longer

    def mark(self, node: Node, boundary: Boundary) -> None:
        """Keep a state behind this page."""
        assert node.boundary is None and node.parent is not None
        node.boundary = self.borders[node] = boundary
        node.lost = False

    def unmark(self, node: Node) -> list[Node]:
        """Drop the state behind this page; returns the pages that went with it."""
        assert node.boundary is not None
        gone = [] if node.children else node.tail
        node.boundary = None
        node.lost = True
        del self.borders[node]
        if gone:
            parent = gone[-1].parent
            assert parent is not None
            del parent.children[gone[-1].chain]
            if parent.parent is None and not parent.children:
                self._roots = {s: root for s, root in self._roots.items() if root is not parent}
        return gone

    def nearest_difference(self, key: PrefixKey, path: list[Node]) -> tuple[int, bool] | None:
        """First token at which cached conversations leave `key` behind `path`, and if by media.

        None when no cached page follows, or when `key` has no whole page there.
        """
        node = path[-1] if path else self._roots.get(key.salt)
        if node is None or len(path) >= key.pages:
            return None
        content, found = key.page(len(path)), None
        for child in islice(reversed(node.children.values()), _NEAREST):
            assert child.content is not None
            unlike = difference(child.content, content)
            if unlike is not None and (found is None or unlike > found):
                found = unlike
        return None if found is None else (found[0] + len(path) * PAGE_SIZE, found[1])

    def other_salt(self, key: PrefixKey) -> bool:
        """Whether the first page is cached under another salt."""
        first = key.page(0)
        return any(
            child.content == first
            for salt, root in self._roots.items()
            if salt != key.salt
            for child in islice(reversed(root.children.values()), _NEAREST)
        )

    def nodes(self) -> Iterator[Node]:
        """All pages."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if node.parent is not None:
                yield node
            stack.extend(node.children.values())

    def check(self) -> None:
        """Assert the structure: links, hashes, depths, and a state at every leaf."""
        marked = set()
        for node in self.nodes():
            parent = node.parent
            assert parent is not None and parent.children[node.chain] is node
            assert node.depth == parent.depth + 1
            assert node.children or node.boundary is not None, "a leaf without a state"
            if node.boundary is not None:
                marked.add(node)
        assert marked == set(self.borders)

    def _root(self, salt: bytes) -> Node:
        if salt not in self._roots:
            self._roots[salt] = Node(root_hash(salt), 0, salt=salt)
        return self._roots[salt]
