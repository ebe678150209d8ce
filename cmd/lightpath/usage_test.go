package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls visit with each command of the tree and the words that name it.
func everyCommand(c *cobra.Command, words []string, visit func(*cobra.Command, []string)) {
	visit(c, words)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			everyCommand(sub, append(words[:len(words):len(words)], sub.Name()), visit)
		}
	}
}

// misspell drops the second letter of a name.
func misspell(name string) string { return name[:1] + name[2:] }

// TestMisspelledCommand misspells each command once: the error names the right one, whatever
// flags stand around it.
func TestMisspelledCommand(t *testing.T) {
	everyCommand(lightpath(), nil, func(_ *cobra.Command, words []string) {
		if len(words) == 0 {
			return
		}
		group, last := words[:len(words)-1], words[len(words)-1]
		says := []string{fmt.Sprintf("unknown command %q", misspell(last)), "did you mean", fmt.Sprintf("%q", last)}
		wrong := append(group[:len(group):len(group)], misspell(last))
		lightpath.Refuse(t, "", says, wrong...)
		lightpath.Refuse(t, "", says, append(wrong, "--controller", "localhost:1")...)
		lightpath.Refuse(t, "", says, append([]string{"help"}, wrong...)...)
	})
	lightpath.Refuse(t, "", []string{"unknown flag --controller",
		`name a command of "lightpath ocs" first`}, "ocs", "--controller", "localhost:1", "stauts")
	lightpath.Refuse(t, "", []string{`unknown command "zzzzzz" for "lightpath ocs"`, "lightpath ocs --help"}, "ocs",
		"zzzzzz")
	lightpath.Refuse(t, "", []string{`unknown command "zzzzzz" for "lightpath"`}, "zzzzzz")
}

// TestMisspelledFlag misspells each flag of each command once: the error names the right one.
func TestMisspelledFlag(t *testing.T) {
	everyCommand(lightpath(), nil, func(c *cobra.Command, words []string) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || c.Flags().Lookup(misspell(f.Name)) != nil {
				return
			}
			says := []string{"unknown flag --" + misspell(f.Name) + ":", "did you mean", "--" + f.Name}
			lightpath.Refuse(t, "", says, append(words[:len(words):len(words)], "--"+misspell(f.Name))...)
		})
	})
}

// TestWrongFlagValue gives each number, duration and switch a value of another kind: the error
// names the flag and the kind, and no function of Go.
func TestWrongFlagValue(t *testing.T) {
	everyCommand(lightpath(), nil, func(c *cobra.Command, words []string) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Value.Type(), "string") {
				return
			}
			args := append(words[:len(words):len(words)], "--"+f.Name+"=x")
			lightpath.Refuse(t, "", []string{"--" + f.Name, `"x"`}, args...)
			said := lightpath.Run(t, "", args...).Stderr
			for _, word := range []string{"strconv", "parse", "time:"} {
				if strings.Contains(said, word) {
					t.Errorf("lightpath %s: %s", strings.Join(args, " "), said)
				}
			}
		})
	})
	lightpath.Refuse(t, "", []string{"--ranks", "out of range"}, "bench", "allreduce", "--ranks", "99999999999999999999")
	lightpath.Refuse(t, "", []string{"--timeout", "1.5s"}, "ocs", "status", "--timeout", "5")
}

// TestWrongCount: a command that gets too few or too many arguments shows how it is called.
func TestWrongCount(t *testing.T) {
	lightpath.Refuse(t, "", []string{"an argument is missing", "lightpath schema NAME"}, "schema")
	lightpath.Refuse(t, "", []string{"too many arguments", "lightpath schema NAME"}, "schema", "plan", "fabric")
	lightpath.Refuse(t, "", []string{"an argument is missing", "-- program"}, "run")
	lightpath.Refuse(t, "", []string{"an argument is missing", "COLLECTIVE"}, "bench")
	lightpath.Refuse(t, "", []string{`lightpath demo takes no argument "more"`, "lightpath demo --help"}, "demo", "more")
}
