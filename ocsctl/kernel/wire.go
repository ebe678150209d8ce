package kernel

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// If several hosts share a fabric, one Ethernet per plane joins the hosts' interfaces of that plane. Its switches do
// not know circuits. Every port has an end on the Ethernet, a macvlan on its host's interface, and every host has the
// whole map. The program at the beginning of a circuit addresses a frame to the port at its end. The program there
// accepts the frame only if its own map has that circuit.
//
// On that Ethernet, the addresses of a frame name the ends of its circuit. So the Ethernet learns the places of ports,
// and hosts exchange no tables. The IP header has the sender and the receiver of the frame. The program restores the
// Ethernet addresses from it, so that ranks see no difference.

// wireShift is the difference between the interface indices of a port and of its end on the Ethernet between hosts.
const wireShift = maxPlanes * maxRanks

func wireLink(plane, rank int) string { return fmt.Sprintf("w%dr%d", plane, rank) }
func wirePin(plane, rank int) string  { return fmt.Sprintf("wire-p%d-r%d", plane, rank) }

// Positions of addresses in the IPv4 header on the stack: halves of 10., plane, and rank plus one.
const (
	offSrcNet  = offHeader + ethHeader + 12
	offSrcRank = offSrcNet + 2
	offDstNet  = offHeader + ethHeader + 16
	offDstRank = offDstNet + 2
)

// leave sends frames for ports of other hosts to the Ethernet. R7 is the port, from 1.
func leave(s *State) asm.Instructions {
	if s.Host == "" {
		return nil
	}
	return asm.Instructions{
		asm.JLE.Imm(asm.R7, int32(s.First), "wire"), asm.JGT.Imm(asm.R7, int32(s.First+s.Count), "wire"),
	}
}

// wire is the part of a switch's program that sends a frame to the port in R7, from 1, of another host.
func wire(s *State, plane int) asm.Instructions {
	if s.Host == "" {
		return nil
	}
	first := portIndex(s.slot(plane, 0))
	return program(
		label("wire", asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offType, asm.Half),
			asm.JNE.Imm(asm.R1, native(etherIPv4), "other"), // its addresses could not be restored
			asm.LoadMem(asm.R9, asm.R6, skbIfindex, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R9), asm.Sub.Imm(asm.R1, int32(first)), asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.StoreMem(asm.RFP, offSrcTail, asm.R1, asm.Half),
			asm.Sub.Imm(asm.R7, 1), asm.HostTo(asm.BE, asm.R7, asm.Half),
			asm.StoreMem(asm.RFP, offDstTail, asm.R7, asm.Half),
		}),
		heads(wireMAC(plane, 0)),
		storeAddresses("drop"),
		asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, wireShift), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	)
}

// heads writes the parts of both addresses on the stack that all ranks of a plane share.
func heads(mac []byte) asm.Instructions {
	head, _ := macWords(mac)
	low, high := head&0xffff, int32(uint32(head)>>16)
	return asm.Instructions{
		asm.StoreImm(asm.RFP, offDstHead, int64(low), asm.Half), asm.StoreImm(asm.RFP, offDstHead+2, int64(high), asm.Half),
		asm.StoreImm(asm.RFP, offSrcHead, int64(low), asm.Half), asm.StoreImm(asm.RFP, offSrcHead+2, int64(high), asm.Half),
	}
}

// storeAddresses copies both addresses from the stack to the frame.
func storeAddresses(failed string) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, offHeader), asm.Mov.Imm(asm.R4, 12), asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, failed),
	}
}

