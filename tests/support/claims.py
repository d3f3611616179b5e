"""Claims for tests: one builder, with what a claim needs filled in."""

from typing import Any

from quarl_bench.judging.claim import Claim, JudgedClaim, expand_claims, over
from quarl_bench.judging.rules.judgement import Judgement


def make_claim(judgement: Judgement, **changes: Any) -> Claim:
    """A claim on PPO's CartPole under w8, but for `changes`."""
    facts: dict[str, Any] = {"schemes": ("w8",), "cells": over("ppo", "cartpole")}
    return Claim("x", "here", "it holds", judgement, **(facts | changes))


def make_item(judgement: Judgement, **changes: Any) -> JudgedClaim:
    """The only item of such a claim."""
    (item,) = expand_claims(make_claim(judgement, **changes))
    return item
