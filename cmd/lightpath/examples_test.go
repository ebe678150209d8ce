package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples parses each example of each command: the command exists, has the flags, and accepts the arguments.
func TestExamples(t *testing.T) {
	commands := 0
	everyCommand(lightpath(), nil, func(c *cobra.Command, words []string) {
		if !c.HasSubCommands() {
			commands++
			if c.Example == "" {
				t.Errorf("lightpath %s: its help has no example", strings.Join(words, " "))
			}
		}
	})
	if len(examples) < commands {
		t.Errorf("%d examples, %d commands", len(examples), commands)
	}
	for name, text := range examples {
		if c, rest, err := lightpath().Find(strings.Fields(name)); err != nil || len(rest) > 0 || c.Example == "" {
			t.Errorf("there is no command %q", name)
		}
		text = strings.ReplaceAll(text, "\\\n", "")
		for line := range strings.Lines(strings.TrimSpace(text)) {
			words := strings.Fields(line)
			start := slices.Index(words, "lightpath")
			c, args, err := lightpath().Find(words[start+1:])
			if err == nil {
				err = c.ParseFlags(args)
			}
			if err == nil {
				err = errors.Join(c.ValidateArgs(c.Flags().Args()), c.ValidateRequiredFlags())
			}
			if err != nil || c.CommandPath() != "lightpath "+name {
				t.Errorf("%s: %q: %v", name, line, err)
			}
		}
	}
}
