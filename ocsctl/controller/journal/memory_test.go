package journal_test

import (
	"testing"

	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/journaltest"
)

func TestMemory(t *testing.T) {
	journaltest.Run(t, func(_ *testing.T, keep int) journal.Store { return journal.NewMemory("test", keep) })
}
