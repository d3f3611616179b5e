"""A policy's integers as a Verilog design: layers, tables, top module and wrappers for AXI-Stream and UART."""
