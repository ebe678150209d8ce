package staged

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// stagedOf returns which buffers of the call need staging. It refuses invalid memory.
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

// needsStage reports whether a buffer needs staging because the CPU cannot use it in place. The CPU could use managed
// memory, but not while the device does.
func needsStage(c *calls.Call, name string, p unsafe.Pointer, size int64) (bool, error) {
	at, err := stream.Locate(c, name, p, size)
	return at.Kind >= device.Managed, err
}
