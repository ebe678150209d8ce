// Package circuit holds the one permutation type of the project: what an optical
// circuit switch can be set to. It is the leaf that both plans and ocsctl stand on; it
// knows neither plans nor switches and performs no I/O.
package circuit
