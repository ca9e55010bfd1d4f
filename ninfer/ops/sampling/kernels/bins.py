"""Arithmetic that the sampling kernels share: bins of logits, weights, order, random numbers."""

import triton
import triton.language as tl

# A row's logits are sorted into bins by y = (best - x) / temperature: 128 bins for each octave of
# y, from 2^-10 on; smaller y share the first bin, y >= 2^6 the last one, where weights are 0.
BINS = tl.constexpr(2048)
# Bins of a row are kept this often, one for every so many blocks: atomics on one address, or on the
# few slices of a cache that hold one copy, wait for each other.
COPIES = tl.constexpr(8)
FIRST_BIN = tl.constexpr((127 - 10) << 7)
# Weights are whole numbers of 2^-44, so that their sums have no order; 2^18 of them fit.
WEIGHT_ONE = tl.constexpr(1 << 44)
# More than any sum of weights.
ALL = tl.constexpr((1 << 63) - 1)

# Columns of the settings of a row, all float64 but the last two, which hold the bits of an int64.
HEAT = tl.constexpr(0)  # 1 for a greedy row, which keeps the best candidate only
SCALE = tl.constexpr(1)  # 1 / HEAT as a float32
KEEP = tl.constexpr(2)  # 0: all
NUCLEUS = tl.constexpr(3)
FLOOR = tl.constexpr(4)
PLACE = tl.constexpr(5)  # u
LOW_KEEP = tl.constexpr(6)  # the least weight that the top-k can have
LOW = tl.constexpr(7)  # the least weight that all kept candidates can have
SETTINGS = tl.constexpr(8)


@triton.jit
def bins_of(x, best, scale):
    """The bin of each logit: never falls where logits fall, since each step is rounded rightly."""
    y = (best - x) * scale
    return tl.minimum(tl.maximum((y.to(tl.int32, bitcast=True) >> 16) - FIRST_BIN, 0), BINS - 1)


@triton.jit
def weights_of(x, best, heat):
    """exp((x - best) / heat) in units of 2^-44, heat a float64."""
    power = tl.exp((x.to(tl.float64) - best.to(tl.float64)) / heat)
    return (power * WEIGHT_ONE + 0.5).to(tl.int64)


@triton.jit
def reached(share, mass):
    """The least whole number that is not below share * mass, both >= 0."""
    exact = share * mass.to(tl.float64)
    whole = exact.to(tl.int64)
    return tl.where(whole.to(tl.float64) < exact, whole + 1, whole)


@triton.jit
def drawn_at(u, mass):
    """What a running weight must exceed to be the draw: u * mass cut down, below mass."""
    return tl.minimum((u * mass.to(tl.float64)).to(tl.int64), mass - 1)


@triton.jit
def keys_of(x):
    """0..2^32 - 1 as int64, rising where logits fall; -0 and 0 are equal."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True).to(tl.int64)
    return tl.where(bits >= 0, 0x7FFFFFFF - bits, 0x100000000 + bits)


@triton.jit
def logit_of(key):
    """The logit behind a key."""
    bits = tl.where(key <= 0x7FFFFFFF, 0x7FFFFFFF - key, key - 0x100000000)
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _mix(x):
    """One step of splitmix64 on uint64."""
    x += 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def uniform_bits(seed, position, purpose):
    """`ninfer.ops.uniform_bits` of int64 blocks, bit for bit; -> int64 below 2^24."""
    key = _mix(seed.to(tl.uint64) ^ (position.to(tl.uint64) * 0xD1B54A32D192ED03))
    key = _mix(key ^ (purpose.to(tl.uint64) << 21))
    return (key >> 40).to(tl.int64)
