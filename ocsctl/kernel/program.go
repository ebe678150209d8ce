package kernel

import (
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/asm"
)

// There are three programs. switchProgram is at the switch's end of every port, where frames enter the switch.
// ingressProgram is at the rank's end, where frames arrive. egressProgram is at the rank's end, before the queues. They
// are written for the verifier of Linux 6.6, the first kernel with TCX.
//
// Registers that keep their values through a program:
//
//	R6 the frame   R7 the circuit entry, later the port to go to   R8 the port's counters
//
// The stack holds the frame's first 34 bytes (Ethernet and IPv4 headers), at offHeader.

// circuitEntry is a port's entry in the cross-connect. Ports are numbered from 1, so a new map is dark. Both halves are
// in one word, which is written and read atomically.
type circuitEntry uint64

func newEntry(to, from int) circuitEntry {
	return circuitEntry(uint32(to+1)) | circuitEntry(from+1)<<32
}

func (e circuitEntry) to() int { return int(uint32(e)) - 1 }

// Results of a TCX program.
const (
	tcxNext = -1
	tcxPass = 0
	tcxDrop = 2
)

// Fields of struct __sk_buff.
const (
	skbLen      = 0
	skbPriority = 32
	skbIfindex  = 40
)

// Positions of headers on the stack. A header starts at offHeader, which aligns its 16-bit fields to 2 bytes, and the
// first word of each address to 4 or 2 bytes.
const (
	headers     = ethHeader + 20
	offHeader   = -48
	offDstHead  = offHeader     // four bytes
	offDstTail  = offHeader + 4 // two
	offSrcHead  = offHeader + 6 // aligned to 2 bytes only: compared by halves
	offSrcTail  = offHeader + 10
	offType     = offHeader + 12
	offVersion  = offHeader + ethHeader
	offLength   = offHeader + ethHeader + 2
	offFragment = offHeader + ethHeader + 6
	offTTL      = offHeader + ethHeader + 8
	offProtocol = offHeader + ethHeader + 9
	offKey      = -8
	offByte     = -4
)

const (
	protoTCP = 6
	protoUDP = 17
)

// Offsets of the counters.
const (
	atUDP         = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.udp)
	atForwarded   = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.forwarded)
	atBytes       = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.bytes)
	atDark        = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.dark)
	atMisdirected = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.misdirected)
	atReturned    = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.returned)
	atOther       = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.other)
	atTokens      = unsafe.Offsetof(Counters{}.sw) + unsafe.Offsetof(switchCounters{}.tokens)

	atDelivered      = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.delivered)
	atDeliveredBytes = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.deliveredBytes)
	atCameBack       = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.misdirected)
	atTransit        = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.transit)
	atTransitBytes   = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.transitBytes)
	atTransitUDP     = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.transitUDP)
	atTransitPayload = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.transitPayload)
	atStrayed        = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.strayed)
)

// program concatenates pieces. The first instruction of a piece may have a label.
func program(pieces ...asm.Instructions) asm.Instructions { return slices.Concat(pieces...) }

func label(name string, in asm.Instructions) asm.Instructions {
	in[0] = in[0].WithSymbol(name)
	return in
}

// finish ends a program with a verdict.
func finish(verdict int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}
}

// count adds a register to one of the port's counters; R0 stands for 1.
func count(counter uintptr, by asm.Register) asm.Instructions {
	add := asm.AddAtomic.Mem(asm.R8, by, asm.DWord, int16(counter))
	if by == asm.R0 {
		return asm.Instructions{asm.Mov.Imm(asm.R0, 1), add}
	}
	return asm.Instructions{add}
}

// lookup sets R0 to the address of the value for the key R2, which it stores at offKey. Without a value the frame is
// lost.
func lookup(fd int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, fd),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, offKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
	}
}

// loadHeaders copies the headers to the stack. For a frame without complete headers it jumps to short.
func loadHeaders(short string) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, offHeader), asm.Mov.Imm(asm.R4, headers),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, short),
	}
}

