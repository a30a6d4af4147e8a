package clicks

import (
	"testing"

	"deeplink/shared/testkit"
)

// The model of the protocol of clicks (control/internal/clicks/README.md): one edge with one log, two clicks, Postgres, and one control that
// rolls up and advances asOf, in every order of their steps, with time passing between any two of them. The process of the edge may be
// killed between any two steps; a new process then ships the log. Control may be killed, which undoes its transaction, and an operator may
// forget the log, and Postgres's clock may be set back by a tick. Three things are violations: a click whose response was sent is not counted
// exactly once when everything has come to rest; a click that is not late is counted after asOf has passed it; a click is late although
// its log was not forgotten.

// broken is the protocol with one of its rules broken, or none.
type broken struct {
	respondFirst, sealBeforeSlot, boundaryBeforeSeal, noWait, journalAfterSend, noKey, throughFirst, closeFirst,
	noFloor, floorFirst, noLock, neverLate, markAfter, advanceIgnoresBatches bool
	// clockSetBack breaks no rule: Postgres's clock may be set back by a tick, once.
	clockSetBack bool
}

const (
	modelEnd     = 2 // the last tick
	modelClicks  = 2
	modelBatches = 3
)

// The steps of a click.
const (
	clickNone     int8 = 0
	clickReserved int8 = 1 // with sealBeforeSlot: it has its time, and no slot yet
	clickWritten  int8 = 2
	clickDone     int8 = 3 // the response was sent, and the record is written
	clickTorn     int8 = 4 // the process was killed before it was written
	clickPromised int8 = 5 // with respondFirst: the response was sent, and nothing is written
)

// The states of a log in Postgres.
const (
	logNone      int8 = 0
	logOpen      int8 = 1
	logShut      int8 = 2
	logForgotten int8 = 3
)

type modelClick struct {
	step, at, slot int8
	answered       bool
}

type modelEntry struct{ from, to, through int8 }

type modelBatch struct {
	clicks                  uint8
	first                   int8
	there, late, rolled, on bool // on: a roll-up is counting it
}

// model is one state.
type model struct {
	now, seal  int8
	registered int8 // 1: the row is committed, 2: the floor is known
	floor      int8
	clicks     [modelClicks]modelClick
	next, cut  int8
	shipping   int8 // 1: sealed, 2: the boundary is known
	through    int8 // of the round that ships
	boundary   int8
	journal    [modelBatches]modelEntry
	entries    int8
	acked      int8
	dead       bool // the process was killed
	recovered  bool // the new process has read the log
	forgot     bool
	setBack    bool // Postgres's clock was set back
	wrongLate  bool // a batch of an open log is late

	log       int8
	published int8 // through, in Postgres
	batches   [modelBatches]modelBatch
	asOf      int8
	advancing int8 // 1: its snapshot is taken
	advanced  int8
	counts    [modelClicks]int8
}

// clock is the click clock: one tick behind Postgres until the floor is known.
func (m model) clock() int8 {
	if m.registered < 2 {
		return max(0, m.now-1)
	}
	return m.now
}

// steps returns all states that can follow. bad says what is violated.
func (m model) steps(b broken) (next []model, bad string) {
	add := func(change func(n *model)) {
		n := m
		change(&n)
		next = append(next, n)
	}
	if m.now < modelEnd {
		add(func(n *model) { n.now++ })
	}
	if b.clockSetBack && !m.setBack && m.now > 0 {
		add(func(n *model) { n.now--; n.setBack = true })
	}
	m.edge(b, add)
	m.postgres(b, add)
	bad = m.control(b, add)
	if m.wrongLate {
		bad = "a batch of a log that was not forgotten is late"
	}
	return next, bad
}

func (m model) edge(b broken, add func(func(*model))) {
	serves := m.registered == 2 || b.noFloor || b.floorFirst && m.registered > 0
	switch {
	case m.dead && !m.recovered:
		add(func(n *model) {
			n.recovered, n.shipping, n.acked, n.through, n.boundary, n.seal = true, 0, 0, 0, 0, 0
			for i, batch := range n.batches {
				if batch.there {
					n.acked = int8(i + 1)
				}
			}
			n.cut = 0
			if n.entries > 0 {
				n.cut = n.journal[n.entries-1].to
			}
			n.entries = max(n.entries, n.acked)
		})
	case !m.dead:
		for i := range m.clicks {
			if serves {
				m.click(b, i, add)
			}
		}
		add(func(n *model) { // killed
			n.dead = true
			for i := range n.clicks {
				switch n.clicks[i].step {
				case clickReserved, clickPromised:
					n.clicks[i].step = clickTorn
				}
			}
		})
	}
	// Registration: the row, then the floor in a later statement.
	switch {
	case m.dead:
	case m.registered == 0:
		add(func(n *model) {
			if b.floorFirst {
				n.floor = max(n.now, n.asOf)
			}
			n.registered, n.log, n.published = 1, logOpen, n.now
		})
	case m.registered == 1 && (m.advancing == 0 || b.noLock):
		add(func(n *model) {
			n.registered = 2
			if !b.floorFirst {
				n.floor = max(n.now, n.asOf, n.published)
			}
			if !b.noFloor {
				n.seal = max(n.seal, n.floor)
			}
			n.floor = 0
		})
	}
	m.ship(b, add)
}

