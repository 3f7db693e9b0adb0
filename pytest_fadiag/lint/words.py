"""The vocabulary of the field: which names speak of gradients, of cosines, of layers, of batches, of feedback."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=65536)
def words(name: str) -> frozenset[str]:
    """The words of a name, in lower case: ``bpGrads_l2`` has bp, grads, l and 2."""
    return frozenset(word.lower() for word in _WORD.findall(name))


def names(text: str) -> frozenset[str]:
    """The names in a text, as they are written."""
    return frozenset(text.split())


GRADIENT = words("grad grads gradient gradients credit credits delta deltas feedback vjp dgrad wgrad")
# Next to a gradient word these make the name something else: a flag, a scalar, a loss, an image, a tool of training.
_NOT_A_GRADIENT = words(
    """no requires require zero enable enabled checkpoint checkpointing scaler reverse reversal accumulation cam fn mode is has
    needs need norm norms loss losses penalty similarity similarities sim sims cos cosine cosines alignment angle angles ratio
    steps step time weighting boosting mask masks score scores idx index text prompt"""
)
COSINE = words(
    """cos cosine cosines coses cosim cossim cossims cosdist similarity similarities sim sims alignment alignments gamma gammas
    angle angles"""
)
# These say by themselves that the cosine is one of credit.
ALIGNMENT = words("alignment alignments gamma gammas credit credits dfa")
LAYER = words(
    """layer layers param params parameter parameters module modules block blocks children weights stages depth hiddens hidden
    activations acts names"""
)
GRADIENT_LIST = words("grads gradients deltas credits feedbacks")
LAYER_INDEX = words("l li layer block param p module name")
BATCH = words(
    """batch batches minibatch minibatches loader dataloader sample samples dataset examples epoch epochs step steps seed seeds
    run runs task tasks client clients models domain domains envs trial trials chunk chunks views users tokens positions"""
)
NORM = words("norm norms normed magnitude magnitudes rms amax")
UNIT = words("normalize normalized normalise normalised normed unit units rescale rescaled direction directions")
FEEDBACK = words("feedback feedbacks fb fbs")
# Words that say a file is about training with feedback: a bare B is only then a feedback matrix.
FEEDBACK_CONTEXT = words("feedback dfa drtp fa")


@lru_cache(maxsize=65536)
def names_gradient(name: str) -> bool:
    """Whether a name says that what it names is a gradient or another credit signal."""
    parts = words(name)
    return bool(parts & GRADIENT) and not parts & _NOT_A_GRADIENT