// headerLength sets a register to the size of the IPv4 header in bytes.
func headerLength(r asm.Register) asm.Instructions {
	return asm.Instructions{asm.LoadMem(r, asm.RFP, offVersion, asm.Byte), asm.And.Imm(r, 0xf), asm.LSh.Imm(r, 2)}
}

// tcpPayload jumps to empty if a TCP segment has no payload, and to bad if it is malformed. Otherwise it continues.
func tcpPayload(empty, bad string) asm.Instructions {
	return program(
		asm.Instructions{ // a later fragment has no TCP header, and has payload
			asm.LoadMem(asm.R1, asm.RFP, offFragment, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.And.Imm(asm.R1, 0x1fff), asm.JNE.Imm(asm.R1, 0, "payload"),
		},
		headerLength(asm.R9),
		asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.R9), asm.Add.Imm(asm.R2, ethHeader+12), // the data offset
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, offByte), asm.Mov.Imm(asm.R4, 1),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, bad),
			asm.LoadMem(asm.R1, asm.RFP, offByte, asm.Byte), asm.RSh.Imm(asm.R1, 4), asm.LSh.Imm(asm.R1, 2),
			asm.Add.Reg(asm.R1, asm.R9), // both headers
			asm.LoadMem(asm.R2, asm.RFP, offLength, asm.Half), asm.HostTo(asm.BE, asm.R2, asm.Half),
			asm.JLE.Reg(asm.R2, asm.R1, empty),
			asm.Mov.Reg(asm.R0, asm.R0).WithSymbol("payload"),
		},
	)
}

// tables holds the maps that programs use.
type tables struct{ counters, circuits int } // file descriptors

// switchProgram handles frames that enter the switch at a port of a plane. It reads the circuit before it counts the
// frame, so a later move of the circuit does not affect a counted frame.
func switchProgram(s *State, t tables, plane int) asm.Instructions {
	first := s.slot(plane, 0)      // the slot of the plane's port 0,
	firstIndex := portIndex(first) // and its interface
	head, _ := macWords(rankMAC(plane, 0))
	var check, misdirected asm.Instructions // the verifier rejects unreachable code
	if !s.Forwarding {
		misdirected = program(label("misdirected", count(atMisdirected, asm.R0)), finish(tcxDrop))
		check = isFor(head, asm.R7, "misdirected")
	}
	return program(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word), asm.Add.Imm(asm.R1, int32(first-firstIndex)),
			asm.StoreMem(asm.RFP, offKey, asm.R1, asm.Word),
		},
		lookup(t.counters), asm.Instructions{asm.Mov.Reg(asm.R8, asm.R0)},
		lookup(t.circuits), asm.Instructions{asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord)},
		loadHeaders("other"),
		classify(),

		label("data", asm.Instructions{ // R7: the port at the circuit's end, from 1
			asm.LSh.Imm(asm.R7, 32), asm.RSh.Imm(asm.R7, 32),
			asm.JEq.Imm(asm.R7, 0, "dark"),
		}),
		check,
		count(atForwarded, asm.R0),
		asm.Instructions{asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word)},
		count(atBytes, asm.R1),
		label("send", asm.Instructions{
			asm.JGT.Imm(asm.R7, int32(s.Ranks), "drop"), // no such port: impossible in a map of a Board
		}),
		leave(s),
		asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, int32(firstIndex-1)), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirectPeer.Call(),
			asm.Return(),
		},

		label("back", backward(head)),
		count(atReturned, asm.R0), asm.Instructions{asm.Ja.Label("send")},

		label("token", asm.Instructions{asm.LSh.Imm(asm.R7, 32), asm.RSh.Imm(asm.R7, 32), asm.JEq.Imm(asm.R7, 0, "drop")}),
		count(atTokens, asm.R0), asm.Instructions{asm.Ja.Label("send")},

		label("dark", count(atDark, asm.R0)), finish(tcxDrop),
		misdirected,
		wire(s, plane),
		label("other", count(atOther, asm.R0)),
		label("drop", finish(tcxDrop)),
	)
}

