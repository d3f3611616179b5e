"""An actor: it plays, explores and computes in the precision that was sent to it."""