// click is the next step of one click.
func (m model) click(b broken, i int, add func(func(*model))) {
	switch c := m.clicks[i]; c.step {
	case clickNone:
		if i > 0 && m.clicks[i-1].step == clickNone {
			return // the clicks are interchangeable
		}
		add(func(n *model) {
			c := &n.clicks[i]
			switch {
			case b.respondFirst:
				c.step, c.answered = clickPromised, true
			case b.sealBeforeSlot:
				c.step, c.at, c.slot = clickReserved, max(n.clock(), n.seal), -1
			default:
				c.step, c.slot = clickReserved, n.next
				n.next++
			}
		})
	case clickPromised:
		add(func(n *model) {
			c := &n.clicks[i]
			c.step, c.slot, c.at = clickDone, n.next, max(n.clock(), n.seal)
			n.next++
		})
	case clickReserved:
		add(func(n *model) {
			c := &n.clicks[i]
			c.step = clickWritten
			if b.sealBeforeSlot {
				c.slot = n.next
				n.next++
			} else {
				c.at = max(n.clock(), n.seal)
			}
		})
	case clickWritten:
		add(func(n *model) { n.clicks[i].step, n.clicks[i].answered = clickDone, true })
	}
}

// ship is the next step of the shipper: of the process that records, or of the one that has found the log.
func (m model) ship(b broken, add func(func(*model))) {
	if m.registered < 2 && !m.recovered || m.dead && !m.recovered || m.log == logShut || m.log == logNone {
		return
	}
	switch {
	case m.acked < m.entries:
		if m.batches[m.acked].there && !(b.noKey && m.counts[0]+m.counts[1] < 4) {
			add(func(n *model) { n.acked++ }) // the reply arrives, or says that the batch is there
		} else if m.batches[m.acked].there {
			add(func(n *model) { n.acked++ })
			add(func(n *model) { n.count(n.batches[n.acked].clicks) })
		} else {
			add(func(n *model) { n.send(b, n.acked, n.journal[n.acked]) })
		}
	case m.shipping == 0 && m.recovered && m.entries < modelBatches:
		if b.closeFirst {
			add(func(n *model) { n.log = logShut })
		}
		// What is left is the last batch, in the transaction that closes the log.
		add(func(n *model) {
			if n.left(n.cut, n.next) {
				n.journal[n.entries] = modelEntry{n.cut, n.next, n.now}
				n.cut, n.entries = n.next, n.entries+1
			} else {
				n.log = logShut
			}
		})
	case m.shipping == 0 && !m.dead && m.entries < modelBatches-1:
		add(func(n *model) {
			n.shipping, n.through = 1, n.clock()
			if b.boundaryBeforeSeal {
				n.boundary = n.next
			} else {
				n.seal = max(n.seal, n.through)
			}
		})
	case m.shipping == 1 && !m.dead:
		add(func(n *model) {
			n.shipping = 2
			if b.boundaryBeforeSeal {
				n.seal = max(n.seal, n.through)
			} else {
				n.boundary = n.next
			}
			if b.throughFirst && n.log == logOpen {
				n.published = max(n.published, n.through)
			}
		})
	case m.shipping == 2 && !m.dead:
		if !b.noWait {
			for _, c := range m.clicks {
				if c.step == clickReserved && c.slot >= 0 && c.slot < m.boundary {
					return
				}
			}
		}
		e := modelEntry{m.cut, m.boundary, m.through}
		switch {
		case !m.left(e.from, e.to):
			add(func(n *model) { // nothing to send
				n.shipping, n.cut, n.through, n.boundary = 0, e.to, 0, 0
				if n.log == logOpen {
					n.published = max(n.published, min(e.through, n.now))
				}
			})
		case b.journalAfterSend && !m.batches[m.entries].there:
			add(func(n *model) { n.send(b, n.entries, e) })
		default:
			add(func(n *model) {
				n.journal[n.entries], n.cut, n.shipping, n.through, n.boundary = e, e.to, 0, 0, 0
				n.entries++
			})
		}
	}
}

// left reports whether there is a record between two positions.
func (m model) left(from, to int8) bool { return m.between(from, to) != 0 }

func (m model) between(from, to int8) (clicks uint8) {
	for i, c := range m.clicks {
		if (c.step == clickWritten || c.step == clickDone) && c.slot >= from && c.slot < to {
			clicks |= 1 << i
		}
	}
	return clicks
}

// send is the transaction of a batch.
func (m *model) send(b broken, i int8, e modelEntry) {
	if m.log == logShut || m.log == logNone {
		return
	}
	clicks := m.between(e.from, e.to)
	first := int8(modelEnd)
	for c := range m.clicks {
		if clicks>>c&1 != 0 {
			first = min(first, m.clicks[c].at)
		}
	}
	late := m.log == logForgotten || first < m.published && !b.throughFirst
	m.batches[i] = modelBatch{clicks: clicks, first: first, there: true, late: late && !b.neverLate}
	m.wrongLate = late && m.log != logForgotten
	if m.log == logOpen {
		m.published = max(m.published, min(e.through, m.now))
	}
	if m.recovered && i == m.entries-1 && !m.left(m.cut, m.next) {
		m.log = logShut
	}
}

