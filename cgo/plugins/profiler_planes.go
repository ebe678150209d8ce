package plugins

// #include "profiler_calls.h"
import "C"

import (
	"math"

	"lightpath/collectives/program"
)

// planeEvents are the events of an operation on planes. In NCCL's words, a proxy has the sends of one call on one
// plane, or its receives.
type planeEvents struct {
	planes  int                  // of the program
	proxies []C.struct_lpp_proxy // by call, plane, and direction; without event: none
	steps   []C.uintptr_t        // by instruction of the program: a transfer under way, or 0
	holds   []C.uintptr_t        // by plane: it waits for its circuits, or 0
}

// proxy returns the index of a transfer's proxy.
func (e *planeEvents) proxy(in *program.Instruction) int {
	at, sends := in.Dst, 0
	if in.Kind == program.Send {
		at, sends = in.Src, 1
	}
	return 2*(int(at[0].Msg)*e.planes+int(in.Plane)) + sends // Msg is 0 in collectives
}

func (p *profiler) Program(number uint64, prog *program.Program) bool {
	op := p.operations[number]
	if op == nil || C.lpp_planes(op.p) == 0 {
		return false
	}
	n := len(prog.Lanes)
	e := planeEvents{
		planes:  n,
		proxies: make([]C.struct_lpp_proxy, 2*n*max(1, len(prog.MsgBytes))),
		steps:   make([]C.uintptr_t, prog.Instructions()), holds: make([]C.uintptr_t, n),
	}
	for part, count := range prog.Parts() {
		for i := range part.Code {
			e.add(&part.Code[i], count)
		}
	}
	for i := range e.proxies {
		o := &e.proxies[i]
		if call := i / 2 / n; o.transfers > 0 && call < len(op.calls) && op.calls[call].work != 0 {
			C.lpp_proxy_begin(op.p, op.calls[call].work, o)
		}
	}
	op.planes = e
	return true
}

// add counts an instruction of a program that runs so many times.
func (e *planeEvents) add(in *program.Instruction, count int) {
	if !in.Kind.Transfers() {
		return
	}
	i := e.proxy(in)
	o := &e.proxies[i]
	if o.transfers == 0 {
		o.plane, o.sends, o.peer = C.int(in.Plane), C.int(i&1), C.int(in.Peer)
	}
	o.transfers += C.int(count)
	o.size = max(o.size, C.int(min(in.Bytes, math.MaxInt32)))
}

func (p *profiler) Transfer(number uint64, id program.ID, transfer *program.Instruction, ended bool) {
	op := p.operations[number]
	if op == nil {
		return
	}
	e := &op.planes
	o, step, bytes := &e.proxies[e.proxy(transfer)], &e.steps[id], C.uint64_t(transfer.Bytes)
	if ended {
		C.lpp_transfer_end(op.p, o, *step, bytes)
		*step = 0
		return
	}
	*step = C.lpp_transfer_begin(op.p, o, bytes)
}

func (p *profiler) Hold(number uint64, plane int, ended bool) {
	op := p.operations[number]
	if op == nil {
		return
	}
	event := &op.planes.holds[plane]
	if ended {
		C.lpp_hold_end(op.p, *event)
		*event = 0
		return
	}
	*event = C.lpp_hold_begin(op.p)
}

// end stops the events of an operation that has failed, or that the recorder forgets.
func (e *planeEvents) end(p C.struct_lpp) {
	for _, list := range [2][]C.uintptr_t{e.steps, e.holds} {
		for _, event := range list {
			C.lpp_stop(p, event)
		}
	}
	for i := range e.proxies {
		C.lpp_proxy_end(p, &e.proxies[i])
	}
}
