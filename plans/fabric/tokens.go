package fabric

import (
	"fmt"
	"math"

	"github.com/goccy/go-yaml/token"
)

// maxNesting keeps the recursive YAML parser far from the end of its stack.
const maxNesting = 64

// checkTokens refuses text for which the YAML parser has no bound. Its stack grows with the nesting. For each key and
// list item without a value, it moves the rest of the file; no field of a file may lack its value.
func checkTokens(all token.Tokens) error {
	if all.InvalidToken() != nil {
		return nil // the parser says why, and stops
	}
	tokens := make(token.Tokens, 0, len(all)+2)
	for _, t := range all {
		if t.Type != token.CommentType {
			tokens = append(tokens, t)
		}
	}
	end := &token.Token{Type: token.DocumentEndType, Position: &token.Position{Line: math.MaxInt}}
	tokens = append(tokens, end, end)
	var open []token.Type // brackets
	line, items := 0, 0   // list items that begin on this line
	for i, t := range tokens[:len(tokens)-2] {
		if t.Position.Line != line {
			line, items = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open = append(open, t.Type)
		case token.SequenceEndType, token.MappingEndType:
			open = open[:max(0, len(open)-1)]
		case token.SequenceEntryType:
			items++
		case token.MappingKeyType:
			return fmt.Errorf("line %d: want a plain field name", line)
		}
		if len(open)+items > maxNesting {
			return fmt.Errorf("line %d: nested deeper than %d", line, maxNesting)
		}
		if owner := lacksValue(tokens, i, open); owner != nil {
			what := fmt.Sprintf("field %q", owner.Value)
			if owner.Type == token.SequenceEntryType {
				what = "a list element"
			}
			return fmt.Errorf("line %d: %s has no value", line, what)
		}
	}
	return nil
}

// lacksValue returns the key or list item of token i if it has no value, else nil. Two tokens follow token i. open are
// the brackets around it.
func lacksValue(tokens token.Tokens, i int, open []token.Type) *token.Token {
	t, next := tokens[i], tokens[i+1]
	owner := t
	switch t.Type {
	case token.MappingStartType, token.CollectEntryType: // {a, b}
		if len(open) == 0 || open[len(open)-1] != token.MappingStartType || next.Type == token.MappingEndType ||
			tokens[i+2].Type == token.MappingValueType {
			return nil
		}
		return next
	case token.MappingValueType:
		if i > 0 && tokens[i-1].Type != token.SequenceEntryType {
			owner = tokens[i-1]
		}
	case token.SequenceEntryType:
	default:
		return nil
	}
	column, at := owner.Position.Column, next.Position.Column
	switch {
	case next.Type == token.CollectEntryType || next.Type == token.MappingEndType || next.Type == token.SequenceEndType:
		return owner
	case len(open) > 0 || next.Position.Line == t.Position.Line || at > column:
		return nil
	case at == column && t.Type == token.MappingValueType && next.Type == token.SequenceEntryType:
		return nil // a list may be as far left as its key
	}
	return owner
}
