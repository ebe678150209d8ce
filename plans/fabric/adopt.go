package fabric

import (
	"errors"
	"fmt"
	"strings"
)

// adopt checks that o can be the configuration of f's controller, and fills its missing fields from f.
func (o *OCSD) adopt(f *Fabric) error {
	if !f.Optical() {
		return fmt.Errorf("fabric: %s has no ocs to control", o.Fabric)
	}
	for _, check := range []func(*Fabric) error{o.adoptData, o.adoptSocket, o.adoptInitial} {
		if err := check(f); err != nil {
			return err
		}
	}
	return nil
}

// adoptData sets and checks the data plane.
func (o *OCSD) adoptData(f *Fabric) error {
	emulated, interfaces := true, true
	for j := range f.Planes {
		emulated = emulated && f.Switch(j).Driver == DriverEmulator
		interfaces = interfaces && f.Planes[j].Interface != ""
	}
	if o.DataPlane == "" {
		switch {
		case !emulated:
			o.DataPlane = DataNone
		case interfaces:
			o.DataPlane = DataKernel
		default:
			o.DataPlane = DataMemory
		}
	}
	switch {
	case (o.DataPlane == DataNone) == emulated:
		return fmt.Errorf("data_plane: %s, but the switches of %s are %s", o.DataPlane, o.Fabric,
			map[bool]string{true: "emulated", false: "not all emulated"}[emulated])
	case o.DataPlane == DataKernel && !interfaces:
		return fmt.Errorf("data_plane: kernel, but not every plane of %s has an interface", o.Fabric)
	case o.DataPlane != DataMemory && (o.FrameLog != "" || o.MTU != 0 || o.Slots != 0):
		return fmt.Errorf("frame_log, mtu, slots: for memory planes, not data_plane %s", o.DataPlane)
	case o.DataPlane != DataKernel && o.Device != (DeviceConfig{}):
		return fmt.Errorf("device: for kernel planes, not data_plane %s", o.DataPlane)
	}
	return nil
}

// adoptSocket sets and checks the socket to which ranks on this host connect.
func (o *OCSD) adoptSocket(f *Fabric) error {
	socket := ""
	for _, e := range f.Endpoints() {
		if path, ok := strings.CutPrefix(e, "unix:"); ok && socket == "" {
			socket = path
		}
	}
	switch {
	case o.Socket == "":
		o.Socket = socket
	case socket != "" && socket != strings.TrimPrefix(o.Socket, "unix:"):
		return fmt.Errorf("socket: %s, but %s sends ranks to %s", o.Socket, o.Fabric, socket)
	}
	if o.Socket == "" && o.Listen == "" {
		return fmt.Errorf("socket: %w, and so is listen, and %s gives no endpoint", errMissing, o.Fabric)
	}
	for j := range f.Planes {
		if s := f.Switch(j); s.Driver == DriverEmulator && s.Endpoint != f.Switch(0).Endpoint {
			return fmt.Errorf("fabric: ocs %q is at %q, %q at %q: one controller serves all emulated planes", s.Name,
				s.Endpoint, f.Switch(0).Name, f.Switch(0).Endpoint)
		}
	}
	return nil
}

func (o *OCSD) adoptInitial(f *Fabric) error {
	if o.Initial != nil && o.DataPlane == DataNone {
		return errors.New("initial: real switches have their maps; lightpath ocs set changes them")
	}
	if o.Initial != nil && len(o.Initial) != len(f.Planes) {
		return fmt.Errorf("initial: %d maps for %d planes", len(o.Initial), len(f.Planes))
	}
	for j, m := range o.Initial {
		if err := m.Validate(f.Ranks); err != nil {
			return fmt.Errorf("initial[%d]%w", j, err)
		}
	}
	for j := range o.Initial {
		if err := f.Circuits.Holds(o.Initial, j); err != nil {
			return fmt.Errorf("initial[%d]: %w", j, err)
		}
	}
	return nil
}
