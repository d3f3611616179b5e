"""A policy as Verilog."""
