"""The knowledge packs: what a model is told about a target and its PTX; prompts are not made here."""

from ptxbench.knowledge.hub import Hub, load_hub
from ptxbench.knowledge.pack import Pack, Part, load_pack, packs_for
from ptxbench.knowledge.tokens import TOKENIZER, count_tokens

__all__ = ["TOKENIZER", "Hub", "Pack", "Part", "count_tokens", "load_hub", "load_pack", "packs_for"]
