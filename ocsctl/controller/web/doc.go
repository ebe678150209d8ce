// Package web is the operators' view of a controller: a page that shows planes, circuits, epochs,
// who waits for whom and what has happened; the same as JSON and as a stream of events; Prometheus
// metrics; and probes. It reads, and changes nothing: there is no request that moves a plane.
//
// Layer: ocsctl, above package controller. It knows no plans: what a plan meant to do comes as
// intervals of time, from whoever can read plans. It must not be linked into a rank's library.
//
// What planes and ranks are called, and what errors say, comes from elsewhere and is never trusted
// to be harmless: the page builds text nodes only, under a policy that forbids everything that is not
// served from here.
package web
