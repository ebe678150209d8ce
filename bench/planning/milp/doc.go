// Package milp states SWOT's mixed-integer program (SWOT, section 3.2, Table 1 and
// equations 1 to 11) and solves it with CBC, the paper's solver by way of PuLP. The planners
// are measured against it, and it checks independently what they prove: it shares no code
// with them.
//
// Layer: bench; it imports plans only. It needs cbc (Debian's coinor-cbc), and must not be
// needed by anything that plans.
package milp
