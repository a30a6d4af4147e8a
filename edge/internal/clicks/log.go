package clicks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
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
	sent         uint64 // the last epoch that is in batches
	early        int64  // while clicks from before the registration are cut: the through with which the log was registered
	// registered says that the log is in Postgres, and its clicks from before that are cut.
	registered bool
	// ended says that the log gets no further records. recovered says that an earlier process wrote it: no record is being written any more.
	ended, recovered bool
	reported         bool // if records are missing, that is in Postgres
	// synced is the end of what is safe against power loss, in milliseconds.
	synced int64
	clean  bool   // everything is safe, and the process ended in order
	safe   uint64 // all slots before this position were on disk at synced
}

// meta is what the file log.json says of a log.
type meta struct {
	Log  uuid.UUID `json:"log"`
	Slot string    `json:"slot"`
	// Boot is the boot id of the machine: another one means that what was not synced may be lost.
	Boot    string    `json:"boot"`
	Sync    int64     `json:"syncMilliseconds"`
	Started time.Time `json:"started"`
	// The sizes of what belongs to the log: a smaller file is damaged.
	SegmentBytes int `json:"segmentBytes"`
	CounterBytes int `json:"counterBytes"`
}

const logFile = "log.json"

// newLog creates a log in the store.
func (st *store) newLog(id uuid.UUID, slot string, sync time.Duration) (*log, error) {
	l := &log{meta: meta{Log: id, Slot: slot, Boot: bootID(), Sync: sync.Milliseconds(), Started: time.Now().UTC(), SegmentBytes: st.size,
		CounterBytes: countersSize(st.counters)}, epoch: 1}
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
	// The journal must have its blocks: otherwise a full disk would stop shipping, and so keep itself full.
	if err := unix.Fallocate(int(l.journal.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(st.entries*boundarySize)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(fmt.Errorf("allocate a journal: %w", err), l.remove())
	}
	// The file comes last: a folder without it was never used.
	if err := writeDurably(filepath.Join(l.dir, logFile), text); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	return l, syncDir(st.dir)
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

// openLogs returns the logs of earlier processes in the store. It removes the folders of logs that a process was killed in creating or removing,
// and gives back the segments of logs that have no folder.
func (st *store) openLogs(segments map[uuid.UUID][]*segment, report *slog.Logger) (logs []*log, err error) {
	folders, err := os.ReadDir(st.dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		id, err := uuid.Parse(folder.Name())
		if err != nil || !folder.IsDir() {
			continue
		}
		l := &log{dir: filepath.Join(st.dir, folder.Name()), ended: true, recovered: true, registered: true, segments: segments[id]}
		text, err := os.ReadFile(filepath.Join(l.dir, logFile))
		if errors.Is(err, os.ErrNotExist) && len(l.segments) == 0 {
			if err := os.RemoveAll(l.dir); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &l.meta)
		}
		if err != nil || l.Log != id {
			report.Error("a file of a log of clicks is damaged; the log is shipped without it", "log", id.String(), "error", err)
			l.meta = meta{Log: id}
		}
		delete(segments, id)
		if err := l.recover(); err != nil {
			return nil, fmt.Errorf("log %s: %w", id, err)
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
	return logs, nil
}

// recover reads the files of a log whose process has ended.
func (l *log) recover() error {
	size := l.CounterBytes
	if info, err := os.Stat(filepath.Join(l.dir, "counters")); size == 0 && err == nil {
		size = int(info.Size())
	}
	if err := l.openFiles(max(size, 2*pageSize)); err != nil {
		return err
	}
	text, err := io.ReadAll(l.journal)
	if err != nil {
		return err
	}
	l.readEntries(text)
	if len(text) != len(l.entries)*boundarySize {
		if err := l.rewriteJournal(l.entries); err != nil {
			return err
		}
	}
	if err := l.giveBackSpace(); err != nil {
		return err
	}
	return l.readTail(l.lostPower())
}

// giveBackSpace gives the blocks back that an ended log does not need: a process that is started again and again while Postgres is unavailable
// would otherwise fill the disk with empty counters.
func (l *log) giveBackSpace() error {
	for _, g := range l.counters.generations {
		if g.isUsed() && !l.hasSent(g.epoch()) {
			continue
		}
		from := int64(len(l.counters.generations[0].data))
		if g == l.counters.generations[0] {
			from = 0
		}
		err := unix.Fallocate(int(l.counters.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from+pageSize, int64(len(g.data)-pageSize))
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("give back the space of counters: %w", err)
		}
	}
	return l.journal.Truncate(int64(len(l.entries)) * boundarySize)
}

// remove removes the files of a log whose clicks are all committed. Its segments must have been released.
func (l *log) remove() error {
	err := l.closeFiles()
	if l.dir == "" {
		return err
	}
	// Without log.json the folder is of no log.
	if removed := os.Remove(filepath.Join(l.dir, logFile)); !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, os.RemoveAll(l.dir))
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
		if page := le.Uint64(t[24:]); page > 0 {
			l.safe = le.Uint64(t[16:])*uint64(slotsOf(l.SegmentBytes)) + (page-1)*(pageSize/slotSize)
		}
		for _, s := range l.segments {
			page := int(le.Uint64(t[24:]))
			if !restore || s.number != le.Uint64(t[16:]) || page == 0 {
				continue
			}
			first := (page*pageSize - pageSize) / slotSize
			for i := 0; i < pageSize/slotSize && first+i < s.slots; {
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
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names of files in a folder safe.
func syncDir(path string) error {
	dir, err := os.Open(path)
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
