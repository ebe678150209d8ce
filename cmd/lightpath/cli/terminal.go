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

// wipe makes a terminal rewrite its line.
const wipe = "\r\033[K"

// ProgressLine returns a function that shows on standard error what runs now: one line that is rewritten on a terminal,
// a line each elsewhere. Empty text only wipes the line.
func ProgressLine() func(format string, args ...any) {
	terminal := IsTerminal(os.Stderr)
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		switch {
		case terminal:
			fmt.Fprint(os.Stderr, wipe, text)
		case text != "":
			fmt.Fprintln(os.Stderr, text)
		}
	}
}

// CountLine is [ProgressLine] for text that changes often: it shows a few texts a second, on a terminal only.
func CountLine() func(format string, args ...any) {
	if !IsTerminal(os.Stderr) {
		return func(string, ...any) {}
	}
	show := ProgressLine()
	var shown time.Time
	return func(format string, args ...any) {
		if format == "" || time.Since(shown) > 200*time.Millisecond {
			shown = time.Now()
			show(format, args...)
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
				fmt.Fprint(os.Stderr, wipe)
				return
			case <-tick.C:
				if s := time.Since(began).Round(time.Second); s >= 2*time.Second {
					fmt.Fprintf(os.Stderr, "%s%s: %v", wipe, what, s)
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
