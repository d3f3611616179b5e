# Implements a generated design with Vivado and writes the reports that `quarl fpga` reads.
#
#   cd DESIGN && vivado -mode batch -source .../hw/fpga/vivado/build.tcl -tclargs [TOP] [PART]
#
# TOP   policy (default), policy_axis, policy_tanh: out of context, as LQCC's numbers are; policy_uart: with pins and
#       a bitstream
# PART  default xc7a15tcpg236-1, LQCC's; an Arty A7-35T has xc7a35ticsg324-1L
set top  [expr {[llength $argv] > 0 ? [lindex $argv 0] : "policy"}]
set part [expr {[llength $argv] > 1 ? [lindex $argv 1] : "xc7a15tcpg236-1"}]
set pins [expr {$top eq "policy_uart"}]
file mkdir reports

read_verilog [glob rtl/*.v policy.v]
if {$top ne "policy"} {read_verilog $top.v}
if {$top eq "policy_tanh"} {read_verilog tanh_table.v}
if {[llength [glob -nocomplain *.mem]]} {read_mem [glob *.mem]}
read_xdc $top.xdc

if {$pins} {
  synth_design -top $top -part $part
} else {
  synth_design -top $top -part $part -mode out_of_context
}
opt_design
place_design
phys_opt_design
route_design

report_timing_summary -file reports/timing_summary.rpt
report_timing -max_paths 10 -file reports/timing_paths.rpt
report_utilization -file reports/utilization.rpt
report_power -file reports/power.rpt
if {$pins} {write_bitstream -force policy_uart.bit}
