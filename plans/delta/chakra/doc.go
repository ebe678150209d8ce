// Package chakra reads Chakra execution traces, one of each rank, and makes a [dag.Graph] of them. It reads
// the protobuf form (length-delimited GlobalMetadata, then Nodes) and both JSON forms in use: a sequence of
// messages in protobuf's JSON, and an object with a workload_graph.
//
// Layer: inside plans/delta, above dag. It must not open files; callers pass the bytes.
//
// # Nodes and tasks
//
// Computation, memory and metadata nodes are work of their duration, in the pod of their rank. The k-th send
// and the k-th receive with the same source, destination and tag are one transfer. It starts when both may
// start. Within a pod it is work at the scale-up rate.
//
// A collective joins the nodes of all ranks of a process group whose occurrence in the group has the same
// number. If its ranks are in one pod, it is work. Otherwise pods form a ring, in the order of their first
// ranks. The number of parallel rings is that of the GPUs of the pod with the fewest ranks. All-to-alls go
// directly.
//
// Sizes are those of the whole buffer. An all-reduce sends 2(n-1)/n of it, a gather or scatter (n-1)/n, and
// an all-to-all 1/n to every rank. The part of a collective within a pod takes its time at the scale-up rate,
// after the transfers.
package chakra
