// Package train writes the graph of a training iteration ([dag.Graph]) from the shape of a model, the
// way it is parallelized and the hardware: one-forward-one-backward pipelines, replicated for data parallelism,
// with tensor and expert parallelism inside a pod.
//
// Layer: plans, above dag. It computes durations and sizes, and decides nothing.
//
// # Placement
//
// A stage of a replica has S GPUs: TP of them share each layer, and EP*ETP/TP such groups (lanes), each
// with its own sequences, share the experts. A pod holds whole stages of one replica, GPUsPerPod/S of
// them; a replica's stages fill pods in order. So tensor and expert parallelism stay within pods, and
// pipelines and gradients cross between them. A pod has a port per GPU.
//
// # Times
//
//   - Computation: forward 2 operations per active parameter and token, plus seq * heads * (q/k + v
//     dimension) for causal attention; backward twice that; nothing is recomputed. It takes operations / (TP * peak *
//     efficiency). Stages all take the average, as tuned pipelines nearly do, unless the
//     configuration is Uneven.
//   - Tensor parallelism: per layer and direction 4 collectives (gather, scatter around attention and around the
//     MLP) of (TP-1)/TP * seq * hidden activations; layers with experts have 2, and 2 all-to-alls of
//     (EP-1)/EP * seq/TP * top-k * hidden. They run at the scale-up rate and are not overlapped.
//   - Pipelines: lanes * seq * hidden activations per boundary and micro-batch, a flow per GPU. Within a
//     pod at the NICs' rate, a rigid delay; between pods a transfer.
//   - Gradients: when the last backward of a stage is done, a ring all-reduce over the R replicas:
//     2(R-1)/R of the parameters that a GPU holds a shard of. Where a stage has lanes, a reduce-scatter among them comes before and a
//     gather after, at the scale-up rate. Three replicas and more have two rings, one each way, with half of a
//     stage's GPUs each.
//
// # Order
//
// Stage s of p computes min(p-1-s, M) forwards, then forward and backward in turn, then the backwards that are
// left. Sends and receives are synchronous, as Megatron-LM's are: a transfer begins when the sender has
// computed its data and the receiver has computed what comes before the use of it, and the sender's next computation waits
// for its end. With Overlap, a transfer begins when its data is there, and only its receiver waits for it.
package train
