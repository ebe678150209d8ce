package cli

import (
	"fmt"
	"os"
	"time"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// ProgressLine returns a function that shows what runs now: one line that is rewritten on a
// terminal, a line each elsewhere.
func ProgressLine(terminal bool) func(format string, args ...any) {
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		switch {
		case terminal:
			fmt.Fprintf(os.Stderr, "\r\033[K%s", text)
		case text != "":
			fmt.Fprintln(os.Stderr, text)
		}
	}
}

// Progress returns a counter that overwrites one line of a terminal, or nil if standard error is no terminal.
func Progress(what string) func(done, total int) {
	if !IsTerminal(os.Stderr) {
		return nil
	}
	return func(done, total int) {
		fmt.Fprintf(os.Stderr, "\r%s: %d of %d", what, done, total)
		if done == total {
			fmt.Fprintln(os.Stderr)
		}
	}
}

// Waiting shows on a terminal for how many seconds what has run, from the second one on, until the caller calls stop.
func Waiting(what string) (stop func()) {
	if !IsTerminal(os.Stderr) {
		return func() {}
	}
	began, ended, gone := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				fmt.Fprint(os.Stderr, "\r\033[K")
				return
			case <-tick.C:
				if s := time.Since(began).Round(time.Second); s >= 2*time.Second {
					fmt.Fprintf(os.Stderr, "\r\033[K%s: %v", what, s)
				}
			}
		}
	}()
	return func() {
		close(ended)
		<-gone
	}
}

// Warn prints a warning about an accepted input.
func Warn(text string) { fmt.Fprintln(os.Stderr, "lightpath: warning:", text) }
