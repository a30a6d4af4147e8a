//go:build !race

// One goroutine per rule set searches all states, so the race detector would find nothing and make it ten times slower.

package feed

// The model of the freshness protocol (README.md): one edge, one link, one change from old to new, one request, and every order of their
// steps, with time passing between any two steps. It starts with an empty edge, and with an edge that served from a database which was
// then restored to an earlier state. A step is a violation if a request that arrived after control answered the change with
// "complete" gets the old target. Time is in ticks; both clocks agree.
//
// The model's edge may serve from its cache for L + S after the start of a poll, whether or not it can reach Postgres. That is more
// than a real edge may do, so what holds here holds there.

const (
	lease   = 2 // L
	stale   = 1 // S
	hold    = lease + stale
	endOfIt = 5 // a change at tick 2 is over by then
)

// rules are the protocol with one of its rules broken, or none.
type rules struct {
	leaseFromReply, leaseBeforeApply, noStamps, stampAfterLoad, joinAnyLoad, coarseClock, ackBeforeBump, rowAfterRead,
	deregisterFirst, hintBeforeCommit, pollByID, leaseWaitOnly, readRowsBeforeCommit bool
	// The order of a request's two reads. laterLeaseRejected adds to stampsBeforeLease that a lease which started after the
	// request read its clock does not count.
	stampsBeforeLease, laterLeaseRejected bool
	// What an edge or control relies on across a restore.
	windowTrusted, appliedTold, rowMissed bool
}

type (
	pollStep    int8
	loadStep    int8
	requestStep int8
	changeStep  int8
	message     int8
	lifeStep    int8
)

const (
	pollIdle       pollStep = 0
	pollStarted    pollStep = 1
	pollRegistered pollStep = 2
	pollRead       pollStep = 3
	pollHalf       pollStep = 4 // lease or bump done, the other to come; or, with rowAfterRead, registered last

	loadIdle    loadStep = 0
	loadStarted loadStep = 1
	loadRead    loadStep = 2

	requestNone    requestStep = 0
	requestArrived requestStep = 1 // its clock was read
	requestLeased  requestStep = 2 // it loaded a lease that covers its clock; the stamps are next
	requestStamped requestStep = 3 // with stampsBeforeLease: it found the stamps unmoved; the lease is next

	changeIdle      changeStep = 0
	changeCommitted changeStep = 1
	changePublished changeStep = 2
	changeAnswered  changeStep = 3

	unsent   message = 0
	inFlight message = 1
	bumping  message = 2 // with ackBeforeBump: acknowledged, to be bumped
	done     message = 3

	serving  lifeStep = 0
	halfLeft lifeStep = 1
	gone     lifeStep = 2
	noLease  int8     = -1
)

type state struct {
	now int8

	committed, otherCommitted bool // otherCommitted: a later identity, committed earlier
	committedAt               int8
	row, rowApplied           bool // the edge's row in edges

	life              lifeStep
	lease             int8 // the start of the poll it counts from
	bumps             int8
	entryOld          bool // the cache holds the old target; what else it holds is of no interest
	entryBumps        int8
	poll              pollStep
	pollStart         int8
	snapshot          bool // whether the poll's snapshot sees the change
	window            bool // whether its window brings it
	applied, sawOther bool
	load              loadStep
	loadBumps         int8
	loadOld           bool

	// A request that arrived after control's answer, between its steps, and the reading of its clock.
	request requestStep
	clock   int8

	change          changeStep
	hint, ack       message
	sawRow, rowRead bool // control: the first read of edges, in the variant that takes it before the commit

	// restored: the database was set back before the first tick, and this edge has not polled since. It calls finished what has the
	// number of the change, and its row is lost. lost: control waits for it nevertheless.
	restored, lost bool
}

// live returns the state without the values that no later step reads: states that differ in nothing else are one state.
func (s state) live() state {
	if s.poll == pollIdle {
		s.pollStart, s.snapshot, s.window = 0, false, false
	}
	if s.load == loadStarted && s.committed || s.load == loadRead && !s.loadOld {
		s.loadBumps = 0 // this load does not fetch the old target
	}
	if !s.entryOld {
		s.entryBumps = 0
	}
	if s.change == changeAnswered {
		// What control had to find out for its answer.
		s.committedAt, s.row, s.rowApplied, s.lost, s.rowRead, s.sawRow = 0, false, false, false, false, false
		s.ack, s.applied, s.snapshot = unsent, false, false
	}
	return s
}

