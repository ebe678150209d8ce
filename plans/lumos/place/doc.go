// Package place decides where the ranks of training jobs go in a cluster of pods, and in what order they
// communicate. It computes how many links a job then needs between leaves of different pods (LumosCore,
// sections 4.2 and A.4 to A.7, A.12).
//
// Layer: inside plans/lumos. It knows servers, leaves and pods by number, and neither switches nor time.
//
// Servers are the unit of placement. Tensor parallelism stays inside a server, and the ranks of a job are its
// servers, as PP stages times DP replicas. Numbers of ranks and GPUs run server by server, servers leaf by
// leaf, leaves pod by pod.
package place
