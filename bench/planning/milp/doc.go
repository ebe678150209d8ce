// Package milp states SWOT's mixed-integer program (SWOT, section 3.2, Table 1 and
// equations 1 to 11) as a file in the LP format and solves it with CBC, the paper's solver
// by way of PuLP. It is the yardstick beside which the planners are measured and an
// independent witness of what they prove: it shares no code with them.
//
// Layer: bench; it imports plans only. It runs one external program, cbc (Debian's
// coinor-cbc), and must not be needed by anything that plans.
package milp
