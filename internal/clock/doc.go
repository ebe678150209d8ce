// Package clock tells the time to code that waits, and waits for it. A call's clock comes with its context, as its
// deadline does: the machine's clock, or the clock of a [Task], which its caller moves. So one piece of code serves the
// product and a simulation.
//
// Layer: a leaf that every layer may use.
package clock
