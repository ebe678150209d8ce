package dispatch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// A tuner plugin of NCCL says what collectives cost with NCCL's algorithms. The leader asks it when the communicator is
// made, for sizes that are powers of two, and gives all ranks the answers. So ranks choose alike, and no call waits for
// a plugin.

// Tuner is a plugin that is ready for a communicator. It is used by one goroutine.
type Tuner interface {
	// Name returns the tuner's name and the version of its interface.
	Name() string
	// Ask lets the tuner change the costs of a collective. NCCL counts the bytes of the larger buffer.
	Ask(coll schedule.Collective, bytes int64, costs *Costs) error
	// Close frees the tuner.
	Close()
}

// Costs are times of a collective in microseconds, by NCCL's numbers of algorithms and protocols. The lowest one is
// chosen. A negative one is of something that does not exist.
type Costs [len(algorithmNames)][3]float32

// algorithmNames are NCCL's names of its algorithms.
var algorithmNames = [...]string{"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"}

const tree, ring, pat = 0, 1, 6

// meanings are the algorithms that do here what NCCL's do. PAT has the steps of Bruck's algorithm.
var meanings = [schedule.NumCollectives][len(algorithmNames)]string{
	schedule.AllReduce:     {tree: "double-binary-tree", ring: "ring"},
	schedule.Broadcast:     {tree: "double-binary-tree", ring: "ring"},
	schedule.Reduce:        {tree: "double-binary-tree", ring: "ring"},
	schedule.AllGather:     {ring: "ring", pat: "bruck"},
	schedule.ReduceScatter: {ring: "ring", pat: "bruck"},
}

// initialCost is above all times that a tuner predicts. So a cost that it sets is lower than one that it leaves alone,
// and costs that it leaves alone name no algorithm, since they are equal.
const initialCost = 1e9

// TunerLoader opens tuners.
type TunerLoader interface {
	// Open loads the first of the files that exists, and makes the tuner in it ready for a communicator.
	Open(files []string, o TunerOptions) (Tuner, error)
}

// TunerOptions describe a communicator to a tuner.
type TunerOptions struct {
	Comm         uint64
	Ranks, Nodes int
	Least, Most  int // ranks of a node
	Log          func(warn bool, line string)
}

// tuners opens tuners; nil if the program cannot open any.
var tuners TunerLoader

// UseTuners sets the loader of tuners, and returns the previous one. Call it before the first communicator is made.
func UseTuners(l TunerLoader) (before TunerLoader) {
	before, tuners = tuners, l
	return before
}

// tuned is an answer of a tuner: an algorithm for blocks of some sizes.
type tuned struct {
	Collective schedule.Collective
	Min, Max   int64 // bytes of a block
	Algorithm  string
}

// Tune asks the tuner of NCCL_TUNER_PLUGIN about all collectives for which LIGHTPATH_ALGORITHM names no algorithm. It
// returns the answers, encoded for [Adopt]; nil if there are none. The leader calls it. net says that the packet planes
// are those of a network plugin, whose library may have a tuner, too. A tuner that cannot be used is a warning if the
// user has asked for it.
func Tune(c *comm.Core, net bool) []byte {
	t := openTuner(c, net)
	if t == nil {
		return nil
	}
	defer t.Close()
	var all []tuned
	var unknown []string
	for coll := range schedule.NumCollectives {
		if meanings[coll][ring] == "" || c.Cfg.Algorithms[coll.String()] != "" {
			continue
		}
		answers, names, err := ask(t, coll, c.Ranks)
		if err != nil {
			c.Log.Warn("tuner plugin %s is not used: %v: %v", t.Name(), coll, err)
			return nil
		}
		all = append(all, answers...)
		for _, name := range names {
			unknown = append(unknown, name+" for "+coll.String())
		}
	}
	c.Log.Info(log.Init, "tuner plugin %s: %s. Its protocols and channels have no meaning here", t.Name(), describe(all))
	if unknown != nil {
		c.Log.Info(log.Init, "tuner plugin %s: %s: no such algorithm here, so Lightpath chooses", t.Name(),
			strings.Join(unknown, ", "))
	}
	if all == nil {
		return nil
	}
	body, _ := json.Marshal(all) // plain structs: cannot fail
	return body
}

