"""Sums, differences and products: worked digit by digit in a thought, or small ones at once."""

import random
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered
from recipes.tiny.words import FRUITS, NAMES

_SIGNS: Final = {"+": ("+", "plus"), "-": ("-", "minus"), "x": ("x", "*", "times", "×")}

# Question and whether only the number is wanted.
_PHRASES: Final = (
    ("What is {}?", False),
    ("Compute {}.", False),
    ("Calculate {}.", False),
    ("{} = ?", False),
    ("How much is {}?", False),
    ("Please work out {}.", False),
    ("What is {}? Answer with the number only.", True),
    ("Compute {}. Give only the number.", True),
    ("{}\nOnly the result, please.", True),
)


def arithmetic(rng: random.Random) -> Sample:
    """Up to four digits, or products of two digits each, with a thought; a fifth are easy ones."""
    kind = rng.random()
    if kind < 0.12:
        return _asked(rng, *_easy(rng), thinking=False)
    if kind < 0.20:
        return word_problem(rng)
    if kind < 0.45:
        return _asked(rng, "x", rng.randint(10, 99), rng.randint(10, 99), thinking=True)
    sign = "+" if kind < 0.73 else "-"
    left, right = (_number(rng) for _ in range(2))
    if sign == "-" and left < right and rng.random() < 0.7:
        left, right = right, left
    return _asked(rng, sign, left, right, thinking=True)


def arithmetic_direct(rng: random.Random) -> Sample:
    """Sums and differences up to four digits and small products, answered without a thought."""
    kind = rng.random()
    if kind < 0.3:
        return _asked(rng, *_easy(rng), thinking=False)
    if kind < 0.4:
        return _asked(rng, "x", rng.randint(2, 99), rng.randint(2, 9), thinking=False)
    sign = "+" if kind < 0.7 else "-"
    left, right = sorted((_number(rng), _number(rng)), reverse=True)
    return _asked(rng, sign, left, right, thinking=False)


def word_problem(rng: random.Random) -> Sample:
    """A person who gets or gives away fruits; small numbers."""
    name, fruit = rng.choice(NAMES), rng.choice(FRUITS)
    plural = fruit[:-1] + "ies" if fruit.endswith("y") else fruit + "es"
    plural = plural if fruit.endswith(("y", "o", "ch")) else fruit + "s"
    if rng.random() < 0.5:
        left, right = rng.randint(2, 30), rng.randint(2, 20)
        total, text = left + right, f"{name} has {left} {plural} and buys {right} more."
        sum_text = f"{left} + {right} = {total}"
    else:
        left = rng.randint(4, 30)
        right = rng.randint(2, left - 1)
        total, text = left - right, f"{name} has {left} {plural} and gives {right} away."
        sum_text = f"{left} - {right} = {total}"
    question = f"{text} How many {plural} does {name} have now?"
    answer = f"{name} has {total} {plural if total != 1 else fruit} now."
    thought = f"{sum_text}." if rng.random() < 0.5 else ""
    return answered(rng, "arithmetic", question, answer, _grade(total), thought)


def _number(rng: random.Random) -> int:
    digits = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 4))
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def _easy(rng: random.Random) -> tuple[str, int, int]:
    sign = rng.choice("++--x")
    if sign == "x":
        return sign, rng.randint(2, 10), rng.randint(2, 10)
    left, right = rng.randint(0, 30), rng.randint(0, 20)
    return (sign, left, right) if sign == "+" else (sign, max(left, right), min(left, right))


def _asked(rng: random.Random, sign: str, left: int, right: int, *, thinking: bool) -> Sample:
    result = {"+": left + right, "-": left - right, "x": left * right}[sign]
    phrase, only_number = rng.choice(_PHRASES)
    shown = rng.choice(_SIGNS[sign])
    answer = str(result) if only_number else f"{left} {sign} {right} = {result}"
    thought = ""
    if thinking:
        work = {"+": add_by_columns, "-": subtract_by_columns, "x": multiply_by_parts}[sign]
        thought = work(left, right)
    question = phrase.format(f"{left} {shown} {right}")
    return answered(rng, "arithmetic", question, answer, _grade(result), thought)


def _grade(result: int) -> dict[str, object]:
    return {"kind": "number", "answer": result}


def add_by_columns(left: int, right: int) -> str:
    """The sum worked from the right, each line with what stands below the bar so far.

    >>> print(add_by_columns(1234, 567))
    1234 + 0567
    4 + 7 = 11, carry 1: 1
    3 + 6 + 1 = 10, carry 1: 01
    2 + 5 + 1 = 8: 801
    1 + 0 = 1: 1801
    """
    width = max(len(str(left)), len(str(right)))
    tops, bottoms = f"{left:0{width}}", f"{right:0{width}}"
    lines, carry, below = [f"{tops} + {bottoms}"], 0, ""
    for place in reversed(range(width)):
        total = int(tops[place]) + int(bottoms[place]) + carry
        last = " + 1" if carry else ""
        carry = total // 10
        below = (str(total % 10) if place else str(total)) + below
        note = ", carry 1" if carry and place else ""
        lines.append(f"{tops[place]} + {bottoms[place]}{last} = {total}{note}: {below}")
    return "\n".join(lines)


def subtract_by_columns(left: int, right: int) -> str:
    """The difference worked from the right; of a negative one the amount first.

    >>> print(subtract_by_columns(403, 58))
    403 - 058
    13 - 8 = 5, borrow 1: 5
    10 - 5 - 1 = 4, borrow 1: 45
    4 - 0 - 1 = 3: 345
    """
    if left < right:
        amount = right - left
        return (
            f"{left} is less than {right}, so the result is negative.\n"
            f"{subtract_by_columns(right, left)}\n{left} - {right} = -{amount}"
        )
    width = len(str(left))
    tops, bottoms = str(left), f"{right:0{width}}"
    lines, borrow, below = [f"{tops} - {bottoms}"], 0, ""
    for place in reversed(range(width)):
        last = " - 1" if borrow else ""
        top, bottom = int(tops[place]), int(bottoms[place])
        missing = bottom + borrow
        borrow = int(top < missing)
        top += 10 * borrow
        below = f"{top - missing}{below}"
        note = ", borrow 1" if borrow else ""
        lines.append(f"{top} - {bottom}{last} = {top - missing}{note}: {below}")
    if str(left - right) != below:
        lines.append(f"{below} is {left - right}")
    return "\n".join(lines)


def multiply_by_parts(left: int, right: int) -> str:
    """A product of two-digit numbers from those of their digits.

    >>> print(multiply_by_parts(47, 36))
    47 x 30: 40 x 30 = 1200, 7 x 30 = 210, 1200 + 210 = 1410
    47 x 6: 40 x 6 = 240, 7 x 6 = 42, 240 + 42 = 282
    1410 + 0282
    0 + 2 = 2: 2
    1 + 8 = 9: 92
    4 + 2 = 6: 692
    1 + 0 = 1: 1692
    """
    tens, ones = left // 10 * 10, left % 10
    lines, parts = [], []
    for factor in (right // 10 * 10, right % 10):
        high, low = tens * factor, ones * factor
        lines.append(
            f"{left} x {factor}: {tens} x {factor} = {high}, {ones} x {factor} = {low},"
            f" {high} + {low} = {high + low}"
        )
        parts.append(high + low)
    return "\n".join([*lines, add_by_columns(*parts)])
