"""ActorQ, a part of QuaRL's last text: quantized actors, a full-precision learner."""
