// Package bench has the commands that run the harness: "bench" times collectives and parts of them; "demo", "faults",
// "figure" and "simulate" run the packages of these names.
//
// Layer: a room of commands, on cli. lightpath/bench measures.
package bench
