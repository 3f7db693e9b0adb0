"""The learning rules by their names on the command line."""

from __future__ import annotations

from .bp import Backpropagation
from .credit_bridge import CreditBridge
from .dfa import DirectFeedbackAlignment
from .ep import EquilibriumPropagation
from .fa import FeedbackAlignment
from .rule import LearningRule
from .state_bridge import StateBridge

METHODS: dict[str, type[LearningRule]] = {
    "bp": Backpropagation,
    "fa": FeedbackAlignment,
    "dfa": DirectFeedbackAlignment,
    "ep": EquilibriumPropagation,
    "state-bridge": StateBridge,
    "credit-bridge": CreditBridge,
}
