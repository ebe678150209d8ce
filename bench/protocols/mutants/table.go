package main

// mutant is one break of the protocols' code.
type mutant struct {
	name     string // a verb with its object: the behaviour of the broken code
	file     string
	old, new string // old occurs once in the file
	unit     bool   // the tests of the file's package may find it instead of the simulator
}

const (
	attachmentFile = "ocsctl/controller/attachment.go"
	machineFile    = "ocsctl/controller/machine.go"
	barrierFile    = "ocsctl/controller/barrier.go"
	leaseFile      = "ocsctl/controller/lease.go"
	moveFile       = "ocsctl/controller/move.go"
	postFile       = "ocsctl/controller/post.go"
	proposeFile    = "ocsctl/controller/propose.go"
	operateFile    = "ocsctl/controller/operate.go"
	grantFile      = "ocsctl/controller/grant.go"
	recoverFile    = "ocsctl/controller/recover.go"
	jobFile        = "ocsctl/controller/job.go"
	confirmFile    = "ocsctl/controller/confirm.go"
	arbiterFile    = "shim/arbiter/machine.go"
	planesFile     = "shim/arbiter/planes.go"
	rankFile       = "shim/circuits/machine.go"
	aheadFile      = "shim/arbiter/ahead.go"
	rankAheadFile  = "shim/circuits/ahead.go"
	turnsFile      = "shim/arbiter/turns.go"
	makingFile     = "ocsctl/controller/making.go"
	badPortFile    = "ocsctl/controller/badport.go"
	placementFile  = "plans/circuit/placement.go"
	portFile       = "shim/circuits/port.go"
	unitFile       = "ocsctl/switches/unit.go"
	changeFile     = "ocsctl/driver/change.go"
	knownFile      = "ocsctl/driver/known.go"
	sessionFile    = "ocsctl/driver/session.go"
	stateFile      = "ocsctl/controller/journal/state.go"
	roundsFile     = "shim/path/peer/rounds.go"
)

