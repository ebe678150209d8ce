package planstest

import (
	"os"
	"path/filepath"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
)

// Read returns a file of plans/testdata. The test must belong to a package one level below
// plans.
func Read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", file))
	require.NoError(t, err)
	return data
}

// Load returns a problem of plans/testdata, such as "swot-fig5", and its plan. The caller
// may change both.
func Load(t testing.TB, name string) (*plans.Problem, *plans.Plan) {
	t.Helper()
	problem, err := plans.DecodeProblem(Read(t, name+".problem.json"))
	require.NoError(t, err)
	plan, err := plans.DecodePlan(Read(t, name+".plan.json"))
	require.NoError(t, err)
	return problem, plan
}
