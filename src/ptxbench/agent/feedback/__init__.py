"""What a model reads after a turn, made from the verdict alone: `render_feedback`; nothing is judged or sent here."""

from ptxbench.agent.feedback.context import DEFAULT_BUDGET, Best, TurnContext, tokens
from ptxbench.agent.feedback.render import render_feedback

__all__ = ["DEFAULT_BUDGET", "Best", "TurnContext", "render_feedback", "tokens"]
