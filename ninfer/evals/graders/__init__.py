"""Graders: from the `grade` object of an item to a function that says what is wrong.

| kind | right is |
| --- | --- |
| `exact` | `answer`; white space and one final dot do not count, `ignore_case` is optional |
| `one_of` | one of `answers`, read as by `exact` |
| `number` | the last number in the text is the integer `answer` |
| `list` | exactly `items` (texts or integers), divided by `separator` or else in a JSON array, by \
commas or lines; `ordered` is on |
| `contains` | all of `all` as whole words and none of `absent`; `ignore_case` is optional |
| `json_object` | one JSON object and nothing else: equal to `answer`, or with exactly `fields` |
| `jsonl`, `csv`, `sql` | records of `fields`, `count`, `table` as `parse_contract` reads them; \
with `rows` exactly these values |
| `story` | `parts` headings "`mark` N" in order, each with a text of its own, `words` in it, \
`ending` at its end |
| `tool_calls` | exactly `calls` (`name`, `arguments`) in this order; [] is an answer without any |
| `language_length` | `share` of the words are of `lexicon`; `least` to `most` of `unit` |

Unknown members are refused. An answer that was cut is wrong whatever its text says.
"""

from ninfer.audit.contracts.parameters import Parameters
from ninfer.evals.graders.registry import KINDS, Grader, grade, parse_grade

__all__ = ["KINDS", "Grader", "Parameters", "grade", "parse_grade"]
