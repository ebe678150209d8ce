// Package decompose divides matrices of link counts into halves and parts that are as equal
// as integers allow: the two theorems on which the topologies of package lumos stand, each
// in linear time or nearly so ([Halve], [Split]) and by flows of least cost as LumosCore has them ([HalveByFlow],
// [SplitByFlow]).
//
// Layer: part of plans/lumos. It knows rows and groups of rows, neither leaves nor pods.
package decompose
