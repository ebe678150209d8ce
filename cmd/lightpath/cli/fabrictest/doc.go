// Package fabrictest makes fabrics for tests of commands: on the model of a switch, and in the kernel.
//
// Layer: for tests of the rooms of cmd/lightpath.
package fabrictest
