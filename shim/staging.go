package shim

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
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
	at, err := locate(c, name, p, size)
	return at.Kind >= device.Managed, err
}

// locate finds out where a buffer is, and refuses memory that cannot be right. What there is none of is nowhere.
func locate(c *calls.Call, name string, p unsafe.Pointer, size int64) (at device.Place, err error) {
	if size == 0 {
		return at, nil
	}
	if at, err = device.Active().Locate(p); err != nil {
		return at, err
	}
	if at.Kind == device.Host {
		return at, mustBeReadable(c, name, p, size)
	}
	if at.Kind == device.Memory {
		end, err := device.Active().Locate(unsafe.Add(p, size-1))
		if err != nil {
			return at, err
		}
		if end.Kind != at.Kind || end.Device != at.Device {
			return at, c.Invalid("%s %p of %d bytes reaches beyond its memory", name, p, size)
		}
		if at.Device != c.Comm.Device {
			return at, c.Invalid("%s is memory of device %d, the communicator is of device %d", name, at.Device, c.Comm.Device)
		}
	}
	return at, nil
}

// mustBeReadable refuses a buffer that the driver does not know and the CPU cannot read: device memory that has been freed is both.
func mustBeReadable(c *calls.Call, name string, p unsafe.Pointer, size int64) error {
	if size > 0 && !memory.Readable(p, size) {
		return c.Invalid("%s %p of %d bytes is neither device nor host memory: has it been freed?", name, p, size)
	}
	return nil
}
