// Package journal keeps what the next controller needs: which controller rules the planes of a fabric, the intents
// and maps of the planes, and the history. A [Store] keeps them. This package has the store in memory; package file
// keeps one in a file, package etcd one in etcd.
//
// Layer: ocsctl, between the core, which writes to a controller.Journal, and package lead, which runs the controller
// that rules. It must not move a plane.
package journal
