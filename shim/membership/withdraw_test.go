package membership_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestRefusedSettings: if a rank cannot take part because of its own settings, all ranks get an error that names the
// rank and the setting. So do ranks that come later.
func TestRefusedSettings(t *testing.T) {
	split := func(t *testing.T, n int) []shim.InitArgs {
		return asked(shimtest.NewWorld(t, n).Comms, membership.Origin{How: membership.BySplit})
	}
	byAddress := func(t *testing.T) []shim.InitArgs {
		t.Setenv("NCCL_COMM_ID", fmt.Sprintf("127.0.0.1:%d", shimtest.FreePort(t)))
		return byIDs(3, 1)(t)
	}
	for name, k := range map[string]struct {
		args     func(t *testing.T) []shim.InitArgs
		rank     int // the refused one
		variable string
		value    string
	}{
		"value":         {byIDs(2, 1), 1, "LIGHTPATH_PLANES", "many"},
		"root":          {byIDs(2, 1), 0, "LIGHTPATH_PLANES", "many"},
		"fabric":        {byIDs(3, 1), 1, "LIGHTPATH_FABRIC", "/nonexistent/fabric.yaml"},
		"places":        {byIDs(3, 2), 0, "LIGHTPATH_PLANES", "many"}, // rank 0 is alone in its block
		"socket":        {byIDs(2, 1), 1, "NCCL_SOCKET_IFNAME", "=nonexistent"},
		"address":       {byAddress, 1, "LIGHTPATH_PLANES", "many"},
		"address, root": {byAddress, 0, "LIGHTPATH_PLANES", "many"},
		"address, NIC":  {byAddress, 0, "NCCL_SOCKET_IFNAME", "=nonexistent"},
		"split":         {func(t *testing.T) []shim.InitArgs { return split(t, 3) }, 1, "LIGHTPATH_PLANES", "many"},
		"split, leader": {func(t *testing.T) []shim.InitArgs { return split(t, 2) }, 0, "LIGHTPATH_PLANES", "many"},
		"split, socket": {func(t *testing.T) []shim.InitArgs { return split(t, 2) }, 1, "NCCL_SOCKET_IFNAME", "=nonexistent"},
		"grow": {func(t *testing.T) []shim.InitArgs {
			return asked(shimtest.NewWorld(t, 2).Comms, membership.Origin{How: membership.ByGrow, Ranks: 3})
		}, 1, "LIGHTPATH_PLANES", "many"},
		"shrink":        {shrink, 1, "LIGHTPATH_PLANES", "many"},
		"shrink, first": {shrink, 0, "LIGHTPATH_PLANES", "many"},
	} {
		for _, late := range []bool{false, true} {
			if late && strings.HasPrefix(name, "address") {
				continue // without rank 0 there is no place to tell
			}
			t.Run(fmt.Sprintf("%s/%v", name, late), func(t *testing.T) {
				args := k.args(t)
				refused := args[k.rank : k.rank+1]
				refuse := func() {
					t.Setenv(k.variable, k.value)
					_, err := shim.Init(refused)
					shimtest.WantError(t, err, errdefs.ErrInvalidUsage, k.variable)
					t.Setenv(k.variable, "")
				}
				if late {
					refuse()
				}
				others := startAll(t, slices.Delete(slices.Clone(args), k.rank, k.rank+1))
				if !late {
					refuse()
				}
				for _, c := range others {
					shimtest.WantError(t, finished(t, c), errdefs.ErrRemote, fmt.Sprintf("rank %d (", k.rank), k.variable)
				}
			})
		}
	}
}

// byIDs asks for a communicator of n ranks with ids.
func byIDs(n, ids int) func(t *testing.T) []shim.InitArgs {
	return func(t *testing.T) (args []shim.InitArgs) {
		all := make([]shim.UniqueID, ids)
		for i := range all {
			var err error
			all[i], err = shim.NewUniqueID()
			require.NoError(t, err)
		}
		for r := range n {
			args = append(args, shim.InitArgs{ID: all[0], More: all[1:], Ranks: n, Rank: r})
		}
		return args
	}
}

