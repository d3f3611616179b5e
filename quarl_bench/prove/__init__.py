"""One policy, one hash: the same integers in every backend play the same episodes, action by action.

aware        the forward of quantization-aware training, rebuilt from the integers
served       the C policy on an emulated processor, answering over pipes
executors    every way to execute an integer policy here, its size and its cost
proof        playing the episodes, hashing the actions, naming the first divergence
"""
