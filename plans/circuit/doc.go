// Package circuit holds the project's permutation type: the circuits of an optical circuit switch. Both plans and
// ocsctl import it. It knows neither plans nor switches, and it performs no I/O.
package circuit
