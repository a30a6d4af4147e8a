package clicks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// log is one log: its segments, its counters, and its journal of batches. What the shipper uses is for one goroutine at a time; segments
// is guarded by the lock of the recorder.
type log struct {
	meta
	dir      string // empty: memory
	segments []*segment
	counters *counters
	journal  *os.File // nil in memory
	entries  []boundary
	tail     *os.File
	// cut is the position up to which batches are cut, sequence the number of the last batch.
	cut      uint64
	sequence int32
	// acked is the number of the last batch that is committed in Postgres.
	acked int32
	// acknowledged is the position before which all records are committed.
	acknowledged atomic.Uint64
	epoch        uint64 // of the generation that counts
	// registered says that the log is in Postgres, and its clicks from before that are cut.
	registered bool
	// ended says that the log gets no further records.
	ended bool
	// synced is the end of what is safe against power loss, in milliseconds.
	synced int64
	clean  bool // everything is safe, and the process ended in order
}

// meta is what the file log.json says of a log.
type meta struct {
	Log  uuid.UUID `json:"log"`
	Slot string    `json:"slot"`
	// Boot is the boot id of the machine: another one means that what was not synced may be lost.
	Boot    string    `json:"boot"`
	Sync    int64     `json:"syncMilliseconds"`
	Started time.Time `json:"started"`
}

// boundary is the entry of the journal for one batch.
type boundary struct {
	sequence int32
	last     bool   // it advances through
	from, to uint64 // positions
	through  int64  // milliseconds; the seal of the batch
	epoch    uint64 // of the counters in the batch, 0: none
}

const boundarySize = 64

func (b boundary) append(dst []byte) []byte {
	var e [boundarySize]byte
	le := binary.LittleEndian
	le.PutUint32(e[4:], uint32(b.sequence))
	if b.last {
		e[8] = 1
	}
	le.PutUint64(e[16:], b.from)
	le.PutUint64(e[24:], b.to)
	le.PutUint64(e[32:], uint64(b.through))
	le.PutUint64(e[40:], b.epoch)
	le.PutUint32(e[:], crc32.Checksum(e[4:], castagnoli))
	return append(dst, e[:]...)
}

func readBoundary(e []byte) (boundary, bool) {
	le := binary.LittleEndian
	if len(e) < boundarySize || le.Uint32(e) != crc32.Checksum(e[4:boundarySize], castagnoli) {
		return boundary{}, false
	}
	return boundary{
		sequence: int32(le.Uint32(e[4:])), last: e[8] == 1, from: le.Uint64(e[16:]), to: le.Uint64(e[24:]),
		through: int64(le.Uint64(e[32:])), epoch: le.Uint64(e[40:]),
	}, true
}

const logFile = "log.json"

