// Package shim assembles the packages below it into communicators and runs calls on them. It is the API that the
// exports of cgo/core, the commands and the harness use: Init, Run, Register.
//
// Layer: above all packages of shim and collectives, below cgo/core, bench and cmd. It contains no C, and carries no
// byte itself.
package shim
