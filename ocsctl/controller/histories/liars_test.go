package histories

import (
	"errors"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// TestLiars checks that the histories of controllers that break a promise are found.
func TestLiars(t *testing.T) {
	const seeds = 20
	for name, lie := range map[string]func(controller.Controller) controller.Controller{
		"answers Set before the device has moved": func(c controller.Controller) controller.Controller {
			return hastySet{c}
		},
		"answers Disable without the journal": func(c controller.Controller) controller.Controller {
			return hastyDisable{c}
		},
		"grants a plane to two holders": func(c controller.Controller) controller.Controller {
			return &liar{Controller: c, grants: true}
		},
		"accepts past epochs": func(c controller.Controller) controller.Controller {
			return &liar{Controller: c, accepts: true}
		},
		"uses epochs again that the journal has lost": func(c controller.Controller) controller.Controller {
			return deaf{c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				w := newWorld(t, seed)
				w.between = lie
				if strings.Contains(name, "lost") {
					w.disk.faults.lose = 100
				}
				w.run(3, 60)
				if porcupine.CheckOperationsTimeout(rules{w.config.Forgive}.model(), w.history(), patience) == porcupine.Illegal {
					return
				}
			}
			t.Errorf("not found with %d seeds", seeds)
		})
	}
}

// deaf ignores the epochs that ranks know.
type deaf struct{ controller.Controller }

func (d deaf) Attach(s controller.Sink, o controller.AttachOptions) (controller.Attachment, error) {
	o.Known = nil
	return d.Controller.Attach(s, o)
}

type hastySet struct{ controller.Controller }

func (h hastySet) Set(plane int, target circuit.Permutation, who string) error {
	go func() { _ = h.Controller.Set(plane, target, who) }()
	return nil
}

type hastyDisable struct{ controller.Controller }

func (h hastyDisable) Disable(plane int, reason, who string) error {
	err := h.Controller.Disable(plane, reason, who)
	if errors.Is(err, controller.ErrJournal) {
		return nil
	}
	return err
}

// liar changes what ranks are told.
type liar struct {
	controller.Controller
	grants  bool // answers every Acquire at once
	accepts bool // does not tell that posts for past epochs are refused
}

func (l *liar) Attach(s controller.Sink, o controller.AttachOptions) (controller.Attachment, error) {
	told := &toldSink{Sink: s, liar: l}
	a, err := l.Controller.Attach(told, o)
	if err != nil {
		return nil, err
	}
	if l.grants {
		a = &generous{a, s}
	}
	return a, nil
}

type toldSink struct {
	controller.Sink
	liar *liar
}

func (s *toldSink) Refused(plane int, holder uint64, why error) {
	if !s.liar.accepts || !errors.Is(why, ocsctl.ErrStaleEpoch) {
		s.Sink.Refused(plane, holder, why)
	}
}

type generous struct {
	controller.Attachment
	sink controller.Sink
}

func (g *generous) Acquire(id uint64, l ocsctl.Lease) error {
	g.sink.Granted(id, l.Mask, nil)
	return nil
}
