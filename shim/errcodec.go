package shim

import (
	"errors"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// remoteError is an error that happened on another rank.
type remoteError struct {
	text string
	is   error
}

// ReportedByAnother ends the text of an error that this rank was told of, not met itself.
const ReportedByAnother = " (reported by another rank)"

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// encodeError makes an error into a class, the row of resultTable that it matches, and
// its text. Row numbers are part of the protocol; versions do not mix.
func encodeError(err error) (class uint64, text string) {
	for i, e := range resultTable {
		if errors.Is(err, e.is) {
			return uint64(i) + 1, errdefs.Cut(err.Error(), 4096)
		}
	}
	return 0, errdefs.Cut(err.Error(), 4096)
}

// decodeError is the inverse; the error names its origin and matches the same sentinel.
func decodeError(m *control.Message) error {
	is := ErrInternal
	if m.Arg >= 1 && m.Arg <= uint64(len(resultTable)) {
		is = resultTable[m.Arg-1].is
	}
	return &remoteError{text: string(m.Body) + ReportedByAnother, is: is}
}
