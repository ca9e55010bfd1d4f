"""Output constraints: schemas, patterns and tool calls as masks of the next token."""

from ninfer.frontend.grammar.build import ConstraintBuilder
from ninfer.frontend.grammar.vocabulary import Vocabulary

__all__ = ["ConstraintBuilder", "Vocabulary"]
