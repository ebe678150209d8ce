// Package status reports what ranks wait for. It has the reports of ranks, the sockets that serve them, the diagnosis
// of all reports together, and its text.
//
// Layer: a leaf below shim and cmd/lightpath, without imports of the project. It knows no communicators: shim fills in
// the types; this package transmits, merges and diagnoses them.
package status
