// Package switches combines the real switches behind the planes of a fabric into one controller.Device.
//
// One goroutine per switch owns its session and is the only one that writes to it. It executes the moves of the
// controller, all pending ones at once. Between moves it reads the switch, to see that the circuits and the light on
// them are still there.
//
// Layer: ocsctl, between controller and driver. It decides nothing: the controller decides whether a plane is in
// service, which map it gets and which rank may move it. It must not know the protocol of a switch; that is its
// driver's job.
package switches
