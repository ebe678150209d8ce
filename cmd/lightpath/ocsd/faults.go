package ocsd

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// faultScript has the faults of a file happen on models of switches: once when it starts, and again, as
// the file is then, whenever this process gets SIGHUP.
type faultScript struct {
	read   func() ([]byte, error)
	models []*device.Device
	hangup chan os.Signal
	cancel []func() // watching
	quit   chan struct{}
	done   chan struct{}
}

// startFaults starts the script that read returns. The caller stops it before it closes the models. Other goroutines
// call tell for every fault, and for every error when the script is read again. tell must not block.
func startFaults(read func() ([]byte, error), models []*device.Device, tell func(text string)) (*faultScript, error) {
	s := &faultScript{read: read, models: models, hangup: make(chan os.Signal, 1), quit: make(chan struct{}),
		done: make(chan struct{})}
	signal.Notify(s.hangup, syscall.SIGHUP)
	for _, m := range models {
		s.cancel = append(s.cancel, m.Watch(func(e device.Event) {
			if e.Kind == device.Injected {
				tell(describe(e))
			}
		}))
	}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.quit:
				return
			case <-s.hangup:
				if err := s.run(); err != nil {
					tell(err.Error())
				}
			}
		}
	}()
	if err := s.run(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// describe names a fault, and its ports if the script names some.
func describe(e device.Event) string {
	text := e.Note
	if e.In != circuit.Dark {
		text += fmt.Sprintf(", in %d", e.In)
	}
	if e.Out != circuit.Dark {
		text += fmt.Sprintf(", out %d", e.Out)
	}
	return text
}

// run starts the script.
func (s *faultScript) run() error {
	data, err := s.read()
	if err != nil {
		return err
	}
	script, err := device.ParseScript(data)
	for _, m := range s.models {
		if err == nil {
			err = m.Run(script)
		}
	}
	return err
}

// stop stops the script and all calls of tell.
func (s *faultScript) stop() {
	signal.Stop(s.hangup)
	close(s.quit)
	<-s.done
	for _, cancel := range s.cancel {
		cancel()
	}
}
