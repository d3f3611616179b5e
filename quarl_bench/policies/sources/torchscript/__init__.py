"""Programs of TorchScript, read as the graph that they compute; nothing of them is run."""