// classify jumps to token, back, data or other by the frame's type. It counts UDP.
func classify() asm.Instructions {
	return program(
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offType, asm.Half),
			asm.JEq.Imm(asm.R1, native(etherToken), "token"),
			asm.JEq.Imm(asm.R1, native(etherARP), "back"),
			asm.JNE.Imm(asm.R1, native(etherIPv4), "other"),
			asm.LoadMem(asm.R1, asm.RFP, offProtocol, asm.Byte),
			asm.JEq.Imm(asm.R1, protoTCP, "tcp"),
			asm.JNE.Imm(asm.R1, protoUDP, "other"),
		},
		count(atUDP, asm.R0), asm.Instructions{asm.Ja.Label("data")},
		label("tcp", tcpPayload("back", "other")),
	)
}

// isFor continues if the frame is for the rank at a port, which counts from 1. Otherwise it jumps.
func isFor(head int32, port asm.Register, otherwise string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, offDstHead, asm.Word), asm.Mov.Imm32(asm.R2, head),
		asm.JNE.Reg(asm.R1, asm.R2, otherwise),
		asm.LoadMem(asm.R1, asm.RFP, offDstTail, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half), asm.Add.Imm(asm.R1, 1),
		asm.JNE.Reg(asm.R1, port, otherwise),
	}
}

// backward sets R7 to the port for a frame that may travel against circuits. That is the port of its rank, if one of
// this port's circuits leads to or from it. Otherwise the frame goes against the circuit that ends here.
func backward(head int32) asm.Instructions {
	return program(
		asm.Instructions{
			asm.Mov.Reg(asm.R9, asm.R7), asm.LSh.Imm(asm.R9, 32), asm.RSh.Imm(asm.R9, 32), // where data goes
			asm.RSh.Imm(asm.R7, 32), // where data comes from
		},
		isFor(head, asm.R9, "against"),
		asm.Instructions{asm.Mov.Reg(asm.R7, asm.R9)},
		label("against", asm.Instructions{asm.JEq.Imm(asm.R7, 0, "other")}),
	)
}

// ingressProgram handles frames that arrive at a rank. Frames for the rank go to its sockets. It drops frames that the
// rank itself has sent, because they have passed round the ring. Other IPv4 packets leave again by the same interface.
func ingressProgram(t tables, plane, rank, slot int, forwarding bool) asm.Instructions {
	head, _ := macWords(rankMAC(plane, rank))
	low, high, tail := macHalves(plane, rank)
	onward := program(
		asm.Instructions{asm.JNE.Imm(asm.R9, native(etherIPv4), "strayed")}, // a frame without a TTL could circle for ever
		decrementTTL("strayed"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offProtocol, asm.Byte), asm.JNE.Imm(asm.R1, protoUDP, "transit"),
		},
		headerLength(asm.R9),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offLength, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.Sub.Reg(asm.R1, asm.R9), asm.Sub.Imm(asm.R1, 8),
		},
		count(atTransitPayload, asm.R1),
		count(atTransitUDP, asm.R0),
		label("transit", asm.Instructions{asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word)}),
		count(atTransitBytes, asm.R1),
		count(atTransit, asm.R0),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	)
	if !forwarding {
		onward = asm.Instructions{asm.Ja.Label("strayed")}
	}
	return program(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, offKey, int64(slot), asm.Word),
		},
		lookup(t.counters), asm.Instructions{asm.Mov.Reg(asm.R8, asm.R0)},
		loadHeaders("drop"),
		asm.Instructions{
			asm.LoadMem(asm.R9, asm.RFP, offType, asm.Half),
			// broadcast
			asm.LoadMem(asm.R1, asm.RFP, offDstHead, asm.Byte), asm.And.Imm(asm.R1, 1), asm.JNE.Imm(asm.R1, 0, "pass"),
			asm.LoadMem(asm.R1, asm.RFP, offDstHead, asm.Word), asm.Mov.Imm32(asm.R2, head),
			asm.JNE.Reg(asm.R1, asm.R2, "strayed"), // for another plane, or for no rank
			asm.LoadMem(asm.R1, asm.RFP, offDstTail, asm.Half), asm.JEq.Imm(asm.R1, tail, "deliver"),
			asm.JEq.Imm(asm.R9, native(etherToken), "drop"), // a token must not arrive by a wrong circuit
			asm.LoadMem(asm.R1, asm.RFP, offSrcTail, asm.Half), asm.JNE.Imm(asm.R1, tail, "onward"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead, asm.Half), asm.JNE.Imm(asm.R1, low, "onward"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead+2, asm.Half), asm.JNE.Imm(asm.R1, high, "onward"),
		},
		count(atCameBack, asm.R0), finish(tcxDrop),
		label("onward", onward),
		label("deliver", asm.Instructions{asm.JEq.Imm(asm.R9, native(etherToken), "pass"),
			asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word)}),
		count(atDeliveredBytes, asm.R1), count(atDelivered, asm.R0),
		label("pass", finish(tcxPass)),
		label("strayed", count(atStrayed, asm.R0)),
		label("drop", finish(tcxDrop)),
	)
}

