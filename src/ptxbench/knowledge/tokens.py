"""Counts tokens by a plain rule, the same everywhere; no model's vocabulary is here."""

from __future__ import annotations

import re

TOKENIZER = "ptxbench-pieces-1"
"""The rule's name and version; it changes when a count would."""

_PIECE = re.compile(
    r"""
    (?P<word>[ ]?[A-Za-z]+)        # a word with the space before it
  | (?P<number>[0-9])              # each digit, as byte-pair vocabularies of code models cut them
  | (?P<marks>[ ]?[^\sA-Za-z0-9]+) # operators and punctuation
  | (?P<space>\s+)
    """,
    re.VERBOSE,
)
LETTERS = 7
"""Letters of a word that one token holds."""
MARKS = 2
"""Characters of a run of punctuation that one token holds."""


def count_tokens(text: str) -> int:
    """Tokens of a text by the rule `ptxbench-pieces-1`.

    A word costs one token per started seven letters, a digit one, a run of punctuation one per started two characters.
    The space before a word or a mark is free, any other run of white space costs one.
    """
    return sum(_cost(match) for match in _PIECE.finditer(text))


def _cost(match: re.Match[str]) -> int:
    piece = match[0].strip(" ")
    if match["word"]:
        return -(-len(piece) // LETTERS)
    if match["marks"]:
        return -(-len(piece) // MARKS)
    return 1
