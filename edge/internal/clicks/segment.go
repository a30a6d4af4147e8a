package clicks

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// segment is a piece of a log: a mapped file, or mapped memory, that starts with a page for its header. Slots are reserved with one atomic
// addition and written without a lock; no slot is written twice while the segment belongs to a log.
type segment struct {
	file *os.File // nil in memory
	data []byte
	// The fields up to seed are in the header. Log and number say to which log the segment belongs, and where in it.
	log    uuid.UUID
	number uint64
	base   uint64 // the position of the first slot
	seed   atomic.Uint64
	size   int // of the whole segment: a damaged file may be shorter
	slots  int
	// use is a number that no other use of a segment in this process has. 0: the segment was not written by this process.
	use atomic.Uint64
	// next is the number of reserved slots. It exceeds slots when the segment is full.
	next atomic.Int64
	// prefaulted is the last use of which pages were made writable.
	prefaulted uint64
	// synced is the number of slots, in whole pages, that were handed to the disk.
	synced atomic.Int64
	// syncing says that sync reads the segment: it may not be recycled. The lock of the recorder guards it.
	syncing bool
	texts   texts
}

// The header of a segment. Its first page has it, and its last page has a copy, because the checks of records depend on the seed:
//
//	0  magic       8 bytes
//	8  log         16 bytes
//	24 number      uint64
//	32 base        uint64
//	40 seed        uint64
//	48 size        uint64
//	56 check       uint32, CRC-32C of the 56 bytes before
const (
	segmentMagic  = "dlclick2"
	segmentHeader = 56
)

// slotsOf returns the number of slots of a segment of size bytes.
func slotsOf(size int) int { return max(0, size-2*pageSize) / slotSize }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errNoHeader = errors.New("no segment")

// mapSegment maps size bytes of a file, or of memory if path is empty. A new file gets all of its blocks now: a mapped file without
// blocks would end the process when the disk is full.
func mapSegment(path string, size int) (*segment, error) {
	s := &segment{size: size, slots: slotsOf(size)}
	flags, descriptor := unix.MAP_SHARED, -1
	if path == "" {
		flags |= unix.MAP_ANONYMOUS
	} else {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := allocate(file, int64(size)); err != nil {
			file.Close()
			return nil, fmt.Errorf("allocate %s: %w", path, err)
		}
		s.file, descriptor = file, int(file.Fd())
	}
	var err error
	if s.data, err = unix.Mmap(descriptor, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		if s.file != nil {
			s.file.Close()
		}
		return nil, fmt.Errorf("map a segment: %w", err)
	}
	return s, nil
}

