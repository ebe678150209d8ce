package stream

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// OnStreams reports whether a group runs on streams: one of its calls has a stream or device memory. Hot path for
// communicators without a device.
func OnStreams(group []calls.Call) (bool, error) {
	for i := range group {
		call := &group[i]
		if Of(call.Comm) == nil {
			continue // its stream must be 0
		}
		if call.Stream != 0 {
			return true, nil
		}
		if on, err := hasDeviceMemory(call); on || err != nil {
			return on, err
		}
	}
	return false, nil
}

// hasDeviceMemory reports whether the call has device memory. If it has only host memory, hasDeviceMemory refuses
// memory that the process cannot read.
func hasDeviceMemory(c *calls.Call) (bool, error) {
	for _, p := range [...]unsafe.Pointer{c.Send, c.Recv, c.Scalar} {
		if p == nil {
			continue
		}
		place, err := device.Active().Locate(p)
		if err != nil || place.Kind >= device.Managed {
			return err == nil, err
		}
	}
	send, recv := c.Extents()
	if err := mustBeReadable(c, "sendbuff", c.Send, send); err != nil {
		return false, err
	}
	return false, mustBeReadable(c, "recvbuff", c.Recv, recv)
}

// LocateBuffers returns where the buffers of a call are, and refuses invalid memory. The Place of an empty buffer is
// zero.
func LocateBuffers(c *calls.Call) (send, recv device.Place, err error) {
	sent, received := c.Extents()
	if send, err = locate(c, "sendbuff", c.Send, sent); err == nil {
		recv, err = locate(c, "recvbuff", c.Recv, received)
	}
	return send, recv, err
}

// locate is [LocateBuffers] for one buffer.
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
		end := at
		if uintptr(p)+uintptr(size) > at.End { // memory that programs map may continue in another allocation
			if end, err = device.Active().Locate(unsafe.Add(p, size-1)); err != nil {
				return at, err
			}
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

// mustBeReadable refuses a buffer that the CPU cannot read. Callers use it for memory that the driver does not know,
// such as freed device memory.
func mustBeReadable(c *calls.Call, name string, p unsafe.Pointer, size int64) error {
	if size > 0 && !memory.Readable(p, size) {
		return c.Invalid("%s %p of %d bytes is neither device nor host memory: has it been freed?", name, p, size)
	}
	return nil
}
