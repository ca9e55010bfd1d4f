"""The cache of decoded media: least recently used first out, never more bytes than it may hold."""

import threading

import numpy as np

from ninfer.frontend.media.cache import MediaCache
from ninfer.request import Media

SIZE = 100


def media(seed: int, size: int = SIZE) -> Media:
    return Media("image", (1, 1, 1), np.full((1, size), seed, np.uint8), bytes([seed]))


def test_the_least_recently_used_goes_first() -> None:
    cache = MediaCache(3 * SIZE)
    keys = [cache.key("image", bytes([seed])) for seed in range(4)]
    for seed in range(3):
        cache.put(keys[seed], media(seed))
    assert cache.get(keys[0]) == media(0)
    cache.put(keys[3], media(3))
    assert cache.get(keys[1]) is None
    assert [cache.get(keys[seed]) is not None for seed in (0, 2, 3)] == [True] * 3
    assert cache.held_bytes == 3 * SIZE


def test_kinds_and_sizes() -> None:
    cache = MediaCache(SIZE)
    picture, video = cache.key("image", b"a"), cache.key("video", b"a")
    cache.put(picture, media(1))
    assert cache.get(video) is None
    cache.put(video, media(2, SIZE + 1))
    assert cache.get(video) is None and cache.get(picture) is not None
    cache.put(picture, media(1))
    assert cache.held_bytes == SIZE
    none = MediaCache(0)
    none.put(picture, media(1))
    assert none.get(picture) is None


def test_many_threads_keep_the_count() -> None:
    cache = MediaCache(5 * SIZE)

    def work(start: int) -> None:
        for step in range(500):
            seed = (start + step) % 20
            key = cache.key("image", bytes([seed]))
            found = cache.get(key)
            assert found is None or found.digest == bytes([seed])
            cache.put(key, media(seed))

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.held_bytes == 5 * SIZE
