"""ActorQ: quantized actors and a full-precision learner. All but `training.py` and `ports.py` runs without Ray."""