// asked asks for one communicator of each parent's rank.
func asked(parents []*shim.Comm, o membership.Origin) (args []shim.InitArgs) {
	for _, p := range parents {
		o := o
		o.Parent = p
		args = append(args, shim.InitArgs{From: &o})
	}
	return args
}

// shrink asks for a communicator of ranks 0 and 1 of three.
func shrink(t *testing.T) []shim.InitArgs {
	return asked(shimtest.NewWorld(t, 3).Comms[:2], membership.Origin{How: membership.ByShrink, Exclude: []int{2}})
}

// startAll begins to make communicators, each by a call of its own.
func startAll(t *testing.T, args []shim.InitArgs) (comms []*shim.Comm) {
	t.Helper()
	for i := range args {
		comms = append(comms, startTogether(t, args[i:i+1])...)
	}
	return comms
}

// startTogether begins to make communicators by one call.
func startTogether(t *testing.T, args []shim.InitArgs) []*shim.Comm {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		args[i].NonBlocking = true
	}
	comms, err := shim.Init(args)
	begun(t, err)
	t.Cleanup(func() { destroyAnyhow(shimtest.WorldOf(t, comms)) })
	return comms
}

// TestAbortedShrinkIsTold: a rank that aborts a shrink before it has met others keeps no other rank waiting, and the
// next shrink is as usual.
func TestAbortedShrinkIsTold(t *testing.T) {
	for _, rank := range []int{0, 1} {
		for _, queued := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%v", rank, queued), func(t *testing.T) {
				args := shrink(t)
				own, others := args[rank:rank+1], args[1-rank:2-rank]
				if queued { // behind a shrink for which the other rank has not come
					own = []shim.InitArgs{own[0], own[0]}
				}
				made := startTogether(t, own)
				require.NoError(t, made[len(made)-1].Abort())
				if queued {
					for _, c := range []*shim.Comm{made[0], startTogether(t, others)[0]} {
						require.NoError(t, finished(t, c))
					}
				}
				other := startTogether(t, others)[0]
				shimtest.WantError(t, finished(t, other), errdefs.ErrRemote, fmt.Sprintf("rank %d (", rank), "left while")
				for _, c := range startAll(t, args) {
					require.NoError(t, finished(t, c))
				}
			})
		}
	}
}

// TestInvalidGroup: if a group asks for one communicator with invalid arguments, other ranks do not wait for its
// others.
func TestInvalidGroup(t *testing.T) {
	args := byIDs(2, 1)(t)
	other := startTogether(t, args[1:])[0]
	_, err := shim.Init([]shim.InitArgs{args[0], {Ranks: 1, Rank: 1}})
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument)
	shimtest.WantError(t, finished(t, other), errdefs.ErrRemote, "rank 0 (", "rank 1 is not in 0..0")
}

// TestAbortedSplitIsTold: a rank that aborts its child after it has asked for it keeps no other rank waiting.
func TestAbortedSplitIsTold(t *testing.T) {
	w := shimtest.NewWorld(t, 3)
	for i := range 3 * 10 {
		gone := i % 3
		split := membership.Origin{Parent: w.Comms[gone], How: membership.BySplit}
		comms, err := shim.Init([]shim.InitArgs{{From: &split, NonBlocking: true}})
		begun(t, err)
		others := make(chan error, 2)
		for r, c := range w.Comms {
			if r == gone {
				continue
			}
			go func() {
				child, err := shimtest.InitFrom(membership.Origin{Parent: c, How: membership.BySplit})
				if err == nil { // made before the abort
					<-child.FailedChan()
					err = child.AsyncError()
					_ = child.Abort()
				}
				others <- err
			}()
		}
		for range (1 << (i / 3)) - 1 {
			runtime.Gosched()
		}
		require.NoError(t, comms[0].Abort())
		for range 2 {
			if err := <-others; !errors.Is(err, errdefs.ErrAborted) && !errors.Is(err, errdefs.ErrRemote) {
				t.Errorf("rank %d aborts: %v", gone, err)
			}
		}
	}
	w.Must(shimtest.CheckSums)
}
