"""Which training samples deserve augmentation: a tenth of them often gives most of its gain.

Augmenting costs CPU for every sample; most samples move the model little. A policy picks the
samples to augment by their loss or their influence, and a probe inside the training set says
whether it beats a random pick here: on some features it loses.

    >>> from ettr.samples import choose_policy, influence, pick
    >>> choice = choose_policy(evaluate, labels, scores, budget=0.1, rng=rng)   # doctest: +SKIP
    >>> rows = pick(choice.policy, scores(all_rows), budget=0.1, rng=rng)       # doctest: +SKIP

Worth nothing where augmentation is free (on an idle GPU), where each sample is seen once, or where
augmenting everything gains nothing on the held-out fold: the probe says that too.
Idea: Kuchnik and Smith, *Efficient Augmentation via Data Subsampling*, ICLR 2019.
"""

from ettr.samples.probe import (
    POLICIES,
    PolicyChoice,
    PolicyGain,
    choose_policy,
    downweighted,
    hours_saved,
    influence,
    pick,
    redundant_work,
)

__all__ = [
    "POLICIES",
    "PolicyChoice",
    "PolicyGain",
    "choose_policy",
    "downweighted",
    "hours_saved",
    "influence",
    "pick",
    "redundant_work",
]
