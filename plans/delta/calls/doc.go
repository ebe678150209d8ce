// Package calls makes the trace of an iteration (plans/iteration/trace) from a job: from a model with its parallelism,
// or from a job's graph, such as an importer of execution traces writes it.
//
// Layer: inside plans/delta, above train and dag, on plans/iteration/trace. It chooses no circuits and performs no I/O.
//
// # A model
//
// Ranks are GPUs, numbered as package train numbers them: replica by replica, stage by stage. Stages work in slots, all
// at the same time: the one-forward-one-backward order of package train with stages of equal length. In a slot each
// stage computes a forward of one micro-batch, then all send their activations; then a backward, then all send
// gradients. So an iteration has MicroBatches + PP - 1 forwards and as many backwards, as the pipeline has. Stages that
// have nothing to send in the first and last slots are counted as if they had: the circuits and the time are the same.
// After the last backward all replicas of a stage reduce their gradients. What stays within a stage's GPUs is
// computation here.
//
// # A graph
//
// Ranks are the GPUs of transfers, or pods where the graph does not name GPUs. Transfers of one kind that start at the
// same time on a non-blocking network, with the same bytes per flow, are one call. What lies between calls is
// computation.
package calls
