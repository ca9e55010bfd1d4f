"""Arithmetic that several Triton kernels share: rounding to a type, activations, exact products."""

import triton
import triton.language as tl


@triton.jit
def rounded(x, TYPE: tl.constexpr, PLAIN: tl.constexpr):
    """float32 x rounded to the nearest value of a narrower TYPE, still as float32.

    PLAIN is for the interpreter, which cuts float32 down to bf16 where a card rounds.
    """
    if tl.float32 == TYPE:
        return x
    elif PLAIN and tl.bfloat16 == TYPE:
        bits = x.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        return (bits & -65536).to(tl.float32, bitcast=True)
    else:
        return x.to(TYPE).to(tl.float32)


@triton.jit
def only_if(mask, flag):
    """The mask where a flag, of one number or of a shape that fits, is set; all off elsewhere.

    The interpreter makes integers of a mask & a single flag.
    """
    return tl.where(flag, mask, mask ^ mask)


@triton.jit
def silu(x):
    """x * sigmoid(x)."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), and x above 20."""
    y = tl.exp(tl.minimum(x, 20.0))
    whole = 1.0 + y
    # What `whole` has lost of y is made good by the quotient, whose divisor is exact.
    lost = whole == 1.0
    log = tl.where(lost, y, tl.log(whole) * y / tl.where(lost, 1.0, whole - 1.0))
    return tl.where(x > 20.0, x, log)


@triton.jit
def _parts(x, HALF: tl.constexpr):
    """float32 x as a sum of three numbers of a 16-bit type, to 24 bits in all for bf16."""
    high = x.to(HALF)
    rest = x - high.to(tl.float32)
    middle = rest.to(HALF)
    return high, middle, (rest - middle.to(tl.float32)).to(HALF)


@triton.jit
def stored_product(a, x, HALF: tl.constexpr):
    """a @ x in float32 precision, for `a` of type HALF and float32 x; HALF float32: plain."""
    if tl.float32 == HALF:
        return tl.dot(a, x, input_precision="ieee")
    else:
        high, middle, low = _parts(x, HALF)
        return tl.dot(a, high, tl.dot(a, middle, tl.dot(a, low)))


@triton.jit
def wide_product(x, y, HALF: tl.constexpr):
    """x @ y in float32 precision, for float32 x and y."""
    if tl.float32 == HALF:
        return tl.dot(x, y, input_precision="ieee")
    else:
        a, b, c = _parts(x, HALF)
        d, e, f = _parts(y, HALF)
        total = tl.dot(a, f, tl.dot(b, e, tl.dot(c, d)))
        return tl.dot(a, d, tl.dot(a, e, tl.dot(b, d, total)))
