// Package driver is a controller's interface to one real optical circuit switch: its map, the health of its ports, and
// changes of its map with a verdict per circuit. The packages below it implement the switches' protocols (scpi, gnmi,
// netconf). Epochs, leases and the right to write belong to the controller.
//
// Layer: beside ocsctl; it imports plans/circuit only.
package driver
