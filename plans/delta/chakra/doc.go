// Package chakra reads Chakra execution traces, one of each rank, and makes a [dag.Graph] of
// them: the protobuf form (length-delimited GlobalMetadata, then Nodes) and both JSON forms
// in use (the messages as protobuf's JSON one after the other; an object with a workload_graph).
//
// Layer: inside plans/delta, above dag. It reads what it is given and no files.
//
// # What a graph is made of
//
// Nodes that compute, and memory and metadata nodes, are work of their duration in the pod of their
// rank. A send and the receive with the same source, destination and tag, in order, are one
// transfer that starts when both may; within a pod it is work at the scale-up rate. A collective is that of
// all ranks of its process group whose occurrence in the group has the same number. Where its ranks
// are in one pod it is work; else pods form a ring in the order of their first ranks, with as many
// parallel rings as the pod with the fewest ranks has GPUs, and all-to-alls go directly.
// Sizes are those of the whole buffer: an all-reduce sends 2(n-1)/n of it, a gather or scatter
// (n-1)/n, an all-to-all 1/n to every rank. Of the ways through a collective within each pod
// only the time at the scale-up rate counts, after its transfers.
package chakra