var mutants = []mutant{
	// The controller: order of journal, device and answers.
	{"moves before the intent is durable", proposeFile,
		"if pl.intent.durable {\n\t\tm.begin(pl, n, now)", "if true {\n\t\tm.begin(pl, n, now)", false},
	{"answers before the journal", confirmFile,
		"m.note(now, e, m.written(func(err error, _ int64) { m.confirmed(id, err) }))",
		"m.note(now, e, func(error) {})\n\tm.confirmed(id, nil)", false},
	{"moves after its rule has ended", moveFile,
		"return m.cfg.Leading()", "return nil", true},
	{"asks a switch after its rule has ended", changeFile,
		"if c.May != nil {", "if false {", false},
	{"all controllers have one token", moveFile,
		"Token: m.cfg.Token, Idle", "Token: 1 << 62, Idle", false},
	{"shows no token at a takeover", unitFile,
		"ok && u.d.cfg.Token != 0", "ok && false", false},
	{"stays leader after a fence", unitFile,
		"if errors.Is(err, driver.ErrFenced) {\n\t\terr =", "if false {\n\t\terr =", true},

	// The controller: verification.
	{"skips the reading of the map", moveFile,
		"case !observed.Equal(mv.to):", "case len(observed) == 0:", true},
	{"set ignores lost light", moveFile,
		"case !mv.enables() && len(found", "case mv.order == nil && len(found", true},
	{"ignores lost light of planes in service", moveFile,
		"default:\n\t\tm.renew(pl, bad, now)", "default:\n\t\t_ = bad", false},
	{"rules on while fenced planes are down", moveFile,
		"case errors.Is(unwell, ErrNotLeader): // also",
		"case errors.Is(unwell, ErrNotLeader) && pl.fault == nil: // also", true},
	{"takes moves of others for its own", rankFile,
		"int32(epoch-m.last[plane]) <= 0 ||", "true ||", true},
	{"ignores drift of planes in service", moveFile,
		"case !observed.Equal(pl.m):", "case false:", false},
	{"enable accepts drift", operateFile,
		"if !observed.Equal(pl.desired) {", "if len(observed) == 0 {", false},

	// The controller: leases.
	{"grants held planes", leaseFile,
		"&& l.admits(&q.leaseHolder, want)", "", false},
	{"shares planes between common ports", leaseFile,
		"if !h.places.Apart(holders[i].places) {", "if i < 0 {", false},
	{"overtakes requests with common ports", leaseFile,
		"waiting = append(waiting, q)\n", "waiting = append(waiting, q)[:0]\n", true},
	{"removes circuits of other holders", proposeFile,
		"n := &proposal{to: pl.m, epochs", "n := &proposal{to: circuit.AllDark(len(pl.m)), epochs", false},
	{"grants planes at different epochs", makingFile,
		"if pl.epochs[p] != at {", "if pl.epochs[p] != at && h == nil {", false},
	{"grants planes at an epoch with two maps", makingFile,
		"return changed <= began", "return true", false},
	{"advances the epochs of other holders", proposeFile,
		"for _, p := range h.places.Ports() {\n\t\t\tn.epochs[p] =", "for p := range n.epochs {\n\t\t\tn.epochs[p] =", false},
	{"advances epochs before a claim", proposeFile,
		"m.grace == 0 && m.lease.of(pl.index, p) == nil", "m.lease.of(pl.index, p) == nil", true},
	{"takes circuits off without a new epoch", proposeFile,
		"n.epochs[p]++\n", "_ = p\n", true},
	{"writes intents without epochs", proposeFile,
		"n.to, pl.brief(n.epochs)}", "n.to, nil}", false},
	{"forgets epochs of ports", stateFile,
		"s.Epochs = e.Epochs\n", "s.Epochs = nil\n", true},
	{"refuses all holders because of one", postFile,
		"if a != nil && (h == nil || h.at(port)) {\n\t\t\tm.refuse(pl, a, holder,",
		"if a != nil {\n\t\t\tif o := m.lease.of(pl.index, port); o != nil && h != nil {\n" +
			"\t\t\t\tholder = o.holder\n\t\t\t}\n\t\t\tm.refuse(pl, a, holder,",
		true},
	{"waits for ranks that have died", postFile,
		"if _, gone := m.absent(pl, h, r); len(gone) > 0 {",
		"if _, gone := m.absent(pl, h, r); false && len(gone) > 0 {", true},
	{"grants shared planes without their circuits", makingFile,
		"if !m.made(g) {", "if false {", true},
	{"makes circuits that their owner forbids", makingFile,
		", pl.permits(pl.jobOf(g.a.port), to) != nil", "", true},
	{"keeps requests of ranks that have left", leaseFile,
		"return matches(&g.leaseHolder) })", "return false })", true},
	{"welcomes ranks whose leases have ended", attachmentFile,
		"if m.grace == 0 && len(held) > 0 {", "if m.grace == 0 {\n\t\treturn nil\n\t}\n\tif false {", true},
	{"grants planes that move", leaseFile,
		"want&moving(&q.leaseHolder) == 0 && ", "", true},
	{"grants planes out of service", leaseFile,
		"want := q.mask &^ down(&q.leaseHolder)", "want := q.mask", false},
	{"grants to ranks that the journal lacks", leaseFile,
		" && q.a.recorded && ", " && ", true},
	{"counts posts without a lease as the holder's", postFile,
		"err = m.mayMove(pl, a.port, k.holder, target)",
		"if h := m.lease.of(pl.index, a.port); h != nil {\n\t\t\tk.holder = h.holder\n\t\t}", true},
	{"accepts posts to planes without a holder", leaseFile,
		"case h == nil && m.grace != 0: //", "case h == nil: //", true},
	{"keeps posts of the holder before", grantFile,
		"m.refuseOthers(mask)\n", "", true},
	{"lets a holder wait for itself", grantFile,
		"m.freed(q.a, m.lease.release(q.mask, q.a, q.holder), now)\n", "", false},
	{"set moves held planes", operateFile,
		"case len(held) > 0:\n\t\treturn fmt.Errorf(\"%s: by holder",
		"case len(held) > MaxPorts:\n\t\treturn fmt.Errorf(\"%s: by holder", false},

	// The controller: bad ports.
	{"closes a plane for all ports because of one", badPortFile,
		" || port >= 0 && m.closed(pl, port) == \"\" {", " {", true},
	{"hides a bad port from the ranks of its holder", badPortFile,
		"h.at(port) && h.has(out) {", "h.at(port) && false {", true},
	{"grants planes to holders with a bad port", grantFile,
		" || h.has(pl.out()) {", " {", true},
	{"moves a plane after a port has become bad", proposeFile,
		"r == nil || pl.spoilt(h, r) {", "r == nil {", true},
	{"returns a port while a holder has it", badPortFile,
		" || used || pl", " || used && false || pl", true},
	{"returns a port whose move failed", badPortFile,
		" || pl.bad[p].failedMove {", " {", true},
	{"forgets failed moves at a takeover", recoverFile,
		"badPort{why, true}", "badPort{why, false}", true},
	{"mends a plane before the journal has its failure", badPortFile,
		" || !m.mayRestore(pl, now) {", " {", true},
	{"mends a plane that is held", badPortFile,
		"|| len(m.lease.held[pl.index]) > 0\n\tif !pl.partial", "\n\tif !pl.partial", true},
	{"lets requests wait for jobs with a bad port", jobFile,
		"return !o.job.hasOut(pl) })", "return true })", true},

	// The controller: the barrier.
	{"accepts posts for the epoch before", barrierFile,
		"if k.epoch >= cur {", "if k.epoch+1 >= cur {", true},
	{"does not await ports of dead ranks", attachmentFile,
		"m.lost[a.port] = m.nextID\n", "", true},
	{"moves before all ports have posted", postFile,
		"!r.posted[port] &&", "!slices.Contains(r.posted, true) &&", false},
	{"awaits circuits to ports outside the lease", leaseFile,
		"h.at(port) && h.at(to)", "h.at(port)", false},
	{"awaits no circuits of the lease", leaseFile,
		"h.at(port) && h.at(to)", "h.at(port) && !h.at(to)", false},
	{"forgets the ports of a claimed lease", attachmentFile,
		"h := m.cfg.holder(a, l)\n", "h := m.cfg.holder(a, l)\n\t\th.places = nil\n", true},

	// The controller: takeover.
	{"forgets the grace time", recoverFile,
		"m.grace = now + int64(m.cfg.Grace)", "m.grace = 0", false},
	{"takes a drifted map over", recoverFile,
		"case !observed.Equal(pl.desired):", "case false:", false},
	{"forgets disable in a restart", recoverFile,
		"pl.unread.Map, pl.unread.Disabled", "pl.unread.Map, \"\"", false},
	{"takes a dark plane over", recoverFile,
		"if err == nil {\n\t\t_, bad, err = m.report(pl)", "if false {\n\t\t_, bad, err = m.report(pl)", true},
	{"keeps failures in the journal", recoverFile,
		"if r.Failed && !switched {", "if false {", true},
	{"forgives dark planes", machineFile,
		"_, found, unwell := m.report(pl)",
		"_, found, unwell := (circuit.Permutation)(nil), (*BadPorts)(nil), error(nil)", true},
	{"adopts lost circuits in a takeover", recoverFile,
		"(at != circuit.Dark || from[p] == to[p])", "at != circuit.Dark", false},
	{"journals no disable", stateFile,
		"s.Disabled = e.Err\n", "", false},

	// The leader of a communicator.
	{"issues a ticket before all wants", arbiterFile,
		"case w.have < m.cfg.Ranks:", "case w.have < m.cfg.Ranks-1:", false},
	{"rests before all ranks are done", arbiterFile,
		"if m.done < m.cfg.Ranks {", "if m.done < 1 {", false},
	{"gives planes back during an operation", planesFile,
		"if m.stage != idle {\n\t\treturn nil\n\t}\n\tfor", "for", true},
	{"gives planes back while they switch", planesFile,
		"case int32(epoch-m.standing[j].Epoch) < 0 && !m.abandoned():", "case epoch == 0:", true},
	{"gives long-held planes back while they switch", planesFile,
		"if m.waiting != 0 {\n\t\treturn nil\n\t}\n\tm.giveBack()", "m.giveBack()", true},
	{"keeps epochs of an earlier grant", planesFile,
		"m.reload()\n\tif late {", "if late {", false},
	{"compares epochs with <=", rankFile,
		"err == nil && int32(epoch-want.Epoch) >= 0:", "err == nil && int32(epoch-want.Epoch) >= -1:", false},

	{"gives planes back before all ranks have answered", aheadFile,
		"if slices.Contains(a.ranks, unknown) {", "if false {", false},
	{"sends a second ticket ahead with one number", turnsFile,
		"w.seq > m.iteration.ahead && ", "", true},
	{"loses the maps of a recalled ticket", aheadFile,
		"m.tellMaps |= m.ticket.Use", "m.tellMaps |= 0", true},
	{"declines no ticket of another communicator", portFile,
		"o != m && a.state == inHand", "false && a.state == inHand", true},
	{"gives planes back before they are prepared", turnsFile,
		"m.standing[j] = ticket.At(m.standing[j].Epoch+1, to)", "m.standing[j] = ticket.At(m.standing[j].Epoch, to)", true},
	{"does not recall tickets that others need", planesFile,
		"m.recall()\n\tif m.stage != idle {", "if m.stage != idle {", true},
	{"does not tell holders that others wait", grantFile,
		"h.a.sink.Wanted(h.holder, mask)", "_ = mask", true},

	// The rank's side of operations.
	{"uses a ticket for another call", rankAheadFile,
		"if a.seq != a.forSeq || a.sig != a.forSig {", "if a.seq != a.forSeq {", false},
	{"says that a ticket in use is unused", rankAheadFile,
		"return a.state == used && a.seq == seq", "return false", false},
	{"keeps a ticket that was recalled", rankAheadFile,
		"if a.state == inHand && a.seq == seq {\n\t\ta.state = void\n\t}", "", false},
	{"does not await its planes", rankFile,
		"case err == nil && int32(epoch-want.Epoch) >= 0:", "case err == nil:", false},
	{"keeps circuits from ports outside to its own", placementFile,
		"(p.Has(port) || p.Has(to))", "p.Has(port)", false},
	{"starts from where it left planes", rankFile,
		"m.standing[j] = *want", "_ = *want", false},
	{"counts one move too few", rankFile,
		"m.standing[j].Epoch+n, moves.Target(j, n)", "m.standing[j].Epoch+n-1, moves.Target(j, n)", false},
	// The device and the driver.
	{"verifies only new circuits", changeFile,
		"j.touched[r] || c.After[r] != circuit.Dark && (c.Check == nil || c.Check[r])", "j.touched[r]", false},
	{"believes the meters at once", unitFile,
		"if err == nil && !u.answered {", "if false {", true},
	{"changes a drifted map", changeFile,
		"if err := drift(now, c.Before, nil); err != nil {", "if err := drift(now, now, nil); err != nil {", true},
	{"trusts circuits of unknown outcome", sessionFile,
		"if verdicts == nil && errors.Is(err, ErrUnknownOutcome) {", "if false {", true},
	{"makes no dark circuit again", sessionFile,
		"again := s.Remake(c, idle)", "again := s.Remake(c, idle)[:0]", true},
	{"judges no light between moves", knownFile,
		"f.dbm = out.PowerDBm\n\t\t}\n\t\tk.settle(c, f, at)", "f.dbm = out.PowerDBm\n\t\t}\n\t\t_ = f", false},
	{"reads no health between moves", unitFile,
		"u.see(p, health)\n\t\tif p.failure", "u.see(p, health[:0])\n\t\tif p.failure", true},

	// Ranks that share device memory: tokens of rounds. The simulator does not know streams.
	{"takes a token for news of its own round", roundsFile,
		"x.slots.until[i] < round", "x.slots.until[i] <= round", true},
	{"writes its slot for itself without asking", roundsFile,
		"if to != 0 || i < p.chunks && p.owners.has(x.me) {", "if to != 0 {", true},
	{"joins the tokens of some ranks", roundsFile,
		"x.joint && of == x.n-1", "x.joint", true},
	{"knows its slots after replays", roundsFile,
		"(graph != 0 || !x.captured.Load())", "true", true},
	{"gives parts back before they are read", roundsFile,
		"return min(round+2, p.last())", "return round + 1", true},
}
