package clicks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

const (
	// counterShare: one part in this many of the space is for counters.
	counterShare = 8
	// journalShare: one part in this many of the space is for the journal, but at most maxJournal. With 2 GiB, it has 36 h of batches.
	journalShare, maxJournal = 128, 64 << 20
	// memoryBytes is the space of a log without a directory.
	memoryBytes = 64 << 20
	// The bounds of the size of a segment. A segment is as small as it can be without a switch every few milliseconds, because whole
	// segments are recycled.
	minSegment, maxSegment = 1 << 20, 32 << 20
	segmentsPerStore       = 64
)

// store is the space for logs: a directory with segment files, and one folder per log; or memory. Its methods are for one goroutine at a
// time, which holds the lock of the recorder.
type store struct {
	dir      string // empty: memory
	lock     *os.File
	size     int // of a segment
	most     int // number of segments
	count    int
	unused   []*segment
	counters int // bytes of the counters of a log
	entries  int // of a journal
	closed   closedLogs
}

// openStore opens a directory, or memory if dir is empty. It returns the segments that belong to logs, by log. Only one process can have
// a directory open.
func openStore(dir string, bytes int64) (*store, map[uuid.UUID][]*segment, error) {
	if dir == "" {
		bytes = memoryBytes
	}
	counters := int(bytes / counterShare)
	journal := min(int(bytes/journalShare), maxJournal)
	space := int(bytes) - counters - 2*journal // a journal is copied to make it shorter
	size := min(max(space/segmentsPerStore, minSegment), maxSegment) / pageSize * pageSize
	st := &store{dir: dir, size: size, most: space / size, counters: counters, entries: journal / boundarySize}
	if dir == "" {
		return st, nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	var err error
	if st.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, nil, err
	}
	if err := unix.Flock(int(st.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		st.lock.Close()
		return nil, nil, fmt.Errorf("another process uses the directory: %w", err)
	}
	found, err := st.readSegments()
	if err == nil {
		st.closed, err = readClosed(dir)
	}
	if err != nil {
		st.close()
		return nil, nil, err
	}
	return st, found, nil
}

func (st *store) close() error {
	if st.lock == nil {
		return nil
	}
	return st.lock.Close()
}

func (st *store) segmentPath(i int) string {
	if st.dir == "" {
		return ""
	}
	return filepath.Join(st.dir, fmt.Sprintf("segment-%05d", i))
}

// readSegments maps the segment files. Files of another size belong to another EDGE_CLICKS_BYTES: they keep their size until their clicks
// are shipped, and are then removed.
func (st *store) readSegments() (map[uuid.UUID][]*segment, error) {
	names, err := filepath.Glob(filepath.Join(st.dir, "segment-*"))
	if err != nil {
		return nil, err
	}
	byLog := make(map[uuid.UUID][]*segment)
	for _, name := range names {
		var number int
		if _, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(name), "segment-"), "%d", &number); err != nil {
			continue
		}
		st.count = max(st.count, number+1)
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.Size() < 2*pageSize {
			if err := os.Remove(name); err != nil { // a process was killed before the file had its blocks, or the file is damaged
				return nil, err
			}
			continue
		}
		s, err := mapSegment(name, int(info.Size()))
		if err != nil {
			return nil, err
		}
		switch err := s.readHeader(); {
		case err == nil:
			byLog[s.log] = append(byLog[s.log], s)
		case len(s.data) == st.size:
			st.unused = append(st.unused, s)
		default:
			if err := st.discard(s); err != nil {
				return nil, err
			}
		}
	}
	for _, segments := range byLog {
		slices.SortFunc(segments, func(a, b *segment) int { return int(int64(a.number) - int64(b.number)) })
	}
	return byLog, nil
}

// acquire returns a segment that belongs to no log, or nil if all space is in use.
func (st *store) acquire() (*segment, error) {
	if n := len(st.unused); n > 0 {
		s := st.unused[n-1]
		st.unused = st.unused[:n-1]
		return s, nil
	}
	if st.count >= st.most {
		return nil, nil
	}
	s, err := mapSegment(st.segmentPath(st.count), st.size)
	if err != nil {
		return nil, err
	}
	st.count++
	return s, nil
}

// release takes back a segment whose clicks are shipped.
func (st *store) release(s *segment) error {
	s.free()
	if len(s.data) != st.size {
		return st.discard(s)
	}
	st.unused = append(st.unused, s)
	return nil
}

func (st *store) discard(s *segment) error {
	if s.file == nil {
		return s.unmap()
	}
	return errors.Join(os.Remove(s.file.Name()), s.unmap())
}
