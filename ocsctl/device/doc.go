// Package device is a model of an optical circuit switch: ports that are BLOCKED, TUNING, TUNED or
// FAILED, a cross-connect table, switching that takes time, optical power behind averaging
// detectors, cold boots, and faults on request. The packages below it serve one and the same Device
// in the protocols of real switches (scpi, gnmi, netconf), so that drivers of different protocols
// are judged by one truth.
//
// Layer: beside ocsctl; it imports plans/circuit only. It knows no protocol and does no I/O. Time is
// the time package's, so that testing/synctest can drive it; everything random comes from the seed.
package device