// step is one thing that can happen next.
type step struct {
	name string
	to   state
	bad  bool
}

func (r rules) covers(s state, now int8, span int8) bool {
	return s.lease != noLease && now < s.lease+span
}

// current reports whether an entry with these bumps is as good as its stamps say. An edge compares the sum of several counters. bumps is
// such a sum: counters only grow, so equal sums mean that none has moved.
func (r rules) current(s state, bumps int8) bool { return r.noStamps || bumps == s.bumps }

// steps returns everything that can happen next.
func (r rules) steps(s state) []step {
	var all []step
	add := func(name string, change func(*state)) {
		next := s
		change(&next)
		if next = next.live(); next != s {
			all = append(all, step{name: name, to: next})
		}
	}
	if s.now < endOfIt {
		add("a tick passes", func(n *state) {
			n.now++
			n.lost = n.lost && n.now < hold
		})
	}
	r.pollSteps(s, add)
	r.loadSteps(s, add)
	r.lifeSteps(s, add)
	r.messageSteps(s, add)
	r.controlSteps(s, add)
	if s.change == changeAnswered {
		r.requestSteps(s, add)
		if how := r.violation(s); how != "" {
			all = append(all, step{name: how, to: s, bad: true})
		}
	}
	return all
}

type adder func(string, func(*state))

func (r rules) pollSteps(s state, add adder) {
	if s.poll == pollIdle {
		if s.life == serving {
			add("a poll begins", func(n *state) { n.poll, n.pollStart = pollStarted, n.now })
		}
		return
	}
	add("the poll fails", func(n *state) { n.poll = pollIdle })
	register := func(n *state) {
		n.row, n.rowApplied, n.lost = true, n.applied || n.restored && r.appliedTold, false
	}
	read := func(n *state) {
		n.snapshot, n.window = n.committed, n.committed
		if n.restored {
			n.window = !r.windowTrusted // it forgets everything
			n.restored = false
		}
		if r.pollByID {
			n.window = n.committed && !n.sawOther
			n.sawOther = n.sawOther || n.otherCommitted
		}
	}
	bump := func(n *state) {
		if n.window {
			n.bumps = min(n.bumps+1, 3)
		}
		n.applied = n.snapshot
	}
	renew := func(n *state) {
		if n.life != serving {
			return
		}
		n.lease = n.pollStart
		if r.leaseFromReply {
			n.lease = n.now
		}
	}
	switch s.poll {
	case pollStarted:
		if r.rowAfterRead {
			add("the poll reads its window", func(n *state) { read(n); n.poll = pollRegistered })
			return
		}
		add("the poll registers the edge", func(n *state) { register(n); n.poll = pollRegistered })
	case pollRegistered:
		if r.rowAfterRead {
			add("the poll registers the edge", func(n *state) { register(n); n.poll = pollRead })
			return
		}
		add("the poll reads its window", func(n *state) { read(n); n.poll = pollRead })
	case pollRead:
		if r.leaseBeforeApply {
			add("the poll renews the lease", func(n *state) { renew(n); n.poll = pollHalf })
			return
		}
		add("the poll applies its window", func(n *state) { bump(n); n.poll = pollHalf })
	case pollHalf:
		if r.leaseBeforeApply {
			add("the poll applies its window", func(n *state) { bump(n); n.poll = pollIdle })
			return
		}
		add("the poll renews the lease", func(n *state) { renew(n); n.poll = pollIdle })
	}
}

func (r rules) loadSteps(s state, add adder) {
	switch s.load {
	case loadIdle:
		add("a load starts", func(n *state) { n.load, n.loadBumps = loadStarted, n.bumps })
	case loadStarted:
		add("the load fails", func(n *state) { n.load, n.loadBumps = loadIdle, 0 })
		add("the load reads the row", func(n *state) { n.load, n.loadOld = loadRead, !n.committed })
	case loadRead:
		add("the load ends", func(n *state) {
			n.entryOld, n.entryBumps = n.loadOld, n.loadBumps
			if r.stampAfterLoad {
				n.entryBumps = n.bumps
			}
			n.load, n.loadBumps, n.loadOld = loadIdle, 0, false
		})
	}
}