// openTuner opens the first tuner that works, and logs why there is none.
func openTuner(c *comm.Core, net bool) Tuner {
	all := settings.PluginFiles("tuner", c.Cfg.Plugins.Tuner)
	if len(all) == 0 || tuners == nil {
		return nil
	}
	if net {
		all = append(all, settings.PluginFiles("net", c.Cfg.Plugins.Net)...)
	}
	hosts := c.Hosts()
	o := TunerOptions{Comm: c.ID, Ranks: c.Ranks, Nodes: len(hosts), Least: c.Ranks, Log: c.Log.Plugin}
	for _, n := range hosts {
		o.Least, o.Most = min(o.Least, n), max(o.Most, n)
	}
	var failed []string
	for _, files := range all {
		t, err := tuners.Open(files, o)
		if err == nil {
			return t
		}
		failed = append(failed, err.Error())
	}
	if why := strings.Join(failed, "; "); c.Cfg.Plugins.Tuner == "" {
		c.Log.Info(log.Tuning, "no tuner plugin: %s", why)
	} else {
		c.Log.Warn("NCCL_TUNER_PLUGIN is not used: %s", why)
	}
	return nil
}

// Sizes for which a tuner is asked. An answer also holds for the sizes above half of its own, the last one for all
// larger sizes.
const firstSize, lastSize = 256, 2 << 30

// ask asks a tuner about a collective. unknown are the algorithms that it names and Lightpath does not have.
func ask(t Tuner, coll schedule.Collective, ranks int) (all []tuned, unknown []string, err error) {
	blocks, next := int64(max(coll.IOBlocks(ranks))), int64(0)
	for size := int64(firstSize); size <= lastSize; size *= 2 {
		algorithm, err := cheapest(t, coll, size)
		if err != nil {
			return nil, nil, err
		}
		one := tuned{Collective: coll, Min: next, Max: size / blocks}
		next = one.Max + 1
		if size == lastSize {
			one.Max = anySize
		}
		if algorithm < 0 || one.Max < one.Min {
			continue
		}
		last := len(all) - 1
		switch one.Algorithm = meanings[coll][algorithm]; {
		case one.Algorithm != "" && last >= 0 && all[last].Algorithm == one.Algorithm && all[last].Max+1 == one.Min:
			all[last].Max = one.Max
		case one.Algorithm != "":
			all = append(all, one)
		case !slices.Contains(unknown, algorithmNames[algorithm]):
			unknown = append(unknown, algorithmNames[algorithm])
		}
	}
	return all, unknown, nil
}

// cheapest returns the algorithm to which a tuner gives the lowest cost; -1 for none.
func cheapest(t Tuner, coll schedule.Collective, size int64) (algorithm int, err error) {
	var costs Costs
	for a := range costs {
		for p := range costs[a] {
			costs[a][p] = -1
			if meanings[coll][a] != "" {
				costs[a][p] = initialCost
			}
		}
	}
	if err := t.Ask(coll, size, &costs); err != nil {
		return -1, err
	}
	algorithm = -1
	lowest := float32(math.Inf(1))
	for a := range costs {
		for _, cost := range costs[a] {
			switch {
			case cost >= 0 && cost < lowest:
				algorithm, lowest = a, cost
			case cost == lowest && algorithm != a:
				algorithm = -1
			}
		}
	}
	return algorithm, nil
}

// describe describes the answers for the log.
func describe(all []tuned) string {
	if all == nil {
		return "it names no algorithm"
	}
	var texts []string
	for _, a := range all {
		text := fmt.Sprintf("%v by %s", a.Collective, a.Algorithm)
		if a.Min > 0 {
			text += fmt.Sprintf(" from %d", a.Min)
		}
		if a.Max != anySize {
			text += fmt.Sprintf(" to %d", a.Max)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ") + " (bytes of a block)"
}

// adopted are the choices of communicators on packet planes.
var adopted = comm.NewSlot[Choices]()

// Adopt sets the choices of a communicator on packet planes of a transport. The answers of the leader's tuner come
// first, if there are any. All ranks call Adopt before their first call.
func Adopt(c *comm.Core, transport string, body []byte) error {
	if len(body) == 0 {
		adopted.Set(c, PacketChoices(transport))
		return nil
	}
	var all []tuned
	if err := control.DecodeStrict(body, &all); err != nil {
		return err
	}
	var choices Choices
	for _, a := range all {
		if !schedule.Defined(a.Collective, a.Algorithm, c.Ranks) {
			return fmt.Errorf("%w: %v by %q on %d ranks", control.ErrMessage, a.Collective, a.Algorithm, c.Ranks)
		}
		choices[a.Collective] = append(choices[a.Collective], choice{min: a.Min, max: a.Max, algorithm: a.Algorithm})
	}
	for coll := range choices {
		choices[coll] = append(choices[coll], PacketChoices(transport)[coll]...)
	}
	adopted.Set(c, &choices)
	return nil
}

// PacketsOf returns what [Adopt] has set.
func PacketsOf(c *comm.Core) *Choices { return adopted.Of(c) }
