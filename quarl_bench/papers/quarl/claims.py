"""Every claim of QuaRL, in the order of the page."""

from quarl_bench.papers.quarl import aware_training, post_training, speed

CLAIMS = (*post_training.CLAIMS, *aware_training.CLAIMS, *speed.CLAIMS)
