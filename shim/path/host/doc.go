// Package host runs groups of calls on host memory. It runs a single short collective through shared memory directly,
// and all other groups as sessions. It writes the recipes by which C makes short calls.
//
// Layer: a path, above session and steps. It knows no streams, and no other path.
package host