func (r rules) lifeSteps(s state, add adder) {
	giveUp := func(n *state) { n.lease = noLease }
	deregister := func(n *state) { n.row, n.rowApplied = false, false }
	if s.poll != pollIdle {
		return
	}
	switch {
	case s.life == serving && r.deregisterFirst, s.life == halfLeft && !r.deregisterFirst:
		add("the edge deletes its row", func(n *state) { deregister(n); n.life++ })
	case s.life == serving && !r.deregisterFirst, s.life == halfLeft && r.deregisterFirst:
		add("the edge gives up its lease", func(n *state) { giveUp(n); n.life++ })
	}
}

func (r rules) messageSteps(s state, add adder) {
	bump := func(n *state) { n.bumps = min(n.bumps+1, 3) }
	switch s.hint {
	case inFlight:
		add("the hint is lost", func(n *state) { n.hint = done })
		if r.ackBeforeBump {
			add("the edge acknowledges the hint", func(n *state) { n.hint, n.ack = bumping, inFlight })
		} else {
			add("the edge bumps and acknowledges", func(n *state) { bump(n); n.hint, n.ack = done, inFlight })
		}
	case bumping:
		add("the edge bumps", func(n *state) { bump(n); n.hint = done })
	}
	if s.ack == inFlight {
		add("the acknowledgement is lost", func(n *state) { n.ack = unsent })
		add("control receives the acknowledgement", func(n *state) { n.ack = done })
	}
}

func (r rules) controlSteps(s state, add adder) {
	if r.pollByID && !s.otherCommitted {
		add("a transaction with a later identity commits", func(n *state) { n.otherCommitted = true })
	}
	switch s.change {
	case changeIdle:
		if r.hintBeforeCommit && s.hint == unsent {
			add("control sends the hint", func(n *state) { n.hint = inFlight })
		}
		if r.readRowsBeforeCommit && !s.rowRead {
			add("control reads edges", func(n *state) { n.rowRead, n.sawRow = true, n.row })
			return
		}
		add("the change commits", func(n *state) { n.change, n.committed, n.committedAt = changeCommitted, true, n.now })
	case changeCommitted:
		add("control sends the hint", func(n *state) {
			n.change = changePublished
			if n.hint == unsent {
				n.hint = inFlight
			}
		})
	case changePublished:
		wait := int8(hold)
		if r.leaseWaitOnly {
			wait = lease
		}
		row := s.row
		if r.readRowsBeforeCommit {
			row = s.sawRow
		}
		if !row && !s.lost || s.rowApplied || s.ack == done || s.now >= s.committedAt+wait {
			add("control answers: complete", func(n *state) { n.change = changeAnswered })
		}
	}
}

// requestSteps are those of a request that arrived after control's answer. Its two reads are steps of their own: a poll, a hint or
// a change can come between them.
func (r rules) requestSteps(s state, add adder) {
	switch s.request {
	case requestNone:
		add("a later request arrives and reads its clock", func(n *state) {
			n.request, n.clock = requestArrived, n.now
			if r.coarseClock {
				n.clock--
			}
		})
	case requestArrived:
		// A request that cannot go on here reads Postgres, and gets the new target.
		if r.stampsBeforeLease {
			if s.entryOld && r.current(s, s.entryBumps) {
				add("the request reads the stamps: unmoved", func(n *state) { n.request = requestStamped })
			}
		} else if r.covers(s, s.clock, hold) {
			add("the request loads the lease: valid", func(n *state) { n.request, n.clock = requestLeased, 0 })
		}
	}
}

// violation returns how the next step of a request serves the old target, empty when it cannot. A request that joined a load reads
// lease and stamps after that load has ended; by then the cache has the same entry.
func (r rules) violation(s state) string {
	switch {
	case s.request == requestLeased && s.entryOld && r.current(s, s.entryBumps):
		return "the request reads the stamps, which are unmoved, and serves the cached entry or that of the load it joined: old"
	case s.request == requestStamped && r.covers(s, s.clock, hold) && !(r.laterLeaseRejected && s.lease > s.clock):
		return "the request loads the lease, which is valid, and serves the entry: old"
	case r.joinAnyLoad && s.load == loadRead && s.loadOld:
		return "a later request joins the load that ends now: old"
	}
	return ""
}