// allocate gives a file its blocks. Where the file system cannot, it writes zeros.
func allocate(file *os.File, size int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= size {
		return nil
	}
	err = unix.Fallocate(int(file.Fd()), 0, 0, size)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; {
		n, err := file.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

func (s *segment) unmap() error {
	err := unix.Munmap(s.data)
	s.data = nil
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}

// begin makes the segment the next one of a log. Records of an earlier use become invalid, because their checks have another seed. No slot
// can be reserved before the call of open: a request that found this segment in its earlier use may still try to.
func (s *segment) begin(log uuid.UUID, number, base, use uint64) error {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	s.next.Store(int64(s.slots))
	s.use.Store(use)
	s.log, s.number, s.base = log, number, base
	s.seed.Store(binary.LittleEndian.Uint64(random[:]))
	s.synced.Store(0)
	s.texts.init(s.slots)
	le := binary.LittleEndian
	header := s.data[:segmentHeader+4]
	copy(header, segmentMagic)
	copy(header[8:], log[:])
	le.PutUint64(header[24:], number)
	le.PutUint64(header[32:], base)
	le.PutUint64(header[40:], s.seed.Load())
	le.PutUint64(header[48:], uint64(s.size))
	le.PutUint32(header[56:], crc32.Checksum(header[:segmentHeader], castagnoli))
	copy(s.headerCopy(), header)
	if s.file == nil {
		return nil
	}
	return errors.Join(unix.Msync(s.data[:pageSize], unix.MS_SYNC), unix.Msync(s.headerCopy(), unix.MS_SYNC))
}

// headerCopy is the last page.
func (s *segment) headerCopy() []byte { return s.data[len(s.data)-pageSize:] }

// open lets slots be reserved.
func (s *segment) open() { s.next.Store(0) }

// readHeader reads the header, or its copy if the first page is damaged. It returns errNoHeader if the segment belongs to no log. If the file
// was truncated, the segment has fewer slots.
func (s *segment) readHeader() error {
	le := binary.LittleEndian
	pages := [][]byte{s.data[:pageSize]}
	if len(s.data)%pageSize == 0 {
		pages = append(pages, s.headerCopy())
	}
	for _, header := range pages {
		if string(header[:8]) != segmentMagic || le.Uint32(header[56:]) != crc32.Checksum(header[:segmentHeader], castagnoli) {
			continue
		}
		copy(s.log[:], header[8:])
		s.number, s.base = le.Uint64(header[24:]), le.Uint64(header[32:])
		s.seed.Store(le.Uint64(header[40:]))
		s.size = int(le.Uint64(header[48:]))
		s.slots = min(slotsOf(s.size), (len(s.data)-pageSize)/slotSize)
		s.next.Store(int64(s.slots))
		return nil
	}
	return errNoHeader
}

// free makes the segment belong to no log.
func (s *segment) free() {
	s.log, s.number = uuid.UUID{}, 0
	clear(s.data[:segmentHeader+4])
	if len(s.data)%pageSize == 0 {
		clear(s.headerCopy()[:segmentHeader+4])
	}
}

// fullEnd is the position after the segment as it was before it was damaged.
func (s *segment) fullEnd() uint64 { return s.base + uint64(slotsOf(s.size)) }

// slot returns a slot by its number in the segment.
func (s *segment) slot(i int) *[slotSize]byte {
	return (*[slotSize]byte)(unsafe.Pointer(&s.data[pageSize+i*slotSize]))
}

// reserve returns the first of n slots in a row, or -1 if the segment has no room for them. The caller must write all of them.
func (s *segment) reserve(n int) int {
	end := int(s.next.Add(int64(n)))
	if end <= s.slots {
		return end - n
	}
	// The slots that were left belong to this call only: say that they are not used, because the shipper waits for them.
	for i := end - n; i < s.slots; i++ {
		s.writeUnused(i)
	}
	return -1
}

// close lets no further slot be reserved.
func (s *segment) close() {
	for {
		n := s.next.Load()
		if n >= int64(s.slots) {
			return
		}
		if s.next.CompareAndSwap(n, int64(s.slots)) {
			for i := int(n); i < s.slots; i++ {
				s.writeUnused(i)
			}
			return
		}
	}
}

func (s *segment) writeUnused(i int) {
	slot := s.slot(i)
	slot[kindOffset] = kindUnused
	storeCheck(slot, fold(s.seed.Load(), kindUnused, uint64(i), 0))
}

// reserved returns the number of slots that were reserved.
func (s *segment) reserved() int { return int(min(s.next.Load(), int64(s.slots))) }

// end is the position after the segment.
func (s *segment) end() uint64 { return s.base + uint64(s.slots) }

// kindAt returns the kind of a slot and the number of slots that belong to it, or 0 if the slot is not valid.
func (s *segment) kindAt(i int) (kind, n int) {
	slot := s.slot(i)
	check := loadCheck(slot)
	if check == 0 {
		return 0, 1
	}
	switch slot[kindOffset] {
	case kindClick:
		if check == checkOf(slot, s.seed.Load()) {
			return kindClick, 1
		}
	case kindText:
		if text := s.textAt(i); text != nil {
			return kindText, textSlots(len(text))
		}
	case kindUnused:
		if check == nonzero(fold(s.seed.Load(), kindUnused, uint64(i), 0)) {
			return kindUnused, 1
		}
	}
	return 0, 1
}

// textAt returns the text whose first slot is i, nil if there is no valid one. It is part of the segment.
func (s *segment) textAt(i int) []byte {
	if i < 0 || i >= s.slots {
		return nil
	}
	slot := s.slot(i)
	length := int(binary.LittleEndian.Uint16(slot[lengthOffset:]))
	if slot[kindOffset] != kindText || i+textSlots(length) > s.slots || length == 0 {
		return nil
	}
	start := pageSize + i*slotSize + textHeader
	text := s.data[start : start+length : start+length]
	if loadCheck(slot) != nonzero(textHash(s.seed.Load(), text)) {
		return nil
	}
	return text
}

// writeText stores a text and returns its first slot, -1 if there is no room.
func (s *segment) writeText(text []byte) int {
	i := s.reserve(textSlots(len(text)))
	if i < 0 {
		return -1
	}
	slot := s.slot(i)
	slot[kindOffset], slot[kindOffset+1] = kindText, 0
	binary.LittleEndian.PutUint16(slot[lengthOffset:], uint16(len(text)))
	copy(s.data[pageSize+i*slotSize+textHeader:], text)
	storeCheck(slot, textHash(s.seed.Load(), text))
	return i
}

// prefault makes the pages of the next n slots writable, so that no click waits for a page.
func (s *segment) prefault(n int) { s.prefaultFrom(s.reserved(), n) }

// prefaultStart is prefault for a segment that is not open yet.
func (s *segment) prefaultStart(n int) { s.prefaultFrom(0, n) }

func (s *segment) prefaultFrom(from, n int) {
	to := min(from+n, s.slots)
	start := (pageSize + from*slotSize) / pageSize * pageSize
	end := min((pageSize+to*slotSize+pageSize-1)/pageSize*pageSize, len(s.data))
	if start >= end {
		return
	}
	// MADV_POPULATE_WRITE is in Linux 5.14. Before, adding nothing to one word of each page does the same.
	if unix.Madvise(s.data[start:end], unix.MADV_POPULATE_WRITE) != nil {
		for at := start; at < end; at += pageSize {
			atomic.AddUint32((*uint32)(unsafe.Pointer(&s.data[at])), 0)
		}
	}
}
