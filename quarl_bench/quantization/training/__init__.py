"""Nets and quantizers while they are trained."""
