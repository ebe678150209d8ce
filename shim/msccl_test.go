package shim_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule/msccl"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

const mscclFiles = "../collectives/schedule/msccl/testdata/"

// TestMSCCLFiles runs the algorithms of msccl-tools against the oracle.
func TestMSCCLFiles(t *testing.T) {
	paths, err := filepath.Glob(mscclFiles + "*.xml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files", err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for _, path := range paths {
		f, err := msccl.Load(path)
		require.NoError(t, err)
		for _, kind := range shimtest.OracleKinds {
			f, err := f.As(calls.Kinds[kind].Collective)
			if err != nil || !strings.HasPrefix(filepath.Base(path), f.Collective.String()) {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".xml"), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
				t.Setenv("LIGHTPATH_ALGORITHM", f.Collective.String()+":msccl:"+path)
				w := shimtest.NewWorld(t, f.Ranks())
				for _, inPlace := range []bool{false, true} {
					for _, count := range []int{1, 101} {
						k := shimtest.Collective{Kind: kind, Type: datatype.Int32, Count: count, InPlace: inPlace}
						assert.NoError(t, k.Run(w, rng))
					}
				}
				for _, e := range session.Of(w.Comms[0]).Programs.Programs {
					if e.Algorithm != f.Identity() {
						t.Errorf("ran %s", e.Algorithm)
					}
				}
			})
		}
	}
}

// TestMSCCLOtherRanks checks that a communicator of another size than the file's ignores the file.
func TestMSCCLOtherRanks(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:msccl:"+mscclFiles+"allreduce-ring-3.xml")
	w := shimtest.NewWorld(t, 2)
	k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Int32, Count: 7}
	assert.NoError(t, k.Run(w, rand.New(rand.NewPCG(3, 4))))
}

// TestMSCCLFilesDiffer checks that ranks with different files refuse each other; the names of the files do not matter.
func TestMSCCLFilesDiffer(t *testing.T) {
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	errs := shimtest.Concurrently(t, 2, func(r int) error {
		cfg, err := settings.Of("LIGHTPATH_TIMEOUT", "40s",
			"LIGHTPATH_ALGORITHM", "allreduce:msccl:"+mscclFiles+[]string{"allreduce-ring-3", "allreduce-halving-8"}[r]+".xml")
		if err != nil {
			return err
		}
		_, err = shimtest.InitOne(shim.InitArgs{ID: id, Ranks: 2, Rank: r}, cfg)
		return err
	})
	shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "allreduce:msccl:allreduce_ring_1channelsperring#",
		"allreduce:msccl:allreduce_recursive_doubling_halving#")
}

// TestBadMSCCL checks that settings with a missing or bad file, or with a file for another collective, are refused.
func TestBadMSCCL(t *testing.T) {
	for value, says := range map[string]string{
		"allreduce:msccl:" + mscclFiles + "none.xml":                  "none.xml",
		"allreduce:msccl:" + mscclFiles + "README.md":                 "msccl: bad file",
		"allgather:msccl:" + mscclFiles + "allreduce-ring-3.xml":      "coll: allreduce, want allgather",
		"allreduce:msccl:" + mscclFiles + "alltoall-allpairs-3-2inst": "no such file",
	} {
		_, err := settings.Of("LIGHTPATH_ALGORITHM", value)
		shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "LIGHTPATH_ALGORITHM", says)
	}
}
