// Package histories has no code of its own. Its tests record the requests of concurrent operators and ranks, and the
// controller's answers, while the device and the journal fail and controllers take over from each other. They check
// that each history is linearizable: one order of the operations, consistent with their times, explains every answer.
// The checker is porcupine (Herlihy and Wing 1990; Lowe 2017). Where planes have several holders, each rank checks what
// it sees.
//
// Layer: tests only; nothing imports it.
package histories
