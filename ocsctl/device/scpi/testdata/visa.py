"""Drive a switch over SCPI with PyVISA, as laboratories do: python3 visa.py PORT."""

import sys

import pyvisa

switch = pyvisa.ResourceManager("@py").open_resource(
    f"TCPIP::127.0.0.1::{sys.argv[1]}::SOCKET", read_termination="\r\n", write_termination="\n", timeout=10000
)
assert switch.query("*IDN?").startswith("Polatis,N-OST-8x8"), "identification"
assert switch.query(":OXC:SWITch:SIZE?") == "8,8", "size"
switch.write(":OXC:SWITch:CONNect:ADD (@1,2,3),(@9,10,11)")
assert switch.query("*OPC?") == "1", "end of the motion"
assert switch.query(":OXC:SWITch:CONNect:STATe?") == "(@1,2,3),(@9,10,11)", "table"
assert switch.query(":OXC:SWITch:CONNect:PORT? 2") == '"10"', "peer"
switch.write(":OXC:SWITch:CONNect:SUB (@1),(@9)")
switch.write(":OXC:SWITch:CONNect:ADD (@4),(@10)")  # in use
assert switch.query(":SYSTem:ERRor?").startswith('-221,"Settings conflict'), "error queue"
assert switch.query(":SYSTem:ERRor?") == '0,"No error"', "error queue, empty"
powers = switch.query_ascii_values(":PMON:POWer? (@10,11,16)", converter=lambda s: float(s.strip("()")))
assert len(powers) == 3 and powers[2] == -60.0, f"powers {powers}"
switch.write(":OXC:SWITch:DISConnect:ALL")
assert switch.query(":OXC:SWITch:CONNect:STATe?") == "(@),(@)", "table, empty"
print("ok")
