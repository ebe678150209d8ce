package scpi

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// probe finds out, once per session, whether the switch reports the states of its ports, and which egress ports
// have a power meter. Models without either, and firmware with other commands, answer such a query with an error
// or not at all. Circuits are then verified by the remaining readings.
func (s *swtch) probe(ctx context.Context) error {
	if s.asked && s.wire.conn != nil {
		return nil
	}
	states, err := (&prober{s: s, query: ":OXC:SWIT:PORT:STAT? "}).words(ctx, s.in[:1])
	if err != nil {
		return err
	}
	metered := make([]bool, len(s.out))
	meters := prober{s: s, query: ":PMON:POW? "}
	for first := 0; first < len(s.out); first += maxQuery {
		if err := meters.find(ctx, metered, first, min(first+maxQuery, len(s.out))); err != nil {
			return err
		}
	}
	s.states, s.metered, s.asked = len(states) == 1 && isState(states[0]), metered, true
	s.info.CanState, s.info.CanLight = s.states, slices.Contains(metered, true)
	return nil
}

// prober asks one kind of query about ports.
type prober struct {
	s     *swtch
	query string
	mute  bool // the switch does not answer the query alone
	never bool // nor the query together with that of its error queue
}

// find marks the egress ports with a meter, from first to below end. If the switch refuses a query because a port has
// no meter, find asks for each half of the ports.
func (p *prober) find(ctx context.Context, metered []bool, first, end int) error {
	words, err := p.words(ctx, p.s.out[first:end])
	if err != nil || p.never {
		return err
	}
	for i, w := range words {
		metered[first+i] = isPower(w)
	}
	if half := (first + end) / 2; words == nil && half > first {
		if err := p.find(ctx, metered, first, half); err != nil {
			return err
		}
		return p.find(ctx, metered, half, end)
	}
	return nil
}

// words asks about some ports and returns a word for each, nil if the switch cannot answer. If there is no answer,
// words repeats the query together with that of the error queue. An error is an error of the connection.
func (p *prober) words(ctx context.Context, ports []int) ([]string, error) {
	line := p.query + listText(ports)
	if !p.mute {
		reply, err := p.s.ask(ctx, line, p.s.wire.timeout)
		if err == nil || !silent(ctx, err) {
			return wordsOf(reply, len(ports)), err
		}
		p.mute = true
	}
	if p.never {
		return nil, nil
	}
	reply, err := p.s.ask(ctx, "*CLS;"+line+";:SYST:ERR:ALL?", p.s.wire.timeout)
	if err == nil || !silent(ctx, err) {
		reply, _, _ = strings.Cut(reply, ";")
		return wordsOf(reply, len(ports)), err
	}
	p.never = true
	return nil, p.s.identify(ctx)
}

// silent reports whether an answer timed out while the caller has time left.
func silent(ctx context.Context, err error) bool { return errors.Is(err, errReply) && ctx.Err() == nil }

// wordsOf reads a list of n words. It returns nil for any other reply.
func wordsOf(reply string, n int) []string {
	words, err := parseWords(reply, n)
	if err != nil {
		return nil
	}
	return words
}
