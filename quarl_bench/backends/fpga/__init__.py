"""Integer policies as register-transfer level designs: bit-exact, simulated in Verilator, sized by Yosys.

rtl      a layer as integers in, thresholds on raw sums, integers out, or the sums; the design's folder of Verilog
explore  how many values a cycle travel on each link, and what follows: units, memories, cycles; the fastest that fits
tools    simulation against the IntegerPolicy; look-up tables, block RAM and logic levels, estimated by Yosys
link     the host's side of a board, real or simulated
"""
