// Package web is the operators' view of a controller: a page that shows planes, circuits, epochs, waiting
// ranks and the history. It serves the same as JSON and as a stream of events, and Prometheus metrics and
// probes. It is read-only: no request moves a plane.
//
// Layer: ocsctl, above package controller. It knows no plans: the caller passes the intervals of time that a
// plan intends. It must not be linked into a rank's library.
//
// Names of planes and ranks and texts of errors are untrusted. The page builds text nodes only, under a policy
// that forbids everything that this server does not serve.
package web
