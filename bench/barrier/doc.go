// Package barrier measures the reconfiguration barrier: the time from the last rank's post until every rank sees the
// next epoch of the plane. The device moves its circuits in no time.
//
// Layer: bench. It drives controllers through ocsctl.Client over any carrier, and is no part of the runtime.
package barrier
