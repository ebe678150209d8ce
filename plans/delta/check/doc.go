// Package check checks a schedule of a training iteration against the constraints of the DELTA formulation
// (Ye et al., arXiv 2603.28096, Eqs. 5 to 18). It uses only the times and rates of the schedule.
//
// Layer: plans/delta, above dag. It must not share code with the simulator, the planners or the exact models,
// other than the types that it reads. So an error there cannot hide here.
//
//	(5) ports of a pod           (12) bytes only while a transfer is active
//	(6) circuits both ways       (13) one start, one end: Start..End is one block
//	(9) link capacity            (14) (15) times of segments within Start..End
//	(10) NIC capacity            (16) dependencies
//	(11) all bytes, once         (18) makespan
//
// (7) and (8) only make the others linear. (17) is one policy of sharing, not a constraint of schedules.
package check
