// Package check judges a schedule of a training iteration by the constraints of the DELTA
// formulation (Ye et al., arXiv 2603.28096, Eqs. 5 to 18), from its times and rates alone.
//
// Layer: plans, above dag. It shares no code with the simulator, the planners or the formulation for
// solvers beyond the types that it reads, so that none can hide its mistakes here.
//
//	(5) ports of a pod           (12) bytes only while a transfer is under way
//	(6) circuits both ways       (13) one start, one end: Start..End is one block
//	(9) link capacity            (14) (15) times of segments within Start..End
//	(10) NIC capacity            (16) dependencies
//	(11) all bytes, once         (18) makespan
//
// (7) and (8) only make the others linear; (17) is one policy of sharing, not a constraint of schedules.
package check
