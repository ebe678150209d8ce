// Package milp states SWOT's mixed-integer program (SWOT, section 3.2, Table 1 and
// equations 1 to 11) and solves it with CBC, the paper's solver by way of PuLP. The planners are compared with it. It
// shares no code with them, so it checks their proofs independently.
//
// Layer: bench; it imports plans only. It needs cbc (Debian's coinor-cbc). No planner may need this package.
package milp
