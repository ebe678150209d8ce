package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/onesided"
	"lightpath/shim/path/nic"
	"lightpath/shim/path/peer"
	"lightpath/shim/session"
)

// Register registers a buffer, as ncclCommRegister does, or a window. The handle is valid until it is deregistered or
// the communicator ends. No rank waits for another. Device memory may be registered, but no rank can put to a window in
// it.
func Register(c *comm.Core, buff unsafe.Pointer, size uintptr, window bool, flags int32) (uint64, error) {
	if err := c.Usable(); err != nil {
		return 0, err
	}
	if uintptr(buff)+size < uintptr(buff) {
		return 0, fmt.Errorf("shim: %d bytes at %#x end beyond the address space: %w", size, uintptr(buff),
			errdefs.ErrInvalidArgument)
	}
	reg := memory.Registration{Comm: c, Buffer: buff, Size: size, Window: window}
	onDevice := memory.OnDevice(buff)
	switch {
	case !onDevice: // device memory is sent from staging memory instead
		reg.Release = tellDevices(c, buff, size)
	default:
		reg.Withdraw = peer.Register(c, buff, size)
		reg.Release = nic.Register(c, buff, size)
	}
	if window {
		reg.Number = onesided.Of(c).AddWindow(buff, int64(size), onDevice)
	}
	return memory.Enter(reg), nil
}

// tellDevices registers the memory with the communicator's endpoints that can send from it without a copy. If an
// endpoint fails to, its sends are copied, and that is no error.
func tellDevices(c *comm.Core, buff unsafe.Pointer, size uintptr) func() error {
	ends := []transport.Endpoint{session.Of(c).Packet}
	if circuits.Of(c) != nil {
		ends = append(ends, circuits.Of(c).End)
	}
	var releases []func() error
	for _, e := range ends {
		r, able := e.(transport.Registrar)
		if !able || size == 0 {
			continue
		}
		release, err := r.Register(buff, size)
		if err != nil {
			c.Log.Info(log.Net, "memory at %p is sent by way of copies: %v", buff, err)
			continue
		}
		releases = append(releases, release)
	}
	if releases == nil {
		return nil
	}
	return func() (err error) {
		for _, release := range releases {
			err = errors.Join(err, release())
		}
		return err
	}
}

// Registered returns the buffer of a registration. If end is set, it also deregisters the buffer.
func Registered(c *comm.Core, handle uint64, window, end bool) (unsafe.Pointer, error) {
	reg, err := memory.Lookup(c, handle, window)
	if err != nil || !end {
		return reg.Buffer, err
	}
	if reg.Withdraw != nil {
		if err := reg.Withdraw(); err != nil {
			return nil, err
		}
	}
	if reg, err = memory.Leave(c, handle, window); err != nil {
		return nil, err
	}
	if window {
		onesided.Of(c).DropWindow(reg.Number)
	}
	if reg.Release != nil {
		err = reg.Release()
	}
	return reg.Buffer, err
}
