// Package train writes the graph of a training iteration ([dag.Graph]) from a model, its parallelism and the
// hardware. Pipelines alternate one forward and one backward, and are replicated for data parallelism. Tensor
// and expert parallelism stay inside a pod.
//
// Layer: plans/delta, above dag. It computes durations and sizes, and decides nothing.
//
// # Placement
//
// A stage of a replica has S GPUs. TP of them share each layer, and EP*ETP/TP such groups (lanes) share the
// experts; each lane has its own sequences. A pod holds GPUsPerPod/S whole stages of one replica, and the
// stages of a replica fill pods in order. So tensor and expert parallelism stay within pods, and pipelines
// and gradients cross between them. A pod has a port per GPU.
//
// # Times
//
//   - Computation: forward takes 2 operations per active parameter and token, plus seq * heads * (q/k + v
//     dimension) for causal attention. Backward takes twice as many, and recomputes nothing. The time is
//     operations / (TP * peak * efficiency). All stages take the average, as tuned pipelines nearly do,
//     unless the configuration is Uneven.
//   - Tensor parallelism: a layer has 4 collectives per direction, a gather and a scatter around attention
//     and around the MLP. Each moves (TP-1)/TP * seq * hidden activations. A layer with experts has 2 of
//     them, and 2 all-to-alls of (EP-1)/EP * seq/TP * top-k * hidden. They run at the scale-up rate and do
//     not overlap with computation.
//   - Pipelines: lanes * seq * hidden activations per boundary and micro-batch, a flow per GPU. Within a
//     pod they take a fixed time at the NICs' rate; between pods they are a transfer.
//   - Gradients: after the last backward of a stage, a ring all-reduce over the R replicas. A GPU sends
//     2(R-1)/R of the parameters of its shard. If a stage has lanes, a reduce-scatter among them comes
//     before, and a gather after, at the scale-up rate. Three or more replicas have two rings, one in each
//     direction, with half of a stage's GPUs each.
//
// # Order
//
// Stage s of p computes min(p-1-s, M) forwards, then forwards and backwards in turn, then the remaining
// backwards. Sends and receives are synchronous, as in Megatron-LM. A transfer starts when the sender has its
// data and the receiver has finished all computation before the use of the data. The next computation of the
// sender waits for the end of the transfer. With Overlap, a transfer starts when its data is ready, and only
// the receiver waits for it.
package train