// postgres has what an operator does there.
func (m model) postgres(_ broken, add func(func(*model))) {
	if m.log == logOpen && !m.forgot {
		add(func(n *model) { n.log, n.forgot = logForgotten, true })
	}
}

// control is the roll-up and the advance of asOf.
func (m model) control(b broken, add func(func(*model))) (bad string) {
	for i := range m.batches {
		batch := m.batches[i]
		if !batch.there || batch.rolled {
			continue
		}
		if !batch.late {
			for c := range m.clicks {
				if batch.clicks>>c&1 != 0 && m.clicks[c].at < m.asOf && !batch.on {
					bad = "a click that is not late is counted before asOf"
				}
			}
		}
		if !b.markAfter {
			add(func(n *model) { n.count(batch.clicks); n.batches[i].rolled = true })
			continue
		}
		if batch.on {
			add(func(n *model) { n.batches[i].rolled = true })
			add(func(n *model) { n.batches[i].on = false }) // killed
		} else {
			add(func(n *model) { n.count(batch.clicks); n.batches[i].on = true })
		}
	}
	if m.advancing == 0 && m.registered != 1 || m.advancing == 0 && m.registered == 1 {
		add(func(n *model) {
			value, held := int8(modelEnd+1), false
			if n.log == logOpen {
				value, held = n.published, true
			}
			for _, batch := range n.batches {
				if batch.there && !batch.rolled && !batch.late && !b.advanceIgnoresBatches {
					value, held = min(value, batch.first), true
				}
			}
			if !held {
				value = n.now
			}
			n.advancing, n.advanced = 1, value
		})
	} else if m.advancing == 1 {
		add(func(n *model) { n.advancing, n.asOf, n.advanced = 0, max(n.asOf, n.advanced), 0 })
		add(func(n *model) { n.advancing, n.advanced = 0, 0 }) // killed
	}
	for i := range m.clicks {
		if m.counts[i] > 1 {
			return "a click is counted twice"
		}
		if m.clicks[i].answered && m.counts[i] == 0 && m.atRest() {
			return "a click that was answered is not counted"
		}
	}
	return bad
}

func (m *model) count(clicks uint8) {
	for c := range m.clicks {
		m.counts[c] += int8(clicks >> c & 1)
	}
}

// atRest reports whether the log is closed and all batches are counted.
func (m model) atRest() bool {
	for _, batch := range m.batches {
		if batch.there && !batch.rolled {
			return false
		}
	}
	return m.recovered && m.log == logShut && m.acked >= m.entries
}

// search visits all states and returns the number of them, and the first violation.
func search(b broken) (states int, bad string) {
	seen := map[model]struct{}{{}: {}}
	todo := []model{{}}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next, bad := m.steps(b)
		if bad != "" {
			return len(seen), bad
		}
		for _, n := range next {
			if _, found := seen[n]; !found {
				seen[n] = struct{}{}
				todo = append(todo, n)
			}
		}
	}
	return len(seen), ""
}

func TestProtocolHoldsInEveryStateWhenTheClockIsSetBack(t *testing.T) {
	testkit.Prove(t)
	if states, bad := search(broken{clockSetBack: true}); bad != "" {
		t.Errorf("after %d states: %s", states, bad)
	}
}

func TestProtocolHoldsInEveryState(t *testing.T) {
	states, bad := search(broken{})
	if bad != "" {
		t.Errorf("after %d states: %s", states, bad)
	}
	if states < 10_000 {
		t.Errorf("only %d states", states)
	}
	t.Logf("%d states", states)
}

func TestModelFindsEachBrokenRule(t *testing.T) {
	for name, b := range map[string]broken{
		"the response before the record":                 {respondFirst: true},
		"the seal is loaded before the slot":             {sealBeforeSlot: true},
		"the boundary is read before the seal":           {boundaryBeforeSeal: true, clockSetBack: true},
		"records that are being written are not awaited": {noWait: true},
		"the journal after the transaction":              {journalAfterSend: true},
		"a batch without a key":                          {noKey: true},
		"through before the clicks":                      {throughFirst: true},
		"the log is closed before the rest":              {closeFirst: true},
		"clicks before the floor":                        {noFloor: true},
		"the floor before the registration":              {floorFirst: true},
		"the floor without the lock":                     {noLock: true, clockSetBack: true},
		"no batch is late":                               {neverLate: true},
		"rolled is marked in a second transaction":       {markAfter: true},
		"asOf passes batches that wait":                  {advanceIgnoresBatches: true},
	} {
		states, bad := search(b)
		t.Logf("%s: %s (%d states)", name, bad, states)
		if bad == "" {
			t.Errorf("%s: no violation in %d states", name, states)
		}
	}
}
