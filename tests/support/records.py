"""Made-up records of ActorQ, in pairs of one seed."""

from quarl_bench.actorq.breakdown import ACTING, LEARNING


def make_record(precision, seed, *, seconds, inference, returns, load=0.5):
    """A run of `seconds`, nine tenths of them its actor's inference, whose second policy reaches 500 at the end."""
    stages = dict.fromkeys(ACTING, 0.001) | {"inference": 90.0 * inference}
    clocks = {"steps": 100, "wall": stages, "cpu": stages}
    points = [{"mean": value, "elapsed": at, "cpu": at} for value, at in ((9.0, 1.0), (500.0, seconds))]
    score = {"mean": sum(returns) / len(returns), "episodes": len(returns), "first_environment_seed": 0}
    settings = {"algo": "dqn", "environment": "cartpole", "precision": precision, "seed": seed, "actors": 1,
                "widths": [256, 256]}  # fmt: skip
    learning = {"steps": 10, "wall": dict.fromkeys(LEARNING, 0.1), "cpu": dict.fromkeys(LEARNING, 0.1)}
    return {
        "settings": settings, "elapsed": seconds, "steps": 100, "cpu": seconds, "load": load, "curve": points,
        "acting": clocks, "breakdown": learning, "server": {}, "drift": {}, "deaths": 0,
        "scores": {"fp32": score | {"returns": list(returns)}},
    }  # fmt: skip


def make_pairs(ratio, *, noise=0.0, lose=0.0):
    pairs = []
    for seed in range(4):
        wobble = 1 + noise * (-1) ** seed
        base = [490.0 + (episode * 7 + seed) % 10 for episode in range(100)]
        fp32 = make_record("fp32", seed, seconds=100.0 + seed, inference=1.0, returns=base)
        ours = make_record("int8", seed, seconds=(100.0 + seed) * ratio * wobble, inference=ratio * wobble,
                           returns=[value * (1 - lose) for value in base])  # fmt: skip
        pairs.append((fp32, ours))
    return pairs
