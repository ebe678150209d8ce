// Package controllertest has a device for tests of controllers and of their clients.
//
// Layer: ocsctl/controller, for tests only; nothing else may import it.
package controllertest
