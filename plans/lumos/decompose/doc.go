// Package decompose divides matrices of link counts into halves and parts that are as equal as integers
// allow. These are the two theorems on which the topologies of package lumos stand. [Halve] and [Split] take
// linear time or nearly so; the paper uses flows of least cost.
//
// Layer: part of plans/lumos. It knows rows and groups of rows, neither leaves nor pods.
package decompose
