//go:build !race

// One goroutine walks millions of states: the race detector would only make it ten times slower.

package feed

import (
	"fmt"
	"strings"
	"testing"
)

// The model of the freshness protocol: one edge, one link, one change from old to new, and every order in which their steps
// can happen, with time passing between any two of them: from a fresh start, and after the database was set back under an edge that
// had answered from it. A state is a violation when a request that arrived after the change
// was answered "complete" is told the old target. Time is in ticks; both clocks agree.

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
	// What is believed across a restore.
	windowTrusted, appliedTold, rowMissed bool
}

type (
	target     int8
	pollStep   int8
	loadStep   int8
	changeStep int8
	message    int8
	lifeStep   int8
)

const (
	nothing target = 0
	old     target = 1
	new_    target = 2

	pollIdle       pollStep = 0
	pollBegun      pollStep = 1
	pollRegistered pollStep = 2
	pollRead       pollStep = 3
	pollHalf       pollStep = 4 // lease or bump done, the other to come; or, with rowAfterRead, registered last

	loadIdle  loadStep = 0
	loadBegun loadStep = 1
	loadRead  loadStep = 2

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
	unreachable               bool // Postgres, for the edge

	life              lifeStep
	lease             int8 // when it counts from
	bumps             int8
	entry             target
	entryBumps        int8
	poll              pollStep
	pollBegan         int8
	snapshot          bool // whether the poll's snapshot sees the change
	window            bool // whether its window brings it
	applied, sawOther bool
	load              loadStep
	loadBumps         int8
	loadTarget        target

	change          changeStep
	hint, ack       message
	sawRow, rowRead bool // control: the first look at edges, in the variant that takes it before the commit

	// restored: the database was set back before the first tick, and this edge has not polled since. It calls finished what has the
	// number of the change, and its row is lost. lost: control waits for it nevertheless.
	restored, lost bool
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

// current reports whether an entry with these bumps is as good as its stamps say.
func (r rules) current(s state, bumps int8) bool { return r.noStamps || bumps == s.bumps }

func (s state) present() target {
	if s.committed {
		return new_
	}
	return old
}

// steps returns everything that can happen next.
func (r rules) steps(s state) []step {
	var all []step
	add := func(name string, change func(*state)) {
		next := s
		change(&next)
		if next != s {
			all = append(all, step{name: name, to: next})
		}
	}
	if s.now < endOfIt {
		add("a tick passes", func(n *state) {
			n.now++
			n.lost = n.lost && n.now < hold
		})
	}
	add("Postgres becomes unreachable for the edge, or reachable", func(n *state) { n.unreachable = !n.unreachable })
	r.pollSteps(s, add)
	r.loadSteps(s, add)
	r.lifeSteps(s, add)
	r.messageSteps(s, add)
	r.controlSteps(s, add)
	if s.change == changeAnswered {
		all = append(all, r.lateRequests(s)...)
	}
	return all
}

type adder func(string, func(*state))

func (r rules) pollSteps(s state, add adder) {
	if s.poll == pollIdle {
		if s.life == serving && !s.unreachable {
			add("a poll begins", func(n *state) { n.poll, n.pollBegan = pollBegun, n.now })
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
		n.lease = n.pollBegan
		if r.leaseFromReply {
			n.lease = n.now
		}
	}
	switch s.poll {
	case pollBegun:
		if s.unreachable {
			return
		}
		if r.rowAfterRead {
			add("the poll reads its window", func(n *state) { read(n); n.poll = pollRegistered })
			return
		}
		add("the poll registers the edge", func(n *state) { register(n); n.poll = pollRegistered })
	case pollRegistered:
		if s.unreachable {
			return
		}
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
		if !s.unreachable {
			add("a load begins", func(n *state) { n.load, n.loadBumps = loadBegun, n.bumps })
		}
	case loadBegun:
		if s.unreachable {
			add("the load fails", func(n *state) { n.load, n.loadBumps = loadIdle, 0 })
			return
		}
		add("the load reads the row", func(n *state) { n.load, n.loadTarget = loadRead, n.present() })
	case loadRead:
		add("the load ends", func(n *state) {
			n.entry, n.entryBumps = n.loadTarget, n.loadBumps
			if r.stampAfterLoad {
				n.entryBumps = n.bumps
			}
			n.load, n.loadBumps, n.loadTarget = loadIdle, 0, nothing
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
		if !s.unreachable {
			add("the edge deletes its row", func(n *state) { deregister(n); n.life++ })
		}
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
		add("control hears the acknowledgement", func(n *state) { n.ack = done })
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

// lateRequests are the ways in which a request that arrives now can be told the old target.
func (r rules) lateRequests(s state) []step {
	now := s.now
	if r.coarseClock {
		now--
	}
	var bad []step
	tell := func(how string) { bad = append(bad, step{name: how, to: s, bad: true}) }
	if s.entry == old && r.current(s, s.entryBumps) {
		if r.covers(s, now, lease) {
			tell("a later request is answered from the cache: old")
		}
		if s.unreachable && r.covers(s, now, hold) {
			tell("a later request is answered from the cache, Postgres being unreachable: old")
		}
	}
	if s.load == loadRead && s.loadTarget == old && (r.joinAnyLoad || r.covers(s, now, lease) && r.current(s, s.loadBumps)) {
		tell("a later request joins the load that ends now: old")
	}
	return bad
}

// search walks every reachable state and returns the shortest story that ends in a violation, or nil.
func (r rules) search() (story []string, states int) {
	type origin struct {
		from state
		step string
	}
	start := state{lease: noLease}
	afterRestore := state{restored: true, lost: !r.rowMissed, entry: old}
	came := map[state]origin{start: {}, afterRestore: {}}
	queue := []state{start, afterRestore}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, next := range r.steps(s) {
			if next.bad {
				story = []string{fmt.Sprintf("tick %d: %s", s.now, next.name)}
				for at := s; at != start && at != afterRestore; at = came[at].from {
					story = append([]string{fmt.Sprintf("tick %d: %s", came[at].from.now, came[at].step)}, story...)
				}
				return story, len(came)
			}
			if _, seen := came[next.to]; !seen {
				came[next.to] = origin{from: s, step: next.name}
				queue = append(queue, next.to)
			}
		}
	}
	return nil, len(came)
}

func TestModelHoldsInEveryReachableState(t *testing.T) {
	t.Parallel()
	story, states := rules{}.search()
	if story != nil {
		t.Fatalf("the protocol is broken:\n%s", strings.Join(story, "\n"))
	}
	if states < 10_000 {
		t.Errorf("only %d states were reached: the model no longer moves", states)
	}
	t.Logf("%d states, none of them a violation", states)
}

func TestEachBrokenRuleIsFound(t *testing.T) {
	t.Parallel()
	broken := []struct {
		name  string
		rules rules
	}{
		{"the lease counts from the reply", rules{leaseFromReply: true}},
		{"the lease is renewed before the changes are applied", rules{leaseBeforeApply: true}},
		{"entries carry no stamps", rules{noStamps: true}},
		{"stamps are read after the row", rules{stampAfterLoad: true}},
		{"any running load may be joined", rules{joinAnyLoad: true}},
		{"the clock is coarse", rules{coarseClock: true}},
		{"acknowledged before bumped", rules{ackBeforeBump: true}},
		{"registered after the window was read", rules{rowAfterRead: true}},
		{"deregistered before the lease was given up", rules{deregisterFirst: true}},
		{"the hint is sent before the commit", rules{hintBeforeCommit: true}},
		{"the poll asks for identities above the last", rules{pollByID: true}},
		{"control waits for the lease only, though stale answers are allowed", rules{leaseWaitOnly: true}},
		{"control reads edges before the commit", rules{readRowsBeforeCommit: true}},
		{"an edge trusts its window across a restore", rules{windowTrusted: true}},
		{"an edge calls applied what it saw before a restore", rules{appliedTold: true}},
		{"control does not wait for an edge whose row a restore took away", rules{rowMissed: true}},
	}
	for _, variant := range broken {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			story, states := variant.rules.search()
			if story == nil {
				t.Fatalf("not found to be a violation in %d states", states)
			}
			t.Logf("found after %d states:\n%s", states, strings.Join(story, "\n"))
		})
	}
}