// newLog creates a log in the store.
func (st *store) newLog(id uuid.UUID, slot string, sync time.Duration) (*log, error) {
	l := &log{meta: meta{Log: id, Slot: slot, Boot: bootID(), Sync: sync.Milliseconds(), Started: time.Now().UTC()}, epoch: 1}
	if st.dir != "" {
		l.dir = filepath.Join(st.dir, id.String())
		if err := os.Mkdir(l.dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := l.openFiles(st.counters); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	l.counters.generations[0].reset(1)
	l.counters.generations[1].reset(0)
	if l.dir == "" {
		return l, nil
	}
	text, err := json.Marshal(l.meta)
	if err != nil {
		return nil, err
	}
	// The file comes last: a folder without it was never used.
	return l, writeDurably(filepath.Join(l.dir, logFile), text)
}

func (l *log) openFiles(counters int) (err error) {
	path := func(name string) string {
		if l.dir == "" {
			return ""
		}
		return filepath.Join(l.dir, name)
	}
	if l.counters, err = openCounters(path("counters"), counters); err != nil || l.dir == "" {
		return err
	}
	if l.journal, err = os.OpenFile(path("journal"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	l.tail, err = os.OpenFile(path("tail"), os.O_RDWR|os.O_CREATE, 0o600)
	return err
}

func (l *log) closeFiles() (err error) {
	if l.counters != nil {
		err = l.counters.unmap()
	}
	for _, file := range []*os.File{l.journal, l.tail} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// openLogs returns the logs of earlier processes in the store, and gives back the segments of logs that have no folder.
func (st *store) openLogs(segments map[uuid.UUID][]*segment) (logs []*log, err error) {
	folders, err := filepath.Glob(filepath.Join(st.dir, "*", logFile))
	if err != nil {
		return nil, err
	}
	for _, name := range folders {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		l := &log{dir: filepath.Dir(name), ended: true, registered: true}
		if err := json.Unmarshal(text, &l.meta); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		l.segments = segments[l.Log]
		delete(segments, l.Log)
		if err := l.recover(); err != nil {
			return nil, fmt.Errorf("log %s: %w", l.Log, err)
		}
		logs = append(logs, l)
	}
	for _, rest := range segments {
		for _, s := range rest {
			if err := st.release(s); err != nil {
				return nil, err
			}
		}
	}
	return logs, st.removeUnused()
}

// removeUnused removes the folders of logs that a process was killed in creating or removing.
func (st *store) removeUnused() error {
	folders, err := os.ReadDir(st.dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if _, err := uuid.Parse(folder.Name()); err != nil || !folder.IsDir() {
			continue
		}
		dir := filepath.Join(st.dir, folder.Name())
		if _, err := os.Stat(filepath.Join(dir, logFile)); errors.Is(err, os.ErrNotExist) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// recover reads the files of a log whose process has ended.
func (l *log) recover() error {
	info, err := os.Stat(filepath.Join(l.dir, "counters"))
	if err != nil {
		return err
	}
	if err := l.openFiles(int(info.Size())); err != nil {
		return err
	}
	entries, err := io.ReadAll(l.journal)
	if err != nil {
		return err
	}
	for len(entries) >= boundarySize {
		b, ok := readBoundary(entries)
		if !ok {
			break // torn, and never sent
		}
		l.entries = append(l.entries, b)
		l.cut, l.sequence = b.to, b.sequence
		entries = entries[boundarySize:]
	}
	return l.readTail(l.lostPower())
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
	l.cut, l.sequence = last.to, last.sequence
	return nil
}

// maxEntries is the number of entries at which the journal is written anew.
const maxEntries = 1 << 15

// compact removes the entries of batches that are committed and whose segments are recycled. before is the oldest position that there is.
func (l *log) compact(before uint64) error {
	if len(l.entries) < maxEntries {
		return nil
	}
	drop := 0
	for drop < len(l.entries)-1 && l.entries[drop].to <= before && l.entries[drop].sequence <= l.acked {
		drop++
	}
	if drop < len(l.entries)/2 {
		drop = len(l.entries) / 2 // after a restore of Postgres, older batches cannot be sent again
		if l.entries[drop].sequence > l.acked {
			return nil
		}
	}
	kept := append([]boundary(nil), l.entries[drop:]...)
	if l.journal != nil {
		var text []byte
		for _, b := range kept {
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
	l.entries = kept
	return nil
}

// remove removes the files of a log whose clicks are all committed. Its segments must have been released.
func (l *log) remove() error {
	err := l.closeFiles()
	if l.dir == "" {
		return err
	}
	// Without log.json the folder is of no log.
	return errors.Join(err, os.Remove(filepath.Join(l.dir, logFile)), os.RemoveAll(l.dir))
}

// The tail is what sync copies: the last page of the log, which is not full yet. A page that was handed to the disk is not written again,
// because the kernel lets writers wait for a page that is on its way to the disk. The file has two copies, written in turn:
//
//	0  check      uint32, CRC-32C of the rest
//	4  clean      1 if the process ended in order
//	8  at         int64, milliseconds: everything before is safe
//	16 segment    uint64: number
//	24 page       uint64: number of the page in the segment
//	32 bytes of the page
const (
	tailHeader = 32
	tailSize   = tailHeader + pageSize
	// tailStep is the distance of the copies, so that a torn write affects one of them.
	tailStep = 2 * pageSize
)

func (l *log) writeTail(turn int, at int64, clean bool, segment uint64, page int, data []byte) error {
	var t [tailSize]byte
	le := binary.LittleEndian
	if clean {
		t[4] = 1
	}
	le.PutUint64(t[8:], uint64(at))
	le.PutUint64(t[16:], segment)
	le.PutUint64(t[24:], uint64(page))
	copy(t[tailHeader:], data)
	le.PutUint32(t[:], crc32.Checksum(t[4:], castagnoli))
	if _, err := l.tail.WriteAt(t[:], int64(turn%2)*tailStep); err != nil {
		return err
	}
	return unix.Fdatasync(int(l.tail.Fd()))
}

// lostPower reports whether the machine has been started again since the log was written.
func (l *log) lostPower() bool { return l.Boot != bootID() && !l.clean }

// readTail reads what the last sync left, and restores the last page from it if the machine has lost power.
func (l *log) readTail(restore bool) error {
	le := binary.LittleEndian
	for turn := range int64(2) {
		var t [tailSize]byte
		if n, _ := l.tail.ReadAt(t[:], turn*tailStep); n < tailSize || le.Uint32(t[:]) != crc32.Checksum(t[4:], castagnoli) {
			continue
		}
		at := int64(le.Uint64(t[8:]))
		if at < l.synced {
			continue
		}
		l.synced, l.clean = at, t[4] == 1
		for _, s := range l.segments {
			page := int(le.Uint64(t[24:]))
			if !restore || s.number != le.Uint64(t[16:]) || page*pageSize >= len(s.data) {
				continue
			}
			first := (page*pageSize - pageSize) / slotSize
			for i := 0; i < pageSize/slotSize; {
				kind, n := s.kindAt(first + i)
				if kind == 0 { // the slot did not reach the disk
					copy(s.slot(first + i)[:], t[tailHeader+i*slotSize:tailHeader+(i+1)*slotSize])
				}
				i += n
			}
		}
	}
	return nil
}

// writeDurably replaces a file.
func writeDurably(path string, text []byte) error {
	file, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// bootID identifies this boot of the machine; empty if it is unknown.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