// wireProgram handles frames that arrive at a port over the Ethernet: frames on the circuit that ends here, or against
// the circuit that begins here. All others are on a wrong circuit.
func wireProgram(s *State, t tables, plane, rank int) asm.Instructions {
	slot := s.slot(plane, rank)
	head, _ := macWords(wireMAC(plane, 0))
	_, tail := macWords(wireMAC(plane, rank))
	// rankOf copies the number of a rank from its IP address to the end of its hardware address.
	rankOf := func(offNet, offRank, offTail int16) asm.Instructions {
		net := rankAddr(plane, 0).As4()
		return asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offNet, asm.Half), asm.JNE.Imm(asm.R1, native(uint16(net[0])<<8|uint16(net[1])),
				"strayed"),
			asm.LoadMem(asm.R1, asm.RFP, offRank, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half), asm.Sub.Imm(asm.R1, 1),
			asm.JGE.Imm(asm.R1, int32(s.Ranks), "strayed"),
			asm.HostTo(asm.BE, asm.R1, asm.Half), asm.StoreMem(asm.RFP, offTail, asm.R1, asm.Half),
		}
	}
	return program(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, offKey, int64(slot), asm.Word),
		},
		lookup(t.counters), asm.Instructions{asm.Mov.Reg(asm.R8, asm.R0)},
		lookup(t.circuits), asm.Instructions{asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord)},
		loadHeaders("drop"),
		asm.Instructions{ // ignore other frames: the host's other traffic, and floods
			asm.LoadMem(asm.R1, asm.RFP, offType, asm.Half), asm.JNE.Imm(asm.R1, native(etherIPv4), "drop"),
			asm.LoadMem(asm.R1, asm.RFP, offDstTail, asm.Half), asm.JNE.Imm(asm.R1, tail, "drop"),
			asm.LoadMem(asm.R1, asm.RFP, offDstHead, asm.Word), asm.Mov.Imm32(asm.R2, head), asm.JNE.Reg(asm.R1, asm.R2, "drop"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead, asm.Half), asm.JNE.Imm(asm.R1, head&0xffff, "strayed"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead+2, asm.Half), asm.JNE.Imm(asm.R1, int32(uint32(head)>>16), "strayed"),
			asm.LoadMem(asm.R9, asm.RFP, offSrcTail, asm.Half), asm.HostTo(asm.BE, asm.R9, asm.Half), asm.Add.Imm(asm.R9, 1),
			asm.Mov.Reg(asm.R1, asm.R7), asm.RSh.Imm(asm.R1, 32), asm.JEq.Reg(asm.R1, asm.R9, "take"),
			asm.LSh.Imm(asm.R7, 32), asm.RSh.Imm(asm.R7, 32), asm.JNE.Reg(asm.R7, asm.R9, "misdirected"),
			asm.LoadMem(asm.R1, asm.RFP, offProtocol, asm.Byte), asm.JNE.Imm(asm.R1, protoTCP, "misdirected"),
		},
		label("take", rankOf(offDstNet, offDstRank, offDstTail)),
		rankOf(offSrcNet, offSrcRank, offSrcTail),
		heads(rankMAC(plane, 0)),
		storeAddresses("drop"),
		asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(portIndex(slot))), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirectPeer.Call(),
			asm.Return(),
		},
		label("misdirected", count(atMisdirected, asm.R0)), finish(tcxDrop),
		label("strayed", count(atStrayed, asm.R0)),
		label("drop", finish(tcxDrop)),
	)
}

// buildWires makes the ends of this host's ports on the Ethernet between hosts.
func buildWires(s *State, o *objects, underlay string) error {
	wires := func() error {
		return eachPort(s, func(h *netlink.Handle, j, r int) error {
			if err := makeWire(s, h, j, r); err != nil {
				return fmt.Errorf("interface %s: port %d: %w", s.Planes[j].Interface, r, err)
			}
			return nil
		})
	}
	var err error
	if underlay == "" {
		err = wires()
	} else {
		err = within(underlay, wires)
	}
	if err != nil {
		return err
	}
	return within(s.Switch, func() error {
		return eachPort(s, func(h *netlink.Handle, j, r int) error {
			if err := armWire(s, o, h, j, r); err != nil {
				return fmt.Errorf("port %d: %w", r, err)
			}
			return nil
		})
	})
}

// eachPort calls f for each port of this host on each plane, with a handle in the current namespace.
func eachPort(s *State, f func(h *netlink.Handle, plane, rank int) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for j := range s.Planes {
		for r := range s.locals() {
			if err := f(h, j, r); err != nil {
				return fmt.Errorf("plane %s: %w", s.Planes[j].Name, err)
			}
		}
	}
	return nil
}

// makeWire puts a macvlan on the host's interface into the switch's namespace.
func makeWire(s *State, h *netlink.Handle, plane, rank int) error {
	nic, err := h.LinkByName(s.Planes[plane].Interface)
	if err != nil {
		return err
	}
	if a := nic.Attrs(); a.MTU < s.MTU {
		return fmt.Errorf("its MTU is %d, the fabric's %d", a.MTU, s.MTU)
	}
	if err := h.LinkSetUp(nic); err != nil {
		return err
	}
	target, err := os.Open(filepath.Join(netnsDir, s.Switch))
	if err != nil {
		return err
	}
	defer target.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index, attrs.MTU, attrs.Group = wireLink(plane, rank), portIndex(s.slot(plane, rank))+wireShift,
		s.MTU, linkGroup
	attrs.ParentIndex, attrs.HardwareAddr, attrs.Namespace = nic.Attrs().Index, wireMAC(plane, rank),
		netlink.NsFd(target.Fd())
	// Ports of one host meet in its switch, never here.
	if err := h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE}); err != nil {
		return fmt.Errorf("macvlan: %w", err)
	}
	return nil
}

// armWire attaches the program to a port's end on the Ethernet between hosts.
func armWire(s *State, o *objects, h *netlink.Handle, plane, rank int) error {
	l, err := h.LinkByName(wireLink(plane, rank))
	if err != nil {
		return err
	}
	p, err := load(wireProgram(s, o.tables, plane, rank))
	if err != nil {
		return err
	}
	defer shut(p)
	if err := attach(p, l.Attrs().Index, ebpf.AttachTCXIngress, s.pin(wirePin(plane, rank))); err != nil {
		return err
	}
	return h.LinkSetUp(l)
}
