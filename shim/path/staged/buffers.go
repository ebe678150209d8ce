package staged

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// stagedOf finds out where the call's buffers are. It refuses memory that cannot be right.
func stagedOf(c *calls.Call) (where steps.Staged, err error) {
	if c.Kind.OneSided() {
		place, err := device.Active().Locate(c.Send)
		if err == nil && place.Kind >= device.Managed {
			err = c.Invalid("localbuff %p is device memory: what is put is host memory, as windows are where it arrives", c.Send)
		}
		return where, err
	}
	if c.Count == 0 {
		return where, nil
	}
	send, recv := c.Extents()
	if where.Send, err = needsStage(c, "sendbuff", c.Send, send); err == nil {
		where.Recv, err = needsStage(c, "recvbuff", c.Recv, recv)
	}
	return where, err
}

// needsStage tells whether the CPU cannot use a buffer where it is. Managed memory it could, but not while the
// device does.
func needsStage(c *calls.Call, name string, p unsafe.Pointer, size int64) (bool, error) {
	at, err := stream.Locate(c, name, p, size)
	return at.Kind >= device.Managed, err
}
