// Package monotonic reads the clock that all processes of a host share. So times in ranks' reports, traces and the
// controller's journal can be compared on one host. It imports no other package of Lightpath.
package monotonic
