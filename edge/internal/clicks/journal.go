package clicks

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// boundary is the entry of the journal for one batch.
type boundary struct {
	sequence int32
	last     bool // it advances through
	// early: the clicks are from before the registration of the log. They are late: their times are made to be before through, because the
	// clock was not set from Postgres's yet.
	early    bool
	from, to uint64 // positions
	// through is the seal of the batch, in milliseconds. early: the through with which the log was registered.
	through int64
	// epoch is that of the counters in the batch, 0: none. The batch has their entries from first on, before end.
	epoch      uint64
	first, end uint32
	// sent is the last epoch of which all entries are in batches up to this one.
	sent uint64
}

const boundarySize = 64

// An entry of the journal:
//
//	0  check      uint32, CRC-32C of the rest
//	4  sequence   uint32
//	8  last       1 if it advances through
//	9  early      1 if its clicks are from before the registration
//	16 from, to   2 × uint64
//	32 through    int64
//	40 epoch      uint64
//	48 sent       uint64
//	56 first, end 2 × uint32
func (b boundary) append(dst []byte) []byte {
	var e [boundarySize]byte
	le := binary.LittleEndian
	le.PutUint32(e[4:], uint32(b.sequence))
	if b.last {
		e[8] = 1
	}
	if b.early {
		e[9] = 1
	}
	le.PutUint64(e[16:], b.from)
	le.PutUint64(e[24:], b.to)
	le.PutUint64(e[32:], uint64(b.through))
	le.PutUint64(e[40:], b.epoch)
	le.PutUint64(e[48:], b.sent)
	le.PutUint32(e[56:], b.first)
	le.PutUint32(e[60:], b.end)
	le.PutUint32(e[:], crc32.Checksum(e[4:], castagnoli))
	return append(dst, e[:]...)
}

func readBoundary(e []byte) (boundary, bool) {
	le := binary.LittleEndian
	if len(e) < boundarySize || le.Uint32(e) != crc32.Checksum(e[4:boundarySize], castagnoli) {
		return boundary{}, false
	}
	return boundary{
		sequence: int32(le.Uint32(e[4:])), last: e[8] == 1, early: e[9] == 1, from: le.Uint64(e[16:]), to: le.Uint64(e[24:]),
		through: int64(le.Uint64(e[32:])), epoch: le.Uint64(e[40:]), sent: le.Uint64(e[48:]), first: le.Uint32(e[56:]), end: le.Uint32(e[60:]),
	}, true
}

// readEntries reads the journal of a log whose process has ended, and the copy of its last entry.
func (l *log) readEntries(text []byte) {
	for ; len(text) >= boundarySize; text = text[boundarySize:] {
		// An entry that is torn or missing is skipped. It was never sent if it is the last one.
		if b, ok := readBoundary(text); ok && (len(l.entries) == 0 || b.sequence > l.entries[len(l.entries)-1].sequence) {
			l.entries = append(l.entries, b)
		}
	}
	if last, ok := l.counters.lastEntry(); ok && (len(l.entries) == 0 || last.sequence > l.entries[len(l.entries)-1].sequence) {
		l.entries = append(l.entries, last) // the end of the journal is missing
	}
	// A process that was killed while it wrote the entries of one generation has sent none of them.
	for n := len(l.entries); n > 0 && l.entries[n-1].epoch > l.entries[n-1].sent; n-- {
		l.entries = l.entries[:n-1]
	}
	if n := len(l.entries); n > 0 {
		l.cut, l.sequence, l.sent = l.entries[n-1].to, l.entries[n-1].sequence, l.entries[n-1].sent
	}
}

// appendJournal writes boundaries to the journal and waits until they are on disk. They must not be sent before.
func (l *log) appendJournal(entries []boundary) error {
	if l.journal != nil {
		var text []byte
		for _, b := range entries {
			text = b.append(text)
		}
		end := int64(len(l.entries)) * boundarySize
		if _, err := l.journal.WriteAt(text, end); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(l.journal.Fd())); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, entries...)
	last := entries[len(entries)-1]
	l.cut, l.sequence, l.sent = last.to, last.sequence, last.sent
	l.counters.keepEntry(last)
	return nil
}

// compact removes the oldest entries when there are more than a limit: those of batches that are committed and whose segments are recycled. If
// these are less than half of all, it removes half of all: after a restore of Postgres, their batches cannot be sent again. before is the
// oldest position that there is.
func (l *log) compact(before uint64, limit int) error {
	if len(l.entries) < limit {
		return nil
	}
	drop := 0
	for drop < len(l.entries)-1 && l.entries[drop].to <= before && l.entries[drop].sequence <= l.acked {
		drop++
	}
	if drop < len(l.entries)/2 {
		drop = len(l.entries) / 2
		if l.entries[drop].sequence > l.acked {
			return nil
		}
	}
	return l.rewriteJournal(slices.Clone(l.entries[drop:]))
}

// rewriteJournal replaces all entries.
func (l *log) rewriteJournal(entries []boundary) error {
	if l.journal != nil {
		text := make([]byte, 0, len(entries)*boundarySize)
		for _, b := range entries {
			text = b.append(text)
		}
		path := l.journal.Name()
		if err := writeDurably(path, text); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		l.journal.Close()
		l.journal = file
	}
	l.entries = entries
	return nil
}

// after returns the index of the first entry behind a sequence.
func (l *log) after(sequence int32) int {
	i, _ := slices.BinarySearchFunc(l.entries, sequence+1, func(b boundary, s int32) int { return int(b.sequence) - int(s) })
	return i
}

// pending returns the entries of the batches that are not committed.
func (l *log) pending() []boundary { return l.entries[l.after(l.acked):] }

// acknowledge records that Postgres has all batches up to one.
func (l *log) acknowledge(sequence int32) {
	l.acked = sequence
	var to uint64
	if i := l.after(sequence); i > 0 {
		to = l.entries[i-1].to
	}
	l.acknowledged.Store(to)
}

// hasSent reports whether a generation of the counters is in batches.
func (l *log) hasSent(epoch uint64) bool { return epoch <= l.sent }
