// Package staged runs calls on streams through page-locked host memory. The device copies a call's input into that
// memory. The CPU runs the call there as steps on host memory. The device copies the result back.
//
// Layer: a path, above stream and steps. It never waits for a device on the CPU.
package staged