// decrementTTL decrements a packet's time to live and updates its checksum. At zero it jumps to expired. So a frame
// ends whose sender and receiver have both left its ring, because circuits moved.
func decrementTTL(expired string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.RFP, offTTL, asm.Byte), asm.JLE.Imm(asm.R7, 1, expired), asm.Sub.Imm(asm.R7, 1),
		asm.LoadMem(asm.R3, asm.RFP, offTTL, asm.Half), // TTL and protocol: one word of the checksum
		asm.StoreMem(asm.RFP, offTTL, asm.R7, asm.Byte),
		asm.LoadMem(asm.R4, asm.RFP, offTTL, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, ethHeader+10), asm.Mov.Imm(asm.R5, 2),
		asm.FnL3CsumReplace.Call(),
		asm.JNE.Imm(asm.R0, 0, expired),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, ethHeader+8),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, offTTL), asm.Mov.Imm(asm.R4, 1), asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, expired),
	}
}

// macHalves returns a rank's address in halves, for comparison with a source address, which is aligned to 2 bytes only.
func macHalves(plane, rank int) (low, high, tail int32) {
	head, tail := macWords(rankMAC(plane, rank))
	low, high = head&0xffff, int32(uint32(head)>>16)
	if native(1) == 1 { // big-endian
		low, high = high, low
	}
	return low, high, tail
}

// The queues of a port; see shape. The major number is that of the qdisc's handle.
const (
	queueMajor  = 1
	queueRoot   = 1  // the class that has the port's rate
	queueFirst  = 16 // the class of source 0
	maxQueues   = 64
	queueDirect = queueMajor << 16
)

// egressProgram chooses the queue of a frame that a rank sends or forwards. Tokens, and frames that may travel against
// circuits, use a queue that is not shaped. Data is queued by source, so that all sources get equal parts of the rate.
// queues is a power of two.
func egressProgram(t tables, plane, rank, slot, queues int) asm.Instructions {
	return program(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, offKey, int64(slot), asm.Word),
		},
		lookup(t.counters), asm.Instructions{asm.Mov.Reg(asm.R8, asm.R0)},
		loadHeaders("direct"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offType, asm.Half), asm.JNE.Imm(asm.R1, native(etherIPv4), "direct"),
			asm.LoadMem(asm.R1, asm.RFP, offProtocol, asm.Byte), asm.JNE.Imm(asm.R1, protoTCP, "queue"),
		},
		tcpPayload("direct", "direct"),
		label("queue", asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offSrcTail, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.And.Imm(asm.R1, int32(queues-1)), asm.Add.Imm(asm.R1, queueDirect+queueFirst),
			asm.StoreMem(asm.R6, skbPriority, asm.R1, asm.Word),
			asm.LoadMem(asm.R1, asm.RFP, offProtocol, asm.Byte), asm.JNE.Imm(asm.R1, protoUDP, "next"),
		}),
		tally(plane, rank, "next"),
		label("next", finish(tcxNext)),
		label("direct", asm.Instructions{
			asm.Mov.Imm(asm.R1, queueDirect),
			asm.StoreMem(asm.R6, skbPriority, asm.R1, asm.Word),
		}),
		finish(tcxNext),
		label("drop", finish(tcxDrop)),
	)
}
