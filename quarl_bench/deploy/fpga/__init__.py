"""Integer policies as register-transfer level designs: bit-exact, simulated in Verilator, sized by Yosys.

stage        a layer as integers in, thresholds on raw sums, integers out
folding      how many values a cycle travel on each link, and what follows: units, memories, cycles
design       the design's folder: Verilog named after the layers (layer, top, wrapper), memories, constraints
simulation   the design in Verilator, compared with the IntegerPolicy
synthesis    look-up tables, flip-flops, block RAM, DSP and logic levels, estimated by Yosys
explorer     the fastest folding that a part holds
finn         the formulas of FINN's dataflow, for comparison
link         the host's side of a board, real or simulated
"""
