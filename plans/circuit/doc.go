// Package circuit holds the one permutation type of the project, the setting of an optical circuit switch. Both plans
// and ocsctl import it; it knows neither plans nor switches and performs no I/O.
package circuit
