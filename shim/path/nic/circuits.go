package nic

import (
	"errors"
	"fmt"

	"lightpath/collectives/transport/rdma"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/settings"
)

// This file has the path over planes whose circuits switch. Collectives with plans run there as crossings; all other
// calls are staged. The two kinds of launches run one after another on the device.

// whyNotOverCircuits returns why ports whose circuits switch cannot access device memory, "" if they can. It is a pure
// function of values that all ranks share. overRDMA says that the circuits end at RDMA ports.
func whyNotOverCircuits(cfg *settings.Config, kind plans.CircuitKind, overRDMA bool) string {
	switch {
	case cfg.Device.Path != settings.DevicePathRDMA:
		return "the fabric has circuits, and a communicator whose scripts are on streams ends with a plane that is " +
			"taken out of service (LIGHTPATH_DEVICE_PATH=rdma: it may)"
	case !overRDMA:
		return "the planes' circuits do not end at RDMA ports"
	case kind != plans.Duplex:
		// Offers and acknowledgements must travel back on the same plane.
		return fmt.Sprintf("the planes' circuits are %v, and messages need such as lead both ways (duplex)", kind)
	}
	return ""
}

// HasScript is [stream.Issuer.HasScript] for a communicator over circuits. Calls that request a plan or planes have no
// script.
func HasScript(c *calls.Call) (bool, error) {
	if c.Options.Planes != 0 || c.Options.Plan.Digits != 0 {
		return false, nil
	}
	return slot.Of(c.Comm).in.HasScript(c)
}

// withEpoch adds the plane's epoch to the error of a queue pair.
func (x *Path) withEpoch(err error) error {
	var failure *rdma.QPError
	if x.circuits && errors.As(err, &failure) {
		failure.Epoch = circuits.Of(x.c).Controller.State(failure.Plane).Epoch
	}
	return err
}

// epochText returns the plane's epoch as text, "" without circuits.
func (x *Path) epochText(plane int) string {
	if !x.circuits {
		return ""
	}
	return fmt.Sprintf(", epoch %d", circuits.Of(x.c).Controller.State(plane).Epoch)
}
