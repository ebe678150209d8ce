// Package device is a model of an optical circuit switch. It has ports that are BLOCKED, TUNING, TUNED or FAILED, a
// cross-connect table, switching times, optical power with averaging detectors, cold boots, and faults on request. The
// packages below it serve one Device in the protocols of real switches (scpi, gnmi, netconf). So drivers of all
// protocols are tested against one model.
//
// Layer: beside ocsctl; it imports plans/circuit only. It knows no protocol and does no I/O. Time is
// the time package's, so that testing/synctest can drive it; everything random comes from the seed.
package device
