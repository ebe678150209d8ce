// Package faults breaks a fabric in every way in which its parts can fail, and checks how the rest reacts. Ranks are
// processes that call the NCCL ABI, controllers are real, and planes are in the kernel. Switches are models that can be
// made to fail, inside the controller or behind SCPI.
//
// A scenario proves three things. Its fault has happened. Ranks go on, or end with an error that names the failed part,
// within a bound. No result is wrong: a lost frame fails its operation.
//
// Scenarios need root. They must not touch fabrics or processes that they have not started.
//
// Layer: inside bench.
package faults
