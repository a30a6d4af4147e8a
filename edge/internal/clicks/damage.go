package clicks

// This file finds out whether records of a log are missing that its process had written: after a loss of power, or if files were damaged. A kill
// leaves nothing but slots that were reserved and not written yet, whose responses were never sent.

// tornSlots is how many slots in a row a kill does not leave unwritten before a written one: each request has reserved one, or those of a text.
const tornSlots = 64

// maxMissing bounds the entries that are made for missing ones. A process sends a batch soon after it has made its entry.
const maxMissing = 1 << 10

// closeGaps makes entries for those that are missing in the journal. last is the last batch in Postgres: entries up to it are not needed.
// It returns true if it is not known which records Postgres has.
func (l *log) closeGaps(last int32) (lost bool, err error) {
	var before boundary
	var entries []boundary
	for _, b := range l.entries {
		switch missing := b.sequence - before.sequence - 1; {
		case missing <= 0 || b.sequence-1 <= last:
		case last > before.sequence || missing > maxMissing:
			lost = true
		default:
			// None of these batches was sent, so their records may be divided in any way.
			step := (b.from - before.to) / uint64(missing)
			for i := range uint64(missing) {
				e := boundary{sequence: before.sequence + 1 + int32(i), from: before.to + i*step, to: before.to + (i+1)*step, through: before.through, sent: before.sent}
				if i == uint64(missing)-1 {
					e.to = b.from
				}
				entries = append(entries, e)
			}
		}
		entries = append(entries, b)
		before = b
	}
	if len(entries) == len(l.entries) {
		return lost, nil
	}
	return lost, l.rewriteJournal(entries)
}

// damaged reports whether records are missing that Postgres does not have.
func (l *log) damaged() bool { return l.countersDamaged() || l.segmentsDamaged() }

func (l *log) segmentsDamaged() bool {
	from, safe := l.acknowledged.Load(), max(l.cut, l.safe)
	end := max(safe, *l.counters.opened()*uint64(slotsOf(l.SegmentBytes)))
	covered := from
	gap := 0
	for _, s := range l.segments {
		if s.fullEnd() <= from {
			continue
		}
		if s.base > covered || s.end() < s.fullEnd() {
			return true
		}
		covered = s.fullEnd()
		first := 0
		if from > s.base {
			first = int(from - s.base)
		}
		for i := first; i < s.slots; {
			kind, n := s.kindAt(i)
			switch {
			case kind != 0 && gap >= tornSlots:
				return true
			case kind != 0:
				gap = 0
			case s.base+uint64(i) < safe:
				return true
			default:
				gap++
			}
			i += n
		}
	}
	return covered < end
}

func (l *log) countersDamaged() bool {
	g := l.counters.generations
	if g[0].epoch() == 0 || *g[0].first() == 0 {
		return true
	}
	for i := range g {
		if *g[i].first() == 0 && (g[0].epoch() > 1 || g[0].isUsed()) {
			return true // the header is missing, and the generation may have been used
		}
		if g[i].isUsed() && !l.hasSent(g[i].epoch()) && g[i].read(make(map[count]int64), 0, g[i].entries) < int(*g[i].made()) {
			return true
		}
	}
	return false
}
