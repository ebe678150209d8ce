// Package place says where the ranks of training jobs go in a cluster of pods, in what order they
// communicate, and how many links between leaves of different pods that asks for (LumosCore,
// sections 4.2 and A.4 to A.7, A.12).
//
// Layer: inside plans. It knows servers, leaves and pods by number, and neither switches nor time.
//
// Servers are the unit of placement: tensor parallelism stays inside one, and the ranks of a job are
// its servers, as PP stages times DP replicas. Rank and GPU numbers run server by server, servers leaf
// by leaf, leaves pod by pod.
package place
