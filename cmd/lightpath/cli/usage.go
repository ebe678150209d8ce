package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainUsage makes every command of the tree answer a misspelled command or flag with the
// nearest name, in one line. A command that only groups others prints its help.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(explainFlag)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	explainGroups(root)
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // the line above has made it
	}
	help.Args = func(c *cobra.Command, args []string) error {
		found, rest, err := c.Root().Find(args)
		if err == nil && len(rest) > 0 {
			err = unknownCommand(found, rest[0])
		}
		return err
	}
}

func explainGroups(c *cobra.Command) {
	if !c.HasSubCommands() {
		explainArgument(c)
		return
	}
	accept := c.Args
	if c.RunE == nil {
		accept, c.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := accept(c, args)
		if err != nil && len(args) > 0 && !slices.Contains(c.ValidArgs, args[0]) {
			return unknownCommand(c, args[0])
		}
		return err
	}
	for _, sub := range c.Commands() {
		explainGroups(sub)
	}
}

// explainArgument makes c say that it takes no argument, where [cobra.NoArgs] speaks of an unknown command.
func explainArgument(c *cobra.Command) {
	accept := c.Args
	if accept == nil || accept(c, nil) != nil {
		return // it takes arguments
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := accept(c, args)
		if err != nil && err.Error() == cobra.NoArgs(c, args).Error() {
			return fmt.Errorf("%s takes no argument %q: see %[1]s --help", c.CommandPath(), args[0])
		}
		return err
	}
}

// OneArgument is for commands with one argument. Its error shows how c is called.
func OneArgument(c *cobra.Command, args []string) error { return counted(c, args, len(args) == 1) }

// Arguments is for commands with one argument or more. Its error shows how c is called.
func Arguments(c *cobra.Command, args []string) error { return counted(c, args, len(args) > 0) }

func counted(c *cobra.Command, args []string, ok bool) error {
	switch {
	case ok:
		return nil
	case len(args) == 0:
		return fmt.Errorf("an argument is missing: %s", c.UseLine())
	default:
		return fmt.Errorf("too many arguments: %s", c.UseLine())
	}
}

// Required returns an error that names each of these flags that still has its default: no value.
func Required(fl *pflag.FlagSet, names ...string) error {
	var missing []string
	for _, name := range names {
		if f := fl.Lookup(name); f.Value.String() == f.DefValue {
			missing = append(missing, "--"+name)
		}
	}
	switch n := len(missing); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is required", missing[0])
	default:
		return fmt.Errorf("%s and %s are required", strings.Join(missing[:n-1], ", "), missing[n-1])
	}
}

// Needs returns an error if one of these flags is given without the flag that gives it an effect.
func Needs(fl *pflag.FlagSet, needed string, names ...string) error {
	for _, name := range names {
		if fl.Changed(name) && fl.Lookup(needed).Value.String() == "" {
			return fmt.Errorf("--%s needs --%s", name, needed)
		}
	}
	return nil
}

// unknownCommand returns the error that c has no command, and takes no argument, of this name.
func unknownCommand(c *cobra.Command, name string) error {
	known := c.ValidArgs
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known[:len(known):len(known)], sub.Name())
		}
	}
	near := Nearest(name, known)
	if len(near) == 0 {
		return fmt.Errorf("unknown command %q for %q: see %s --help", name, c.CommandPath(), c.CommandPath())
	}
	for i, n := range near {
		near[i] = strconv.Quote(n)
	}
	return fmt.Errorf("unknown command %q for %q: did you mean %s?", name, c.CommandPath(), strings.Join(near, " or "))
}

// explainFlag rewrites the errors of pflag: it adds the nearest name to an unknown flag, and
// replaces the words of Go's parsers by the kind of value that the flag takes.
func explainFlag(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 {
		// The flag is probably meant for the command that is misspelled before it.
		if wrong := c.ValidateArgs(args); wrong != nil {
			return wrong
		}
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		return unknownFlag(c, unknown.GetSpecifiedName())
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := invalid.GetFlag()
		want, known := flagKinds[f.Value.Type()]
		switch {
		case errors.Is(err, strconv.ErrRange):
			want = "it is out of range"
		case !known:
			return fmt.Errorf("--%s %q: %w", f.Name, invalid.GetValue(), invalid.Unwrap())
		}
		return fmt.Errorf("--%s %q: %s", f.Name, invalid.GetValue(), want)
	}
	return err
}

// flagKinds describes the values of flags by pflag's types.
var flagKinds = map[string]string{
	"bool":         "want true or false",
	"int":          "want a whole number",
	"int64":        "want a whole number",
	"uint64":       "want a whole number of at least 0",
	"float64":      "want a number",
	"duration":     "want a time with its unit, such as 1.5s or 200us",
	"intSlice":     "want whole numbers with commas between them",
	"float64Slice": "want numbers with commas between them",
}

func unknownFlag(c *cobra.Command, name string) error {
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	near := Nearest(name, known)
	if len(near) > 0 {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, strings.Join(near, " or --"))
	}
	if slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Flags().Lookup(name) != nil }) {
		return fmt.Errorf("unknown flag --%s: name a command of %q first", name, c.CommandPath())
	}
	return fmt.Errorf("unknown flag --%s: see %s --help", name, c.CommandPath())
}

// Nearest returns the known names that name may be a misspelling or the beginning of.
func Nearest(name string, known []string) []string {
	// Cobra exports its edit distance only as a method of a command about its subcommands.
	var c cobra.Command
	c.SuggestionsMinimumDistance = 2
	for _, k := range known {
		c.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	return c.SuggestionsFor(name)
}
