"""Our own files of policies: fp32 weights, integers, and the folder that holds either."""
